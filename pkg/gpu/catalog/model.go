package catalog

import "fmt"

// Link is how the GPUs of a board or node reach each other.
type Link string

// Links, from none to the widest.
const (
	LinkNone     Link = ""
	LinkPCIe     Link = "pcie"
	LinkNVLink   Link = "nvlink"
	LinkNVSwitch Link = "nvswitch"
)

// Capability is a CUDA compute capability such as 8.9.
type Capability struct {
	Major, Minor int
}

// String prints the capability as NVIDIA does.
func (c Capability) String() string { return fmt.Sprintf("%d.%d", c.Major, c.Minor) }

// AtLeast tells whether c is the same as or newer than o.
func (c Capability) AtLeast(o Capability) bool {
	return c.Major > o.Major || c.Major == o.Major && c.Minor >= o.Minor
}

// Model is one GPU model.
type Model struct {
	// Key is the catalogue's name of the model, such as "a100-80gb".
	Key string
	// Product is the device name by NVML, such as "NVIDIA A100-SXM4-80GB".
	Product string
	// MemoryMiB is the total memory by NVML; 0 is unknown.
	MemoryMiB int
	// Architecture is NVIDIA's name of the generation, such as "Ampere".
	Architecture string
	// Compute is the CUDA compute capability.
	Compute Capability
	// MIG is the key of the model's geometry in pkg/gpu/mig; empty when the
	// model has no MIG.
	MIG string
	// VGPU is true for a virtual GPU, such as the slices of g6f.
	VGPU bool
	// Link is what the board is built for. A shape may offer less.
	Link Link
	// LinkGBps is the bidirectional bandwidth of Link per GPU; 0 is unknown.
	LinkGBps int
	// Mode is GFD's gpu.mode: "compute", "graphics", or empty when unknown.
	Mode string
	// Sources and Notes say where the figures come from.
	Sources, Notes string
}

// IsZero tells whether the model stands for no GPU.
func (m Model) IsZero() bool { return m.Key == "" }

// MIGCapable tells whether the model can be split by MIG.
func (m Model) MIGCapable() bool { return m.MIG != "" }

// GFDProduct is the product as GFD writes it into a label, such as
// "NVIDIA-A100-SXM4-80GB".
func (m Model) GFDProduct() string { return sanitize(m.Product) }
