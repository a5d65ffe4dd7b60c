package agent_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
)

// deadline is waited for only by calls that hang; it is long enough that no other
// call misses it on a busy machine.
const deadline = time.Second

func sampled(t *testing.T, m nvml.Machine) (*nvml.Library, *agent.Sampler) {
	t.Helper()
	lib := nvml.NewLibrary(clock.RealClock{}, m)
	// Release whatever still hangs.
	t.Cleanup(func() { lib.Update(func(m *nvml.Machine) { m.Hang = nil }) })
	return lib, agent.NewSampler(lib, lib, clock.RealClock{}, agent.SamplerOptions{Deadline: deadline, StuckLimit: 6})
}

func probes(s health.Sample) []string {
	var out []string
	for _, p := range s.Probes {
		out = append(out, fmt.Sprintf("%s/%d %s", p.Check, p.GPU, p.Outcome))
	}
	return out
}

func TestSampleOfAHealthyMachineIsTheMachine(t *testing.T) {
	m := nvml.H100(8)
	_, s := sampled(t, m)
	got := s.Sample(context.Background(), health.Policy{})
	want := health.Sample{BootID: m.BootID, Driver: health.DriverReady, DriverVersion: "550.54.15", LibraryVersion: "12.550.54.15",
		CUDAVersion: "12.4", GPUs: m.GPUs}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sample (-want +got):\n%s", diff)
	}
}

func TestHangsAreFailedChecksAndBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		hang   []string
		driver health.DriverState
		probes []string
	}{
		"initialization":       {[]string{"init"}, health.DriverUnknown, []string{"driver/-1 TimedOut"}},
		"the count":            {[]string{"node"}, health.DriverUnknown, []string{"gpu-count/-1 TimedOut"}},
		"one check of a GPU":   {[]string{"ecc/1"}, health.DriverReady, []string{"ecc/1 TimedOut"}},
		"one check of each":    {[]string{"mig"}, health.DriverReady, []string{"mig/0 TimedOut", "mig/1 TimedOut", "mig/2 TimedOut", "mig/3 TimedOut"}},
		"a lost GPU's silence": {[]string{"gpu-model/2"}, health.DriverReady, []string{"gpu-model/2 TimedOut"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := nvml.H100(4)
			m.Hang = map[string]bool{}
			for _, h := range tc.hang {
				m.Hang[h] = true
			}
			lib, s := sampled(t, m)
			for round := range 3 { // later rounds do not try what hangs again
				began := time.Now()
				got := s.Sample(context.Background(), health.Policy{})
				if took := time.Since(began); took > 20*deadline {
					t.Errorf("round %d took %s", round, took)
				}
				if got.Driver != tc.driver {
					t.Errorf("round %d: driver %q, want %q", round, got.Driver, tc.driver)
				}
				for _, p := range tc.probes {
					if round == 0 && !slices.Contains(probes(got), p) {
						t.Errorf("round %d: %v, want %s in it", round, probes(got), p)
					}
				}
			}
			lib.Update(func(m *nvml.Machine) { m.Hang = nil })
			eventually(t, "recovery", func() bool {
				got := s.Sample(context.Background(), health.Policy{})
				return got.Driver == health.DriverReady && len(got.Probes) == 0 && len(got.GPUs) == 4
			}, func() {})
		})
	}
}

func TestAWedgedDriverIsLeftAlone(t *testing.T) {
	m := nvml.H100(8)
	m.Hang = map[string]bool{"gpu-model": true}
	_, s := sampled(t, m)
	s.Sample(context.Background(), health.Policy{})
	got := s.Sample(context.Background(), health.Policy{})
	// Whatever hangs, no further call is made and the judge says so.
	if got.Driver == health.DriverReady {
		t.Errorf("the driver is said to be ready: %v", probes(got))
	}
	v, _ := health.Judge(got, health.Policy{}, health.Memory{}, start)
	if v.State != health.Unhealthy || v.Reason != health.ProbeTimedOut {
		t.Errorf("%s %s", v.State, v.Reason)
	}
}

