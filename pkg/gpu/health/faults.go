package health

import (
	"fmt"
	"strings"
)

// NVML's bit mask of clocks event reasons: the bits that mean that hardware,
// not software, slows the GPU down (nvml.h, nvmlClocksEventReasonHw*).
const (
	throttleHWSlowdown   uint64 = 0x8
	throttleHWThermal    uint64 = 0x40
	throttleHWPowerBrake uint64 = 0x80
	throttleMask                = throttleHWSlowdown | throttleHWThermal | throttleHWPowerBrake
)

// maxTold bounds lists inside messages.
const maxTold = 8

// Finding is one fault.
type Finding struct {
	Check    Check
	Reason   Reason
	Severity Severity
	Action   Action
	// GPU is the index, -1 for the node.
	GPU int
	// GI is the GPU instance ID, -1 for the whole GPU.
	GI int
	// XID is the code of an XID fault, else 0, and Count how often it was seen.
	XID, Count int
	// Since is when the fault was first seen, in Unix seconds.
	Since int64
	// Message is one sentence for a person, without the GPU's index.
	Message string
}

// collector gathers the faults of one sample under one policy.
type collector struct {
	policy Policy
	// known is how many GPUs were there when the node was verified in this boot.
	known    int
	findings []Finding
}

func (c *collector) add(check Check, reason Reason, gpu int, format string, args ...any) {
	if !c.policy.Enabled(check) {
		return
	}
	info := reasonInfo(reason)
	severity := info.Severity
	if s := c.policy.Checks[check].Severity; s != "" {
		severity = s
	}
	c.findings = append(c.findings, Finding{
		Check: check, Reason: reason, Severity: severity, Action: info.Action,
		GPU: gpu, GI: -1, Message: fmt.Sprintf(format, args...),
	})
}

// faults lists what is wrong with a sample, XID events apart, in no order.
func faults(s Sample, p Policy, known int) []Finding {
	c := &collector{policy: p, known: known}
	c.bootID(s)
	c.driver(s)
	if s.Driver == DriverReady {
		c.versions(s)
		c.count(s)
		for _, g := range s.GPUs {
			c.gpu(g)
		}
		c.links(s.GPUs)
		if len(s.MissingDeviceNodes) > 0 {
			c.add(CheckDeviceNodes, DeviceNodesMissing, -1, "%s missing", told(s.MissingDeviceNodes))
		}
	}
	c.probes(s.Probes)
	return c.findings
}

func (c *collector) bootID(s Sample) {
	if s.BootID == "" {
		c.add(CheckBootID, BootIDUnknown, -1, "the kernel's boot ID could not be read")
	}
}

func (c *collector) driver(s Sample) {
	detail := s.DriverDetail
	if detail != "" {
		detail = ", " + detail
	}
	switch s.Driver {
	case DriverAbsent:
		c.add(CheckDriver, DriverNotLoaded, -1, "the NVIDIA kernel module is not loaded%s", detail)
	case DriverNoLibrary:
		c.add(CheckDriver, LibraryMissing, -1, "the NVML library was not found%s", detail)
	case DriverMismatched:
		c.add(CheckDriver, DriverLibraryMismatch, -1, "driver and library differ in version%s", detail)
	case DriverBroken:
		c.add(CheckDriver, DriverError, -1, "the driver does not initialize%s", detail)
	case DriverReady, DriverUnknown:
	}
}

func (c *collector) versions(s Sample) {
	if min := c.policy.MinDriver; min != "" && !atLeast(s.DriverVersion, min) {
		c.add(CheckDriverVersion, DriverTooOld, -1, "driver %q is older than %s", s.DriverVersion, min)
	}
	if min := c.policy.MinCUDA; min != "" && !atLeast(s.CUDAVersion, min) {
		c.add(CheckCUDAVersion, CUDATooOld, -1, "CUDA %q is older than %s", s.CUDAVersion, min)
	}
}

