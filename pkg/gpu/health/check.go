package health

import "slices"

// Check names one thing that is verified. It is the key in policies and reports.
type Check string

// The checks, in the order in which their faults are told.
const (
	CheckBootID        Check = "boot-id"
	CheckDriver        Check = "driver"
	CheckDriverVersion Check = "driver-version"
	CheckCUDAVersion   Check = "cuda-version"
	CheckGPUCount      Check = "gpu-count"
	CheckGPUModel      Check = "gpu-model"
	CheckGPULost       Check = "gpu-lost"
	CheckDeviceNodes   Check = "device-nodes"
	CheckMIG           Check = "mig"
	CheckECC           Check = "ecc"
	CheckRowRemap      Check = "row-remap"
	CheckInfoROM       Check = "inforom"
	CheckNVLink        Check = "nvlink"
	CheckFabric        Check = "fabric"
	CheckPCIe          Check = "pcie"
	CheckThrottle      Check = "throttle"
	CheckRecovery      Check = "recovery-action"
	CheckPersistence   Check = "persistence"
	CheckXID           Check = "xid"
)

// Severity says what a fault does to the node.
type Severity string

const (
	// Fatal faults fence the node: it is not ready for work.
	Fatal Severity = "Fatal"
	// Warning faults are told and change nothing else.
	Warning Severity = "Warning"
)

// Action is what is known to cure a fault; a hint, never an order.
type Action string

// The actions, weakest first.
const (
	ActionNone    Action = "None"
	ActionReset   Action = "Reset"
	ActionReboot  Action = "Reboot"
	ActionReplace Action = "Replace"
)

// rank orders actions from weakest to strongest; unknown actions rank lowest.
func (a Action) rank() int {
	return slices.Index([]Action{ActionNone, ActionReset, ActionReboot, ActionReplace}, a)
}

// Reason names one kind of fault, in the spelling that node conditions use.
type Reason string

// The reasons that are not faults: they say why a condition is as it is.
const (
	// ReasonVerified is the reason of a node without fatal faults.
	ReasonVerified Reason = "Verified"
	// ReasonNotChecked is the reason before the first sample.
	ReasonNotChecked Reason = "NotChecked"
)

// The reasons of faults.
const (
	BootIDUnknown         Reason = "BootIDUnknown"
	DriverNotLoaded       Reason = "DriverNotLoaded"
	LibraryMissing        Reason = "LibraryMissing"
	DriverLibraryMismatch Reason = "DriverLibraryMismatch"
	DriverError           Reason = "DriverError"
	DriverTooOld          Reason = "DriverTooOld"
	CUDATooOld            Reason = "CUDATooOld"
	NoGPUs                Reason = "NoGPUs"
	GPUCountLow           Reason = "GPUCountLow"
	GPUCountHigh          Reason = "GPUCountHigh"
	GPUModelMismatch      Reason = "GPUModelMismatch"
	GPULost               Reason = "GPULost"
	DeviceNodesMissing    Reason = "DeviceNodesMissing"
	MIGModePending        Reason = "MIGModePending"
	ECCThresholdExceeded  Reason = "ECCThresholdExceeded"
	ECCUncorrectable      Reason = "ECCUncorrectable"
	ECCModePending        Reason = "ECCModePending"
	RowRemapFailed        Reason = "RowRemapFailed"
	RowRemapPending       Reason = "RowRemapPending"
	PageRetirementPending Reason = "PageRetirementPending"
	RepairPending         Reason = "RepairPending"
	InfoROMCorrupt        Reason = "InfoROMCorrupt"
	NVLinkDown            Reason = "NVLinkDown"
	FabricNotReady        Reason = "FabricNotReady"
	FabricFailed          Reason = "FabricFailed"
	PCIeWidthReduced      Reason = "PCIeWidthReduced"
	HardwareThrottled     Reason = "HardwareThrottled"
	RecoveryNeedsReboot   Reason = "RecoveryNeedsReboot"
	RecoveryNeedsReset    Reason = "RecoveryNeedsReset"
	RecoveryNeedsDrain    Reason = "RecoveryNeedsDrain"
	PersistenceOff        Reason = "PersistenceOff"
	XIDNeedsReplacement   Reason = "XIDNeedsReplacement"
	XIDNeedsReboot        Reason = "XIDNeedsReboot"
	XIDNeedsReset         Reason = "XIDNeedsReset"
	XIDWarning            Reason = "XIDWarning"
	ProbeTimedOut         Reason = "ProbeTimedOut"
	ProbeFailed           Reason = "ProbeFailed"
)

