package health

import "time"

// DriverState says how far the driver and its library came up.
type DriverState string

const (
	// DriverReady means that the library was initialized.
	DriverReady DriverState = "Ready"
	// DriverAbsent means that the kernel module is not loaded.
	DriverAbsent DriverState = "NotLoaded"
	// DriverNoLibrary means that the NVML library was not found.
	DriverNoLibrary DriverState = "LibraryMissing"
	// DriverMismatched means that library and kernel module differ in version.
	DriverMismatched DriverState = "Mismatch"
	// DriverBroken means that initialization gave any other error.
	DriverBroken DriverState = "Error"
	// DriverUnknown means that initialization gave no answer in time.
	DriverUnknown DriverState = ""
)

// Sample is what one look at a node observed. A nil fact was not observed; the
// Probes say why where the reason was not lack of support.
type Sample struct {
	// BootID is the kernel's boot ID; empty when it could not be read.
	BootID string
	Driver DriverState
	// DriverDetail is what was said about a driver that is not ready.
	DriverDetail string
	// DriverVersion and LibraryVersion are dotted numbers such as 550.54.15;
	// empty when unknown.
	DriverVersion, LibraryVersion string
	// CUDAVersion is the newest CUDA version that the driver supports, as 12.4.
	CUDAVersion string
	// GPUs are in index order. Only meaningful when Driver is DriverReady.
	GPUs []GPU
	// MissingDeviceNodes are device files that should be there, sorted.
	MissingDeviceNodes []string
	// XIDs are the events since the previous sample.
	XIDs []XIDEvent
	// Probes are the outcomes of probes that gave no fact.
	Probes []Probe
}

// GPU holds the facts about one GPU.
type GPU struct {
	Index    int
	Lost     bool
	Identity *Identity
	MIG      *MIG
	ECC      *ECC
	Rows     *Rows
	// InfoROMValid is the result of the InfoROM's checksum.
	InfoROMValid *bool
	NVLink       *NVLink
	Fabric       *Fabric
	PCIe         *PCIe
	// Throttle is NVML's bit mask of clocks event reasons.
	Throttle *uint64
	// Recovery is NVML's recovery action code.
	Recovery    *int
	Persistence *bool
}

// Identity says which GPU it is.
type Identity struct {
	UUID string
	// Product is NVML's device name, such as "NVIDIA H100 80GB HBM3".
	Product string
	// MemoryMiB is the total memory that NVML reports.
	MemoryMiB int
	// ComputeCapability is major.minor.
	ComputeCapability string
	// Minor is the N of /dev/nvidiaN; -1 when unknown.
	Minor int
}

// MIG is the partitioning of one GPU.
type MIG struct {
	Enabled bool
	// Pending is the mode after the next reset.
	Pending   bool
	Instances []MIGInstance
}

// MIGInstance is one GPU instance that work can use.
type MIGInstance struct {
	// Profile is the name as observed, such as "1g.10gb" or "1g.10gb+me".
	Profile string
	// Start and Size are the placement in memory slices; Start is -1 when the
	// driver did not tell.
	Start, Size int
	// ID is the GPU instance ID that XID events name.
	ID   int
	UUID string
}

// ECC holds error counts since the driver was loaded.
type ECC struct {
	Enabled, Pending bool
	Uncorrectable    uint64
	// SRAMThreshold says that the driver's limit of SRAM errors was passed.
	SRAMThreshold bool
}

// Rows is the state of memory repair.
type Rows struct {
	Correctable, Uncorrectable int
	RemapPending, RemapFailed  bool
	PagesPending               bool
	RepairPending              bool
}

// NVLink counts links. Total is how many links answered at all.
type NVLink struct{ Active, Total int }

// FabricState is NVML's state of the registration with the NVLink fabric.
type FabricState int

// The states, with NVML's numbers.
const (
	FabricNotSupported FabricState = 0
	FabricNotStarted   FabricState = 1
	FabricInProgress   FabricState = 2
	FabricCompleted    FabricState = 3
)

// Fabric is the registration with the NVLink fabric. Status is NVML's return
// code of a completed registration; zero is success.
type Fabric struct {
	State  FabricState
	Status int
}

// PCIe is the link width in lanes.
type PCIe struct{ Width, MaxWidth int }

// XIDEvent is one XID error.
type XIDEvent struct {
	Code int
	// GPU is the index, -1 when the event names no known GPU.
	GPU int
	// GI is the GPU instance ID, -1 when the event concerns the whole GPU.
	GI int
	At time.Time
}

// Outcome says how a probe ended that gave no fact.
type Outcome string

const (
	// Unsupported means the GPU or the library does not have it. Never a fault.
	Unsupported Outcome = "Unsupported"
	// TimedOut means the probe did not answer before its deadline.
	TimedOut Outcome = "TimedOut"
	// Errored means the probe answered with an error.
	Errored Outcome = "Error"
)

// Probe is the outcome of one probe that gave no fact. GPU is -1 for the node.
type Probe struct {
	Check   Check
	GPU     int
	Outcome Outcome
	Detail  string
}

// Merge takes over the facts that o observed.
func (g *GPU) Merge(o GPU) {
	g.Lost = g.Lost || o.Lost
	take(&g.Identity, o.Identity)
	take(&g.MIG, o.MIG)
	take(&g.ECC, o.ECC)
	take(&g.Rows, o.Rows)
	take(&g.InfoROMValid, o.InfoROMValid)
	take(&g.NVLink, o.NVLink)
	take(&g.Fabric, o.Fabric)
	take(&g.PCIe, o.PCIe)
	take(&g.Throttle, o.Throttle)
	take(&g.Recovery, o.Recovery)
	take(&g.Persistence, o.Persistence)
}

func take[T any](to **T, from *T) {
	if from != nil {
		*to = from
	}
}