func (c *collector) count(s Sample) {
	n, want := len(s.GPUs), c.policy.GPUs
	for _, p := range s.Probes {
		if p.Check == CheckGPUCount {
			return // not counted: the probe tells it
		}
	}
	switch {
	case n == 0:
		c.add(CheckGPUCount, NoGPUs, -1, "the driver shows no GPU")
	case n < max(want, c.known):
		c.add(CheckGPUCount, GPUCountLow, -1, "%d of %d GPUs are there", n, max(want, c.known))
	case want > 0 && n > want:
		c.add(CheckGPUCount, GPUCountHigh, -1, "%d GPUs are there, %d are expected", n, want)
	}
}

func (c *collector) gpu(g GPU) {
	if g.Lost {
		// What a lost GPU says of itself means nothing.
		c.add(CheckGPULost, GPULost, g.Index, "lost, the GPU does not answer")
		return
	}
	if want := c.policy.Product; want != "" && g.Identity != nil && ProductName(g.Identity.Product) != ProductName(want) {
		c.add(CheckGPUModel, GPUModelMismatch, g.Index, "is %q, %q is expected", g.Identity.Product, want)
	}
	if g.MIG != nil && g.MIG.Enabled != g.MIG.Pending {
		c.add(CheckMIG, MIGModePending, g.Index, "MIG mode changes from %s to %s at the next reset", onOff(g.MIG.Enabled), onOff(g.MIG.Pending))
	}
	c.memory(g)
	c.fabric(g)
	c.link(g)
	c.recovery(g)
}

func (c *collector) when(holds bool, check Check, reason Reason, gpu int, format string, args ...any) {
	if holds {
		c.add(check, reason, gpu, format, args...)
	}
}

func (c *collector) memory(g GPU) {
	if e := g.ECC; e != nil {
		c.when(e.SRAMThreshold, CheckECC, ECCThresholdExceeded, g.Index, "SRAM errors passed the driver's limit")
		c.when(e.Uncorrectable > 0, CheckECC, ECCUncorrectable, g.Index, "uncorrectable memory errors since the driver was loaded")
		c.when(e.Enabled != e.Pending, CheckECC, ECCModePending, g.Index, "ECC changes from %s to %s at the next reset", onOff(e.Enabled), onOff(e.Pending))
	}
	if r := g.Rows; r != nil {
		c.when(r.RemapFailed, CheckRowRemap, RowRemapFailed, g.Index, "remapping of a memory row failed")
		c.when(r.RemapPending, CheckRowRemap, RowRemapPending, g.Index, "a memory row is remapped at the next reset")
		c.when(r.PagesPending, CheckRowRemap, PageRetirementPending, g.Index, "a memory page is retired at the next reset")
		c.when(r.RepairPending, CheckRowRemap, RepairPending, g.Index, "a channel or TPC is repaired at the next reset")
	}
	if g.InfoROMValid != nil && !*g.InfoROMValid {
		c.add(CheckInfoROM, InfoROMCorrupt, g.Index, "the InfoROM is corrupt")
	}
}

// fabric judges the NVLink fabric. A GPU in MIG mode uses no NVLink.
func (c *collector) fabric(g GPU) {
	if g.Fabric == nil || partitioned(g) {
		return
	}
	switch {
	case g.Fabric.State == FabricNotStarted || g.Fabric.State == FabricInProgress:
		c.add(CheckFabric, FabricNotReady, g.Index, "registration with the NVLink fabric is not complete")
	case g.Fabric.State == FabricCompleted && g.Fabric.Status != 0:
		c.add(CheckFabric, FabricFailed, g.Index, "registration with the NVLink fabric ended with NVML code %d", g.Fabric.Status)
	}
}

