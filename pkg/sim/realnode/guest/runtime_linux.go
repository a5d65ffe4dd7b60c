package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// runtimeMain stands before runc, as NVIDIA's runtime does: it changes the specification of a
// container that is created and leaves everything else to runc.
func runtimeMain(args []string, nvidia bool) error {
	if dir, ok := created(args); ok {
		if err := amend(filepath.Join(dir, "config.json"), nvidia); err != nil {
			return tellLog(args, err)
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return tellLog(args, fmt.Errorf("finding runc, %w", err))
	}
	return unix.Exec(runc, append([]string{"runc"}, args...), os.Environ())
}

// created returns the bundle of a call that creates a container.
func created(args []string) (dir string, ok bool) {
	dir = "."
	for i, arg := range args {
		switch {
		case arg == "create":
			ok = true
		case (arg == "--bundle" || arg == "-b") && i+1 < len(args):
			dir = args[i+1]
		case strings.HasPrefix(arg, "--bundle="):
			dir = strings.TrimPrefix(arg, "--bundle=")
		}
	}
	return dir, ok
}

func amend(path string, nvidia bool) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading a container's specification, %w", err)
	}
	var spec bundle
	if err := json.Unmarshal(data, &spec); err != nil {
		return fmt.Errorf("reading a container's specification, %w", err)
	}
	spec.hook()
	if nvidia {
		driver, err := readDriver(filepath.Join(SharedDir, GPUDir, DriverFile))
		if err != nil {
			return err
		}
		if err := spec.inject(driver, SharedDir); err != nil {
			return err
		}
	}
	if data, err = json.Marshal(spec); err != nil {
		return fmt.Errorf("encoding a container's specification, %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing a container's specification, %w", err)
	}
	return nil
}

// tellLog writes an error to where containerd looks for the runtime's last words.
func tellLog(args []string, err error) error {
	for i, arg := range args {
		if arg != "--log" || i+1 == len(args) {
			continue
		}
		line, _ := json.Marshal(map[string]string{"level": "error", "msg": err.Error()}) // strings always encode
		return errors.Join(err, os.WriteFile(args[i+1], append(line, '\n'), 0o600))
	}
	return err
}

// bootIDMain is an OCI hook: it runs in the container's mounts before its root is entered.
func bootIDMain(in io.Reader) error {
	var state struct {
		Bundle string `json:"bundle"`
	}
	if err := json.NewDecoder(in).Decode(&state); err != nil {
		return fmt.Errorf("reading the container's state, %w", err)
	}
	data, err := os.ReadFile(filepath.Join(state.Bundle, "config.json"))
	if err != nil {
		return fmt.Errorf("reading the container's specification, %w", err)
	}
	var spec struct {
		Root struct {
			Path string `json:"path"`
		} `json:"root"`
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		return fmt.Errorf("reading the container's specification, %w", err)
	}
	root := spec.Root.Path
	if !filepath.IsAbs(root) {
		root = filepath.Join(state.Bundle, root)
	}
	target := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	if err := unix.Mount(bootIDFile, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("giving the container the machine's boot ID, %w", err)
	}
	return nil
}