// ReasonInfo documents one Reason.
type ReasonInfo struct {
	Reason Reason
	// Check owns the reason; empty where any check can have it.
	Check Check
	// Severity is the documented default; a Policy may override it per check.
	Severity Severity
	Action   Action
	// Boots marks what a booting node shows before it is done: until the node
	// was first verified in this boot, such a fault means "not yet", not "broken".
	Boots bool
	// Flaps marks what comes and goes: on a verified node it must persist for
	// Policy.Raise before it counts.
	Flaps bool
	// Means is one sentence of documentation.
	Means string
}

var reasons = []ReasonInfo{
	{BootIDUnknown, CheckBootID, Fatal, ActionNone, true, true, "The kernel's boot ID cannot be read."},
	{DriverNotLoaded, CheckDriver, Fatal, ActionReboot, true, false, "The NVIDIA kernel module is not loaded."},
	{LibraryMissing, CheckDriver, Fatal, ActionReboot, true, false, "The NVML library was not found or does not load."},
	{DriverLibraryMismatch, CheckDriver, Fatal, ActionReboot, false, false, "The library and the loaded kernel module differ in version."},
	{DriverError, CheckDriver, Fatal, ActionReboot, false, true, "NVML does not initialize, for any other reason."},
	{DriverTooOld, CheckDriverVersion, Fatal, ActionReplace, false, false, "The driver is older than the policy demands."},
	{CUDATooOld, CheckCUDAVersion, Fatal, ActionReplace, false, false, "The newest CUDA that the driver supports is older than demanded."},
	{NoGPUs, CheckGPUCount, Fatal, ActionReplace, true, false, "The driver works and shows no GPU."},
	{GPUCountLow, CheckGPUCount, Fatal, ActionReplace, true, false, "Fewer GPUs than demanded, or than the node had when it was ready in this boot."},
	{GPUCountHigh, CheckGPUCount, Warning, ActionNone, false, false, "More GPUs than demanded."},
	{GPUModelMismatch, CheckGPUModel, Fatal, ActionReplace, false, false, "A GPU is of another product than demanded."},
	{GPULost, CheckGPULost, Fatal, ActionReplace, false, false, "A GPU does not answer: it fell off the bus."},
	{DeviceNodesMissing, CheckDeviceNodes, Fatal, ActionReboot, true, false, "/dev/nvidiactl or a GPU's /dev/nvidiaN is missing."},
	{MIGModePending, CheckMIG, Fatal, ActionReset, true, false, "MIG mode changes at the next reset of the GPU."},
	{ECCThresholdExceeded, CheckECC, Fatal, ActionReplace, false, false, "SRAM errors passed the driver's limit."},
	{ECCUncorrectable, CheckECC, Warning, ActionNone, false, false, "Uncorrectable memory errors since the driver was loaded."},
	{ECCModePending, CheckECC, Warning, ActionReset, false, false, "ECC mode changes at the next reset of the GPU."},
	{RowRemapFailed, CheckRowRemap, Fatal, ActionReplace, false, false, "Remapping of a memory row failed."},
	{RowRemapPending, CheckRowRemap, Warning, ActionReset, false, false, "A memory row is remapped at the next reset."},
	{PageRetirementPending, CheckRowRemap, Warning, ActionReset, false, false, "A memory page is retired at the next reset."},
	{RepairPending, CheckRowRemap, Warning, ActionReset, false, false, "A memory channel or TPC is repaired at the next reset."},
	{InfoROMCorrupt, CheckInfoROM, Warning, ActionReplace, false, false, "The checksum of the InfoROM is wrong."},
	{NVLinkDown, CheckNVLink, Fatal, ActionReplace, false, true, "Fewer active NVLinks than another GPU of the product on this node."},
	{FabricNotReady, CheckFabric, Fatal, ActionReboot, true, true, "Registration with the NVLink fabric has not completed."},
	{FabricFailed, CheckFabric, Fatal, ActionReboot, false, false, "Registration with the NVLink fabric completed with an error."},
	{PCIeWidthReduced, CheckPCIe, Warning, ActionReboot, false, true, "PCIe runs on fewer lanes than GPU and slot have."},
	{HardwareThrottled, CheckThrottle, Warning, ActionNone, false, true, "Hardware slowdown, thermal slowdown or power brake."},
	{RecoveryNeedsReboot, CheckRecovery, Fatal, ActionReboot, false, false, "The driver asks for a reboot."},
	{RecoveryNeedsReset, CheckRecovery, Fatal, ActionReset, false, false, "The driver asks for a reset of the GPU."},
	{RecoveryNeedsDrain, CheckRecovery, Warning, ActionNone, false, false, "The driver asks for another recovery action, such as a drain of peers."},
	{PersistenceOff, CheckPersistence, Warning, ActionNone, false, false, "Persistence mode is off."},
	{XIDNeedsReplacement, CheckXID, Fatal, ActionReplace, false, false, "An XID error of class Replace."},
	{XIDNeedsReboot, CheckXID, Fatal, ActionReboot, false, false, "An XID error of class Reboot."},
	{XIDNeedsReset, CheckXID, Fatal, ActionReset, false, false, "An XID error of class Reset."},
	{XIDWarning, CheckXID, Warning, ActionNone, false, false, "An XID error of class Warn."},
	{ProbeTimedOut, "", Fatal, ActionReboot, false, true, "A call of NVML did not return before its deadline."},
	{ProbeFailed, "", Warning, ActionNone, false, true, "A call of NVML failed with an error that has no reason of its own."},
}