func (c *collector) link(g GPU) {
	if w := g.PCIe; w != nil && w.Width > 0 && w.Width < w.MaxWidth {
		c.add(CheckPCIe, PCIeWidthReduced, g.Index, "PCIe runs on %d of %d lanes", w.Width, w.MaxWidth)
	}
	if g.Throttle != nil && *g.Throttle&throttleMask != 0 {
		c.add(CheckThrottle, HardwareThrottled, g.Index, "hardware slows the GPU down (%s)", throttleNames(*g.Throttle))
	}
	if g.Persistence != nil && !*g.Persistence {
		c.add(CheckPersistence, PersistenceOff, g.Index, "persistence mode is off, the driver unloads when idle")
	}
}

// recovery maps NVML's recovery action (nvml.h, NVML_GPU_RECOVERY_ACTION_*).
func (c *collector) recovery(g GPU) {
	if g.Recovery == nil {
		return
	}
	switch *g.Recovery {
	case 0:
	case 1, 4, 6: // reset; drain and reset; bus reset
		c.add(CheckRecovery, RecoveryNeedsReset, g.Index, "the driver asks for a GPU reset (action %d)", *g.Recovery)
	case 2, 7: // node reboot; system reboot
		c.add(CheckRecovery, RecoveryNeedsReboot, g.Index, "the driver asks for a reboot (action %d)", *g.Recovery)
	default: // drain P2P; recover IMEX domain; what later drivers add
		c.add(CheckRecovery, RecoveryNeedsDrain, g.Index, "the driver asks for recovery action %d", *g.Recovery)
	}
}

// links holds each GPU's active links against the most that another GPU of the
// same product has: the driver does not say how many a board should have. GPUs
// in MIG mode are left out, they use no NVLink.
func (c *collector) links(gpus []GPU) {
	most := map[string]int{}
	for _, g := range gpus {
		if linked(g) {
			most[g.Identity.Product] = max(most[g.Identity.Product], g.NVLink.Active)
		}
	}
	for _, g := range gpus {
		if linked(g) && g.NVLink.Active < most[g.Identity.Product] {
			c.add(CheckNVLink, NVLinkDown, g.Index, "%d NVLinks are active, others of its kind have %d", g.NVLink.Active, most[g.Identity.Product])
		}
	}
}

func linked(g GPU) bool {
	return g.NVLink != nil && g.Identity != nil && !g.Lost && !partitioned(g)
}

func partitioned(g GPU) bool { return g.MIG != nil && g.MIG.Enabled }

func (c *collector) probes(probes []Probe) {
	for _, p := range probes {
		info, ok := checkInfo(p.Check)
		if !ok || p.Outcome == Unsupported {
			continue
		}
		reason, severity, verb := ProbeFailed, Warning, "failed"
		if p.Outcome == TimedOut {
			reason, severity, verb = ProbeTimedOut, info.Hang, "did not answer in time"
		} else if info.Core {
			severity = Fatal
		}
		before := len(c.findings)
		detail := p.Detail
		if detail != "" {
			detail = ", " + detail
		}
		c.add(p.Check, reason, p.GPU, "probe %s %s%s", p.Check, verb, detail)
		if len(c.findings) > before && c.policy.Checks[p.Check].Severity == "" {
			c.findings[before].Severity = severity
		}
	}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func throttleNames(mask uint64) string {
	var names []string
	for _, t := range []struct {
		bit  uint64
		name string
	}{{throttleHWSlowdown, "slowdown"}, {throttleHWThermal, "thermal"}, {throttleHWPowerBrake, "power brake"}} {
		if mask&t.bit != 0 {
			names = append(names, t.name)
		}
	}
	return strings.Join(names, ", ")
}

// told joins a bounded part of a list.
func told(list []string) string {
	if len(list) > maxTold {
		return strings.Join(list[:maxTold], ", ") + fmt.Sprintf(" and %d more", len(list)-maxTold)
	}
	return strings.Join(list, ", ")
}

// ProductName brings NVML's device names and GFD's label values to one spelling:
// GFD writes a dash for each blank.
func ProductName(s string) string { return strings.Join(strings.Fields(s), "-") }
