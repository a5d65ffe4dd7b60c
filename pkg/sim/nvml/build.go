package nvml

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed fake/nvml.c
var source []byte

// ConfigEnv names the environment variable that holds the path of the fake
// library's configuration.
const ConfigEnv = "KPGPU_FAKE_NVML"

// ErrNoCompiler says that this machine cannot build the fake library.
var ErrNoCompiler = errors.New("building the fake nvml library needs a C compiler")

// headerModule holds nvml.h; its ABI is the real one.
const headerModule = "github.com/NVIDIA/go-nvml"

// Build compiles the fake library into a directory and returns its path. Functions
// named in without are left out of it. It needs cc and the go command, and returns
// ErrNoCompiler where one is missing.
func Build(ctx context.Context, dir string, without ...string) (string, error) {
	for _, tool := range []string{"cc", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%w, %q is not in PATH", ErrNoCompiler, tool)
		}
	}
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", headerModule).Output()
	if err != nil {
		return "", fmt.Errorf("finding nvml.h in module %s, %w", headerModule, err)
	}
	file := filepath.Join(dir, "nvml.c")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return "", fmt.Errorf("writing the fake nvml source, %w", err)
	}
	lib := filepath.Join(dir, "libnvidia-ml.so.1")
	args := []string{"-shared", "-fPIC", "-O1", "-g", "-Wall", "-Werror", "-Wno-deprecated-declarations", "-pthread",
		"-Wl,-soname,libnvidia-ml.so.1", "-I", filepath.Join(strings.TrimSpace(string(module)), "pkg", "nvml"), "-o", lib, file}
	for _, function := range without {
		args = append(args, "-DNO_"+function)
	}
	if out, err := exec.CommandContext(ctx, "cc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the fake nvml library, %w: %s", err, out)
	}
	return lib, nil
}
