package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// OSHost reads the machine's own files.
type OSHost struct {
	// BootIDPath, ProcRoot and DevRoot are for containers that see the host's
	// files elsewhere; empty means the usual places.
	BootIDPath, ProcRoot, DevRoot string
}

var _ Host = OSHost{}

// BootID implements Host.
func (h OSHost) BootID() (string, error) {
	path := h.BootIDPath
	if path == "" {
		path = filepath.Join(orElse(h.ProcRoot, "/proc"), "sys/kernel/random/boot_id")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the boot ID, %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// moduleVersion finds the version in lines such as
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ...".
var moduleVersion = regexp.MustCompile(`\s(\d+\.\d+(?:\.\d+)?)\s`)

// KernelModule implements Host.
func (h OSHost) KernelModule() string {
	data, err := os.ReadFile(filepath.Join(orElse(h.ProcRoot, "/proc"), "driver/nvidia/version"))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if m := moduleVersion.FindStringSubmatch(line + "\n"); m != nil {
		return m[1]
	}
	return ""
}

// MissingDeviceNodes implements Host. /dev/nvidia-uvm is not demanded: it is made
// on the first use of CUDA.
func (h OSHost) MissingDeviceNodes(minors []int) []string {
	names := []string{"nvidiactl"}
	for _, m := range minors {
		if m >= 0 {
			names = append(names, "nvidia"+strconv.Itoa(m))
		}
	}
	var missing []string
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(orElse(h.DevRoot, "/dev"), name)); err != nil {
			missing = append(missing, "/dev/"+name)
		}
	}
	slices.Sort(missing)
	return missing
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