// CheckInfo documents one Check.
type CheckInfo struct {
	Check Check
	// Hang is the severity of a probe of this check that does not answer.
	Hang Severity
	// Core checks fence the node when their probe fails with an error that has
	// no reason of its own; without their facts nothing is verified.
	Core bool
	// PerGPU checks are probed once for each GPU, the others once for the node.
	PerGPU bool
}

var checks = []CheckInfo{
	{CheckBootID, Fatal, true, false},
	{CheckDriver, Fatal, true, false},
	{CheckDriverVersion, Fatal, true, false},
	{CheckCUDAVersion, Fatal, true, false},
	{CheckGPUCount, Fatal, true, false},
	{CheckGPUModel, Fatal, true, true},
	{CheckGPULost, Fatal, true, true},
	{CheckDeviceNodes, Fatal, true, false},
	{CheckMIG, Fatal, true, true},
	{CheckECC, Fatal, false, true},
	{CheckRowRemap, Fatal, false, true},
	{CheckInfoROM, Warning, false, true},
	{CheckNVLink, Fatal, false, true},
	{CheckFabric, Fatal, false, true},
	{CheckPCIe, Warning, false, true},
	{CheckThrottle, Warning, false, true},
	{CheckRecovery, Fatal, false, true},
	{CheckPersistence, Warning, false, true},
	{CheckXID, Warning, false, false},
}

// Checks returns all checks in the order in which their faults are told. The
// caller owns the slice.
func Checks() []CheckInfo { return slices.Clone(checks) }

// Reasons returns the documented list of faults in the order in which they are
// told. The caller owns the slice.
func Reasons() []ReasonInfo { return slices.Clone(reasons) }

func checkInfo(c Check) (CheckInfo, bool) {
	i := slices.IndexFunc(checks, func(ci CheckInfo) bool { return ci.Check == c })
	if i < 0 {
		return CheckInfo{}, false
	}
	return checks[i], true
}

func checkRank(c Check) int {
	return slices.IndexFunc(checks, func(ci CheckInfo) bool { return ci.Check == c })
}

func reasonRank(r Reason) int {
	return slices.IndexFunc(reasons, func(ri ReasonInfo) bool { return ri.Reason == r })
}

// reasonInfo is the zero ReasonInfo for a reason that is not documented.
func reasonInfo(r Reason) ReasonInfo {
	i := reasonRank(r)
	if i < 0 {
		return ReasonInfo{}
	}
	return reasons[i]
}
