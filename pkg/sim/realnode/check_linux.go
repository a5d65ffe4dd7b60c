package realnode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// MissingError says what a real node needs and this machine lacks.
type MissingError struct {
	// What is missing, and Fix what to do about it.
	What, Fix string
}

// Error names both.
func (e *MissingError) Error() string {
	return fmt.Sprintf("a real node needs %s: %s", e.What, e.Fix)
}

// programs are those of the system, with Debian's packages.
var programs = []struct{ name, pack string }{
	{"containerd", "containerd"}, {"containerd-shim-runc-v2", "containerd"}, {"ctr", "containerd"}, {"runc", "runc"}, {"mknod", "coreutils"},
}

// cniDirs are where distributions put CNI plugins.
var cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

const capSysAdmin = 21

// Check looks for everything that a real node needs of the machine. It returns *MissingErrors,
// joined.
func Check() error {
	if os.Geteuid() != 0 {
		return &MissingError{"root", "run it as root, for example with sudo"}
	}
	if !capable(capSysAdmin) {
		return &MissingError{"the capability CAP_SYS_ADMIN", "run it outside a container, or in a privileged one"}
	}
	errs := []error{checkPrograms()}
	if _, err := cniDir(); err != nil {
		errs = append(errs, err)
	}
	for _, name := range []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"} {
		if _, err := os.Stat(filepath.Join("/proc/self/ns", name)); err != nil {
			errs = append(errs, &MissingError{"the kernel's " + name + " namespaces", "use a kernel that has them, as every distribution's has"})
		}
	}
	return errors.Join(append(errs, checkOverlay())...)
}

func checkPrograms() error {
	var errs []error
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil {
			errs = append(errs, &MissingError{"the program " + p.name, "install it, on Debian with `apt-get install " + p.pack + "`"})
		}
	}
	return errors.Join(errs...)
}

// checkOverlay loads the module where it is not built in.
func checkOverlay() error {
	has := func() bool {
		data, err := os.ReadFile("/proc/filesystems")
		return err == nil && strings.Contains(string(data), "\toverlay\n")
	}
	if has() {
		return nil
	}
	if err := exec.Command("modprobe", "overlay").Run(); err == nil && has() {
		return nil
	}
	return &MissingError{"the kernel's overlay file system", "load it with `modprobe overlay`, or use a kernel that has it"}
}

func cniDir() (string, error) {
	for _, dir := range cniDirs {
		complete := true
		for _, name := range []string{"bridge", "host-local", "loopback"} {
			_, err := os.Stat(filepath.Join(dir, name))
			complete = complete && err == nil
		}
		if complete {
			return dir, nil
		}
	}
	return "", &MissingError{"the CNI plugins bridge, host-local and loopback in " + strings.Join(cniDirs, " or "), "install them, on Debian with `apt-get install containernetworking-plugins`"}
}

// capable tells whether this process has a capability.
func capable(bit uint) bool {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(data), "\n") {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return err == nil && set&(1<<bit) != 0
		}
	}
	return false
}
