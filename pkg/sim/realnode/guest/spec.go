package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Paths inside a machine.
const (
	// ProgramDir holds the programs that are bound into the machine.
	ProgramDir = "/machine/bin"
	// SharedDir is the directory that machine and host share, Spec.Shared on the host.
	SharedDir = "/run/machine"
	// ControlSocket is below SharedDir on both sides.
	ControlSocket = "control.sock"
	// ContainerdSocket is where containerd listens.
	ContainerdSocket = "/run/containerd/containerd.sock"

	bootIDFile  = "/run/boot_id"
	programName = "guest"
)

// Names under which the binary is called by others than the host program.
const (
	// RuntimeName is the OCI runtime of ordinary containers.
	RuntimeName = "machine-runtime"
	// NVIDIARuntimeName is that of RuntimeClass nvidia.
	NVIDIARuntimeName = "nvidia-container-runtime"
)

// Spec describes one boot of a machine. The host program writes it as a file.
type Spec struct {
	// Dir is the machine's directory on the host.
	Dir string `json:"dir"`
	// Hostname of the machine.
	Hostname string `json:"hostname"`
	// BootID is what the kernel of the machine would draw at boot.
	BootID string `json:"bootID"`
	// Programs are bound to ProgramDir, by name.
	Programs map[string]string `json:"programs"`
	// Addresses are IPv4 addresses of the machine.
	Addresses []string `json:"addresses"`
	// Forward maps TCP addresses on which the machine's init listens to Unix sockets of the
	// host: network namespaces part the first and not the second.
	Forward map[string]string `json:"forward"`
	// Services start in this order at boot.
	Services []Service `json:"services"`
}

// Service is a program that init keeps running.
type Service struct {
	Name string   `json:"name"`
	Args []string `json:"args"` // the first is the path of the program
	Env  []string `json:"env,omitempty"`
}

// Disk is where the machine's /var is on the host. It survives a reboot.
func (s Spec) Disk() string { return filepath.Join(s.Dir, "disk") }

// Shared is SharedDir on the host.
func (s Spec) Shared() string { return filepath.Join(s.Dir, "shared") }

// Logs is where the output of services goes on the host.
func (s Spec) Logs() string { return filepath.Join(s.Shared(), "logs") }

func (s Spec) root() string { return filepath.Join(s.Dir, "root") }

// Write writes the specification.
func (s Spec) Write(path string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the machine's specification, %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing the machine's specification, %w", err)
	}
	return nil
}

func readSpec(path string) (s Spec, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("reading the machine's specification, %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("reading the machine's specification, %w", err)
	}
	return s, nil
}
