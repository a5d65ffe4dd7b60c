package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// MIGStrategy is how the device plugin and GFD show MIG devices.
type MIGStrategy string

// Strategies by NVIDIA's names. Under none, GFD writes no mig.strategy label;
// the GPU operator sets single unless told otherwise.
const (
	MIGStrategyNone   MIGStrategy = "none"
	MIGStrategySingle MIGStrategy = "single"
	MIGStrategyMixed  MIGStrategy = "mixed"
)

// Sharing strategies by GFD's names.
const (
	SharingNone        = "none"
	SharingTimeSlicing = "time-slicing"
	SharingMPS         = "mps"
)

// SharingState is what the labels need to know about sharing. The zero value is
// no sharing.
type SharingState struct {
	// Strategy is SharingTimeSlicing, SharingMPS, or SharingNone or empty.
	Strategy string
	// Replicas per GPU; sharing begins at 2.
	Replicas int
	// Renamed is true under renameByDefault, which drops the -SHARED suffix.
	Renamed bool
	// Resources that are shared; empty means nvidia.com/gpu alone.
	Resources []string
}

// covers tells whether the resource is shared.
func (s SharingState) covers(resource string) bool {
	if s.Replicas < 2 || s.Strategy == "" || s.Strategy == SharingNone {
		return false
	}
	return slices.Contains(s.Resources, resource) || len(s.Resources) == 0 && resource == wholeGPU
}

// MIGDevices are the equal MIG devices of a node.
type MIGDevices struct {
	// Profile by NVIDIA's name, such as "1g.10gb" or "1g.10gb+me".
	Profile string
	// Count over all GPUs of the node.
	Count int
	// MemoryMiB of one device by NVML; 0 is unknown and not predicted.
	MemoryMiB int
	// Attributes are the other figures that GFD writes per device, by GFD's
	// suffix ("multiprocessors", "slices.gi", "slices.ci", "engines.copy",
	// "engines.decoder", "engines.encoder", "engines.jpeg", "engines.ofa").
	// Those left out are not predicted.
	Attributes map[string]int
}

// resourceName is the profile as it stands in resource names and labels.
func (d MIGDevices) resourceName() string { return strings.ReplaceAll(d.Profile, "+", ".") }

// MIGState is the MIG side of a node. The zero value is a node without MIG under
// strategy none.
type MIGState struct {
	// Strategy of the cluster; empty means none.
	Strategy MIGStrategy
	// Devices by profile; empty when no GPU is in MIG mode.
	Devices []MIGDevices
	// WholeGPUs is how many GPUs of the node are not in MIG mode, where Devices
	// is not empty.
	WholeGPUs int
}

// enabled tells whether any GPU is in MIG mode.
func (m MIGState) enabled() bool { return len(m.Devices) > 0 }

// State is how the GPUs of a node are set up.
type State struct {
	Sharing SharingState
	MIG     MIGState
	// Operator is true where the GPU operator runs, which labels GPU nodes with
	// gpu.present beside GFD.
	Operator bool
}

// String names the profile and the count, such as "7 x 1g.10gb".
func (d MIGDevices) String() string { return fmt.Sprintf("%d x %s", d.Count, d.Profile) }
