package health_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	. "github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// told is the part of a verdict that the table compares.
type told struct {
	State    State
	Reason   Reason
	Action   Action
	Findings []string
}

func tell(v Verdict) told {
	out := told{State: v.State, Reason: v.Reason, Action: v.Action}
	for _, f := range v.Findings {
		out.Findings = append(out.Findings, string(f.Severity)+" "+string(f.Reason)+" "+f.String())
	}
	return out
}

func TestJudgeBeforeVerification(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Sample)
		policy Policy
		want   told
	}{
		"a healthy node is ready": {want: told{State: Ready, Reason: ReasonVerified, Action: ActionNone}},
		"a driver that is not loaded yet is a start": {
			change: func(s *Sample) { s.Driver, s.GPUs = DriverAbsent, nil },
			want:   told{Starting, DriverNotLoaded, ActionReboot, []string{"Fatal DriverNotLoaded the NVIDIA kernel module is not loaded"}},
		},
		"a missing library is a start": {
			change: func(s *Sample) { s.Driver, s.GPUs, s.DriverDetail = DriverNoLibrary, nil, "dlopen" },
			want:   told{Starting, LibraryMissing, ActionReboot, []string{"Fatal LibraryMissing the NVML library was not found, dlopen"}},
		},
		"a mismatch of driver and library is a fault at once": {
			change: func(s *Sample) { s.Driver, s.GPUs = DriverMismatched, nil },
			want:   told{Unhealthy, DriverLibraryMismatch, ActionReboot, []string{"Fatal DriverLibraryMismatch driver and library differ in version"}},
		},
		"no GPU is a start": {
			change: func(s *Sample) { s.GPUs = nil },
			want:   told{Starting, NoGPUs, ActionReplace, []string{"Fatal NoGPUs the driver shows no GPU"}},
		},
		"fewer GPUs than demanded is a start": {
			policy: Policy{GPUs: 3},
			want:   told{Starting, GPUCountLow, ActionReplace, []string{"Fatal GPUCountLow 2 of 3 GPUs are there"}},
		},
		"more GPUs than demanded is a warning": {
			policy: Policy{GPUs: 1},
			want:   told{Ready, ReasonVerified, ActionNone, []string{"Warning GPUCountHigh 2 GPUs are there, 1 are expected"}},
		},
		"a lost GPU is a fault and the rest of what it says is ignored": {
			change: func(s *Sample) { s.GPUs[1].Lost, s.GPUs[1].Recovery = true, ptr(2) },
			want:   told{Unhealthy, GPULost, ActionReplace, []string{"Fatal GPULost GPU 1: lost, the GPU does not answer"}},
		},
		"an old driver and an old CUDA are faults": {
			policy: Policy{MinDriver: "560", MinCUDA: "12.6"},
			want: told{Unhealthy, DriverTooOld, ActionReplace, []string{
				`Fatal DriverTooOld driver "550.54.15" is older than 560`, `Fatal CUDATooOld CUDA "12.4" is older than 12.6`}},
		},
		"another product is a fault, a dash for a blank is none": {
			change: func(s *Sample) { s.GPUs[0].Identity.Product = "Tesla T4" },
			policy: Policy{Product: "NVIDIA-H100-80GB-HBM3"},
			want:   told{Unhealthy, GPUModelMismatch, ActionReplace, []string{`Fatal GPUModelMismatch GPU 0: is "Tesla T4", "NVIDIA-H100-80GB-HBM3" is expected`}},
		},
		"device nodes that are missing are a start": {
			change: func(s *Sample) { s.MissingDeviceNodes = []string{"/dev/nvidia0", "/dev/nvidiactl"} },
			want:   told{Starting, DeviceNodesMissing, ActionReboot, []string{"Fatal DeviceNodesMissing /dev/nvidia0, /dev/nvidiactl missing"}},
		},
		"a MIG mode that waits for a reset is a start": {
			change: func(s *Sample) { s.GPUs[0].MIG.Pending = true },
			want:   told{Starting, MIGModePending, ActionReset, []string{"Fatal MIGModePending GPU 0: MIG mode changes from off to on at the next reset"}},
		},
		"memory faults have the severities of the table": {
			change: func(s *Sample) {
				s.GPUs[0].ECC = &ECC{Enabled: true, Uncorrectable: 3, SRAMThreshold: true}
				s.GPUs[0].Rows = &Rows{RemapFailed: true, RemapPending: true, PagesPending: true, RepairPending: true}
				s.GPUs[0].InfoROMValid = ptr(false)
			},
			want: told{Unhealthy, ECCThresholdExceeded, ActionReplace, []string{
				"Fatal ECCThresholdExceeded GPU 0: SRAM errors passed the driver's limit",
				"Fatal RowRemapFailed GPU 0: remapping of a memory row failed",
				"Warning ECCUncorrectable GPU 0: uncorrectable memory errors since the driver was loaded",
				"Warning ECCModePending GPU 0: ECC changes from on to off at the next reset",
				"Warning RowRemapPending GPU 0: a memory row is remapped at the next reset",
				"Warning PageRetirementPending GPU 0: a memory page is retired at the next reset",
				"Warning RepairPending GPU 0: a channel or TPC is repaired at the next reset",
				"Warning InfoROMCorrupt GPU 0: the InfoROM is corrupt"}},
		},
		"fewer links than its like is a fault": {
			change: func(s *Sample) { s.GPUs[1].NVLink.Active = 17 },
			want:   told{Unhealthy, NVLinkDown, ActionReplace, []string{"Fatal NVLinkDown GPU 1: 17 NVLinks are active, others of its kind have 18"}},
		},
		"links and fabric of a partitioned GPU do not count": {
			change: func(s *Sample) {
				s.GPUs[1].MIG = &MIG{Enabled: true, Pending: true}
				s.GPUs[1].NVLink.Active, s.GPUs[1].Fabric.State = 0, FabricInProgress
			},
			want: told{State: Ready, Reason: ReasonVerified, Action: ActionNone},
		},
		"a fabric in progress is a start, a failed one a fault": {
			change: func(s *Sample) {
				s.GPUs[0].Fabric.State = FabricInProgress
				s.GPUs[1].Fabric.Status = 999
			},
			want: told{Unhealthy, FabricNotReady, ActionReboot, []string{
				"Fatal FabricNotReady GPU 0: registration with the NVLink fabric is not complete",
				"Fatal FabricFailed GPU 1: registration with the NVLink fabric ended with NVML code 999"}},
		},
		"a narrow link, throttling and persistence are warnings": {
			change: func(s *Sample) {
				s.GPUs[0].PCIe.Width, s.GPUs[0].Throttle, s.GPUs[0].Persistence = 8, ptr(uint64(0x48)), ptr(false)
			},
			want: told{Ready, ReasonVerified, ActionNone, []string{
				"Warning PCIeWidthReduced GPU 0: PCIe runs on 8 of 16 lanes",
				"Warning HardwareThrottled GPU 0: hardware slows the GPU down (slowdown, thermal)",
				"Warning PersistenceOff GPU 0: persistence mode is off, the driver unloads when idle"}},
		},
		"recovery actions are told apart and the strongest is the verdict's": {
			change: func(s *Sample) { s.GPUs[0].Recovery, s.GPUs[1].Recovery = ptr(1), ptr(2) },
			want: told{Unhealthy, RecoveryNeedsReboot, ActionReboot, []string{
				"Fatal RecoveryNeedsReboot GPU 1: the driver asks for a reboot (action 2)",
				"Fatal RecoveryNeedsReset GPU 0: the driver asks for a GPU reset (action 1)"}},
		},
		"facts that are not there are skipped": {
			change: func(s *Sample) { s.GPUs = []GPU{{Index: 0}} },
			want:   told{State: Ready, Reason: ReasonVerified, Action: ActionNone},
		},
		"probes that hang or fail weigh as their check does": {
			change: func(s *Sample) {
				s.Probes = []Probe{
					{CheckECC, 0, TimedOut, "after 2s"}, {CheckPCIe, 0, TimedOut, ""}, {CheckMIG, 1, Errored, "unknown error"},
					{CheckNVLink, 1, Errored, "unknown error"}, {CheckFabric, 1, Unsupported, ""}, {"nonsense", 0, Errored, ""}}
			},
			want: told{Unhealthy, ProbeTimedOut, ActionReboot, []string{
				"Fatal ProbeFailed GPU 1: probe mig failed, unknown error",
				"Fatal ProbeTimedOut GPU 0: probe ecc did not answer in time, after 2s",
				"Warning ProbeFailed GPU 1: probe nvlink failed, unknown error",
				"Warning ProbeTimedOut GPU 0: probe pcie did not answer in time"}},
		},
		"a count that hangs is told once": {
			change: func(s *Sample) { s.GPUs, s.Probes = nil, []Probe{{CheckGPUCount, -1, TimedOut, ""}} },
			want:   told{Unhealthy, ProbeTimedOut, ActionReboot, []string{"Fatal ProbeTimedOut probe gpu-count did not answer in time"}},
		},
		"a check that is off is not judged": {
			change: func(s *Sample) { s.GPUs[1].Lost = true },
			policy: Policy{Checks: map[Check]CheckPolicy{CheckGPULost: {Disabled: true}}},
			want:   told{State: Ready, Reason: ReasonVerified, Action: ActionNone},
		},
		"a severity of the policy wins": {
			change: func(s *Sample) { s.GPUs[0].Persistence = ptr(false) },
			policy: Policy{Checks: map[Check]CheckPolicy{CheckPersistence: {Severity: Fatal}}},
			want:   told{Unhealthy, PersistenceOff, ActionNone, []string{"Fatal PersistenceOff GPU 0: persistence mode is off, the driver unloads when idle"}},
		},
		"XID errors are classed by the table": {
			change: func(s *Sample) {
				s.XIDs = []XIDEvent{xid(31, 0, start), xid(79, 1, start), xid(48, 0, start), xid(48, 0, start), xid(162, 0, start), xid(7777, -1, start)}
				s.XIDs = append(s.XIDs, XIDEvent{Code: 95, GPU: 0, GI: 5, At: start})
			},
			want: told{Unhealthy, XIDNeedsReplacement, ActionReplace, []string{
				"Fatal XIDNeedsReplacement GPU 1: XID 79 (GPU has fallen off the bus)",
				"Fatal XIDNeedsReboot GPU 0: XID 48 (Double-bit ECC error)",
				"Fatal XIDNeedsReboot GPU 0 instance 5: XID 95 (Uncontained memory error)",
				"Fatal XIDNeedsReset GPU 0: XID 162",
				"Warning XIDWarning XID 7777"}},
		},
		"a row of the policy wins over the table": {
			change: func(s *Sample) { s.XIDs = []XIDEvent{xid(31, 0, start), xid(79, 1, start)} },
			policy: Policy{XIDs: []XIDPolicy{{Code: 79, Class: XIDApplication}, {Code: 31, Class: XIDWarn}}},
			want:   told{Ready, ReasonVerified, ActionNone, []string{"Warning XIDWarning GPU 0: XID 31 (GPU memory page fault)"}},
		},
		"an unknown boot ID is a start": {
			change: func(s *Sample) { s.BootID = "" },
			want:   told{Starting, BootIDUnknown, ActionNone, []string{"Fatal BootIDUnknown the kernel's boot ID could not be read"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := sample(2)
			if tc.change != nil {
				tc.change(&s)
			}
			v, _ := Judge(s, tc.policy, Memory{}, start)
			if diff := cmp.Diff(tc.want, tell(v)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

// step is one sample of a timeline.
type step struct {
	after  time.Duration
	change func(*Sample)
	state  State
	reason Reason
	// since is when the state is said to have changed.
	since time.Duration
}

func TestJudgeOverTime(t *testing.T) {
	lost := func(s *Sample) { s.GPUs[1].Lost = true }
	noDriver := func(s *Sample) { s.Driver, s.GPUs = DriverAbsent, nil }
	hang := func(s *Sample) { s.Probes = []Probe{{CheckECC, 0, TimedOut, ""}} }
	rebooted := func(s *Sample) { s.BootID = "another" }
	for name, steps := range map[string][]step{
		"a late driver is a start, then ready": {
			{0, noDriver, Starting, DriverNotLoaded, 0},
			{time.Minute, noDriver, Starting, DriverNotLoaded, 0},
			{2 * time.Minute, nil, Ready, ReasonVerified, 2 * time.Minute},
		},
		"a driver that goes after verification is a fault, and is forgotten after the hold": {
			{0, nil, Ready, ReasonVerified, 0},
			{time.Minute, noDriver, Unhealthy, DriverNotLoaded, time.Minute},
			{2 * time.Minute, nil, Unhealthy, DriverNotLoaded, time.Minute},
			{5*time.Minute + 59*time.Second, nil, Unhealthy, DriverNotLoaded, time.Minute},
			{6 * time.Minute, nil, Ready, ReasonVerified, 6 * time.Minute},
		},
		"alternating reasons keep the time of the change": {
			{0, nil, Ready, ReasonVerified, 0},
			{time.Minute, lost, Unhealthy, GPULost, time.Minute},
			{2 * time.Minute, func(s *Sample) { s.XIDs = []XIDEvent{xid(48, 0, start)} }, Unhealthy, GPULost, time.Minute},
			{7 * time.Minute, nil, Unhealthy, XIDNeedsReboot, time.Minute},
		},
		"a flapping fault stays one fault": {
			{0, nil, Ready, ReasonVerified, 0},
			{time.Minute, lost, Unhealthy, GPULost, time.Minute},
			{4 * time.Minute, nil, Unhealthy, GPULost, time.Minute},
			{5 * time.Minute, lost, Unhealthy, GPULost, time.Minute},
			{9 * time.Minute, nil, Unhealthy, GPULost, time.Minute},
			{11 * time.Minute, nil, Ready, ReasonVerified, 11 * time.Minute},
		},
		"one slow answer does not fence": {
			{0, nil, Ready, ReasonVerified, 0},
			{time.Minute, hang, Ready, ReasonVerified, 0},
			{90 * time.Second, nil, Ready, ReasonVerified, 0},
			{2 * time.Minute, hang, Ready, ReasonVerified, 0},
			{3 * time.Minute, hang, Unhealthy, ProbeTimedOut, 3 * time.Minute},
		},
		"an XID stays until the boot changes": {
			{0, func(s *Sample) { s.XIDs = []XIDEvent{xid(48, 0, start)} }, Unhealthy, XIDNeedsReboot, 0},
			{48 * time.Hour, nil, Unhealthy, XIDNeedsReboot, 0},
			{48*time.Hour + time.Minute, rebooted, Ready, ReasonVerified, 48*time.Hour + time.Minute},
		},
		"a reboot closes until verified again": {
			{0, nil, Ready, ReasonVerified, 0},
			{time.Minute, func(s *Sample) { rebooted(s); noDriver(s) }, Starting, DriverNotLoaded, time.Minute},
			{2 * time.Minute, rebooted, Ready, ReasonVerified, 2 * time.Minute},
		},
		"an unreadable boot ID is no reboot": {
			{0, func(s *Sample) { s.XIDs = []XIDEvent{xid(48, 0, start)} }, Unhealthy, XIDNeedsReboot, 0},
			{time.Minute, func(s *Sample) { s.BootID = "" }, Unhealthy, XIDNeedsReboot, 0},
		},
		"a GPU that vanishes from the count is missed": {
			{0, nil, Ready, ReasonVerified, 0},
			{time.Minute, func(s *Sample) { s.GPUs = s.GPUs[:1] }, Unhealthy, GPUCountLow, time.Minute},
		},
		"GPUs that appear one by one are a start where the count is demanded": {
			{0, func(s *Sample) { s.GPUs = nil }, Starting, NoGPUs, 0},
			{time.Minute, func(s *Sample) { s.GPUs = s.GPUs[:1] }, Starting, GPUCountLow, 0},
			{2 * time.Minute, nil, Ready, ReasonVerified, 2 * time.Minute},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var m Memory
			p := Policy{GPUs: 2}
			for i, st := range steps {
				s := sample(2)
				if st.change != nil {
					st.change(&s)
				}
				var v Verdict
				v, m = Judge(s, p, m, start.Add(st.after))
				want := []any{st.state, st.reason, st.since}
				if diff := cmp.Diff(want, []any{v.State, v.Reason, v.Since.Sub(start)}); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

func TestWarnXIDsExpire(t *testing.T) {
	s := sample(1)
	s.XIDs = []XIDEvent{xid(7777, 0, start)}
	_, m := Judge(s, Policy{}, Memory{}, start)
	s.XIDs = nil
	v, m := Judge(s, Policy{}, m, start.Add(59*time.Minute))
	if len(v.Findings) != 1 {
		t.Errorf("before an hour: %v", v.Findings)
	}
	if v, _ = Judge(s, Policy{}, m, start.Add(time.Hour)); len(v.Findings) != 0 {
		t.Errorf("after an hour: %v", v.Findings)
	}
}

func TestXIDMemoryIsBoundedAndKeepsTheWorst(t *testing.T) {
	s := sample(1)
	for code := 1000; code < 1200; code++ {
		s.XIDs = append(s.XIDs, xid(code, 0, start))
	}
	s.XIDs = append(s.XIDs, xid(79, 0, start))
	v, m := Judge(s, Policy{}, Memory{}, start)
	if len(m.XIDs) != 64 || m.XIDs[0].Code != 79 {
		t.Errorf("%d records, the first of XID %d; want 64 with 79 first", len(m.XIDs), m.XIDs[0].Code)
	}
	if v.State != Unhealthy {
		t.Errorf("state %s", v.State)
	}
}

func TestAgentRestartForgetsNothing(t *testing.T) {
	s := sample(2)
	_, m := Judge(s, Policy{}, Memory{}, start)
	s.XIDs = []XIDEvent{xid(48, 1, start)}
	s.GPUs = s.GPUs[:1]
	v, m := Judge(s, Policy{}, m, start.Add(time.Minute))
	data, err := Encode(NewReport(s, v, m))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	s.XIDs = nil
	after, _ := Judge(s, Policy{}, r.Memory(start.Add(2*time.Minute)), start.Add(2*time.Minute))
	v.Since = v.Since.UTC()
	if diff := cmp.Diff(v, after); diff != "" {
		t.Errorf("verdict after the restart (-before +after):\n%s", diff)
	}
}

func TestDefaultXIDsAgreeWithTheirSources(t *testing.T) {
	// Typed in again from the sources, apart from the data file.
	aws := map[XIDClass][]int{
		XIDReboot:  {46, 48, 54, 62, 63, 95, 109, 110, 136, 140, 143, 155, 156, 158},
		XIDReplace: {64, 74, 79, 119, 120},
	}
	eks := []int{46, 48, 54, 62, 63, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 142, 143, 151, 155, 156, 158}
	for class, codes := range aws {
		for _, code := range codes {
			if got, _ := (Policy{}).XIDClassOf(code); got != class {
				t.Errorf("XID %d is %s, the AWS provider says %s", code, got, class)
			}
		}
	}
	for _, code := range eks {
		if got, _ := (Policy{}).XIDClassOf(code); got == XIDApplication || got == XIDWarn {
			t.Errorf("XID %d is %s, EKS calls it fatal", code, got)
		}
	}
	for _, code := range []int{13, 31, 43, 45, 68, 94} {
		if got, _ := (Policy{}).XIDClassOf(code); got != XIDApplication {
			t.Errorf("XID %d is %s, want the application's", code, got)
		}
	}
	last := 0
	for _, row := range DefaultXIDs() {
		if row.Code <= last {
			t.Errorf("XID %d repeats or is out of order", row.Code)
		}
		last = row.Code
	}
}

func TestPolicyNamesItsFaults(t *testing.T) {
	for name, tc := range map[string]struct{ yaml, want string }{
		"an unknown check":    {"checks: {gpus: {disabled: true}}", `checks: "gpus" is no check`},
		"an unknown severity": {"checks: {ecc: {severity: Loud}}", `checks.ecc.severity: "Loud" is neither Fatal nor Warning`},
		"too little time":     {"checks: {ecc: {timeout: 1ms}}", "checks.ecc.timeout: 1ms is not between 10ms and 5m0s"},
		"too much time":       {"checks: {driver: {timeout: 6m}}", "checks.driver.timeout: 6m0s is not between 10ms and 5m0s"},
		"time for no call":    {"checks: {xid: {timeout: 5s}}", `checks.xid.timeout: this check makes no call of its own, leave timeout out or set that of "gpu-count"`},
		"an unknown field":    {"xid: []", "field xid not found"},
		"an unknown class":    {"xids: [{code: 3, class: Bad}]", `xids[0].class: "Bad" is no class`},
		"a code twice":        {"xids: [{code: 3, class: Warn}, {code: 3, class: Warn}]", "xids[1].code: 3 is there twice"},
		"a code of zero":      {"xids: [{code: 0, class: Warn}]", "xids[0].code: 0 is not between 1 and"},
		"a bad version":       {"minDriver: R550", `minDriver: version "R550" is not of the form`},
		"a negative hold":     {"raise: -1s", "raise: -1s is not between"},
		"too many GPUs":       {"gpus: 1000", "gpus: 1000 is not between 0 and 64"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePolicy([]byte(tc.yaml))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
	p, err := ParsePolicy([]byte("checks: {ecc: {disabled: true}, mig: {timeout: 4s}}\nxids: [{code: 3, class: Reboot}]\nminDriver: '550'\nraise: 30s\n"))
	want := Policy{Checks: map[Check]CheckPolicy{CheckECC: {Disabled: true}, CheckMIG: {Timeout: 4 * time.Second}}, XIDs: []XIDPolicy{{Code: 3, Class: XIDReboot}}, MinDriver: "550", Raise: 30 * time.Second}
	if diff := cmp.Diff(want, p); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	if _, err := ParsePolicy(nil); err != nil {
		t.Errorf("empty policy: %v", err)
	}
}