func TestErrorsOfOneGPUStayWithIt(t *testing.T) {
	m := nvml.H100(4)
	m.GPUs[1].Lost = true
	m.GPUs[2].Fabric = nil
	m.Errors = map[string]agent.Code{"inforom/3": agent.OtherError, "ecc/0": agent.ResetRequired}
	_, s := sampled(t, m)
	got := s.Sample(context.Background(), health.Policy{})
	if diff := cmp.Diff([]string{"fabric/2 Unsupported", "inforom/3 Error"}, probes(got)); diff != "" {
		t.Errorf("probes (-want +got):\n%s", diff)
	}
	if !got.GPUs[1].Lost || got.GPUs[0].Lost {
		t.Error("the wrong GPU is lost")
	}
	if got.GPUs[3].PCIe == nil {
		t.Error("an error ended the round of its GPU")
	}
}

func TestStatesOfTheDriver(t *testing.T) {
	for code, want := range map[agent.Code]health.DriverState{
		agent.DriverNotLoaded: health.DriverAbsent,
		agent.LibraryMissing:  health.DriverNoLibrary,
		agent.VersionMismatch: health.DriverMismatched,
		agent.OtherError:      health.DriverBroken,
	} {
		m := nvml.H100(1)
		m.Init = code
		_, s := sampled(t, m)
		got := s.Sample(context.Background(), health.Policy{})
		if got.Driver != want || got.DriverDetail != "nvmlInit, simulated, kernel module 550.54.15" {
			t.Errorf("%s: %s (%s)", code, got.Driver, got.DriverDetail)
		}
	}
}

func TestChecksThatAreOffAreNotProbed(t *testing.T) {
	m := nvml.H100(1)
	m.Hang = map[string]bool{"inforom": true}
	lib := nvml.NewLibrary(clock.RealClock{}, m)
	s := agent.NewSampler(lib, lib, clock.RealClock{}, agent.SamplerOptions{Deadline: deadline})
	only := health.Policy{Checks: map[health.Check]health.CheckPolicy{}}
	for _, c := range health.Checks() {
		only.Checks[c.Check] = health.CheckPolicy{Disabled: c.Check != health.CheckECC}
	}
	got := s.Sample(context.Background(), only)
	want := []health.GPU{{Identity: m.GPUs[0].Identity, MIG: m.GPUs[0].MIG, ECC: m.GPUs[0].ECC}}
	if diff := cmp.Diff(want, got.GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
}

func TestACheckHasItsOwnTimeout(t *testing.T) {
	slow := health.Policy{Checks: map[health.Check]health.CheckPolicy{health.CheckECC: {Timeout: 20 * deadline}}}
	m := nvml.H100(1)
	m.Hang = map[string]bool{"ecc": true}
	lib := nvml.NewLibrary(clock.RealClock{}, m)
	t.Cleanup(func() { lib.Update(func(m *nvml.Machine) { m.Hang = nil }) })
	s := agent.NewSampler(lib, lib, clock.RealClock{}, agent.SamplerOptions{Deadline: deadline / 2})
	// The call answers long after the default and well before the check's own timeout.
	release := time.AfterFunc(2*deadline, func() { lib.Update(func(m *nvml.Machine) { m.Hang = nil }) })
	defer release.Stop()
	if got := s.Sample(context.Background(), slow); got.GPUs[0].ECC == nil || len(got.Probes) != 0 {
		t.Errorf("the slow check failed: %v", probes(got))
	}
	lib.Update(func(m *nvml.Machine) { m.Hang = map[string]bool{"ecc": true} })
	got := s.Sample(context.Background(), health.Policy{})
	if diff := cmp.Diff([]string{"ecc/0 TimedOut"}, probes(got)); diff != "" {
		t.Errorf("with the default timeout (-want +got):\n%s", diff)
	}
}
