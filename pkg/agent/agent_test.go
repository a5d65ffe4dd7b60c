package agent_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestNamesAreThoseOfTheAPI(t *testing.T) {
	if agent.ConditionType != v1alpha1.NodeConditionGPUReady || agent.ReportAnnotation != v1alpha1.ReportAnnotationKey {
		t.Errorf("%s and %s, want %s and %s", agent.ConditionType, agent.ReportAnnotation, v1alpha1.NodeConditionGPUReady, v1alpha1.ReportAnnotationKey)
	}
	if agent.PolicyAnnotation != v1alpha1.PolicyAnnotationKey {
		t.Errorf("%s, want %s", agent.PolicyAnnotation, v1alpha1.PolicyAnnotationKey)
	}
}

// store is a Node in memory that keeps what was written.
type store struct {
	mu         sync.Mutex
	report     []byte
	policy     string
	condition  agent.Condition
	reports    int
	conditions int
	err        error
}

func (s *store) Load(context.Context) (agent.Carried, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return agent.Carried{Report: s.report, Policy: []byte(s.policy)}, s.err
}

func (s *store) PublishReport(_ context.Context, report []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.report, s.reports = report, s.reports+1
	}
	return s.err
}

func (s *store) PublishCondition(_ context.Context, c agent.Condition) (agent.Carried, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.condition, s.conditions = c, s.conditions+1
	}
	return agent.Carried{Report: s.report, Policy: []byte(s.policy)}, s.err
}

func (s *store) status() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.condition.Status + " " + s.condition.Reason
}

// bench is an agent on a simulated node with a clock that the test moves.
type bench struct {
	clock *clocktesting.FakeClock
	lib   *nvml.Library
	store *store
	agent *agent.Agent
}

func newBench(m nvml.Machine, p health.Policy) *bench {
	b := &bench{clock: clocktesting.NewFakeClock(start), store: &store{}}
	b.lib = nvml.NewLibrary(b.clock, m)
	b.restart(p)
	return b
}

func (b *bench) restart(p health.Policy) {
	sampler := agent.NewSampler(b.lib, b.lib, b.clock, agent.SamplerOptions{})
	b.agent = agent.New(sampler, b.store, b.clock, agent.Options{NodeName: "n", Policy: p})
}

// round moves the clock and runs one round.
func (b *bench) round(after time.Duration) time.Duration {
	b.clock.Step(after)
	return b.agent.Round(context.Background())
}

func (b *bench) want(t *testing.T, what, status string) {
	t.Helper()
	if got := b.store.status(); got != status {
		t.Errorf("%s: %s, want %s", what, got, status)
	}
}

func TestLateDriverThenReadyThenHeartbeats(t *testing.T) {
	m := nvml.H100(8)
	m.Init = agent.DriverNotLoaded
	b := newBench(m, health.Policy{})
	if pause := b.round(0); pause != agent.DefaultStartInterval {
		t.Errorf("pause %s", pause)
	}
	b.want(t, "before the driver", "Unknown DriverNotLoaded")
	b.lib.Update(func(m *nvml.Machine) { m.Init = "" })
	if pause := b.round(90 * time.Second); pause != agent.DefaultInterval {
		t.Errorf("pause %s", pause)
	}
	b.want(t, "with the driver", "True Verified")
	if got := b.store.condition.LastTransition; !got.Equal(start.Add(90 * time.Second)) {
		t.Errorf("transition at %s", got)
	}
	reports, conditions := b.store.reports, b.store.conditions
	for range 60 {
		b.round(time.Minute)
	}
	if b.store.reports != reports {
		t.Errorf("%d reports were written although nothing changed", b.store.reports-reports)
	}
	if n := b.store.conditions - conditions; n < 10 || n > 15 {
		t.Errorf("%d heartbeats in an hour, want 10 to 15", n)
	}
	if !b.store.condition.LastTransition.Equal(start.Add(90 * time.Second)) {
		t.Error("a heartbeat moved the transition")
	}
}

// TestThePoolsPolicyReachesTheProbes hangs a check for ever that the pool has turned off: an
// agent that probed it would not end its round, since the clock stands still.
func TestThePoolsPolicyReachesTheProbes(t *testing.T) {
	m := nvml.H100(2)
	m.Hang = map[string]bool{"persistence": true}
	b := newBench(m, health.Policy{})
	t.Cleanup(func() { b.lib.Update(func(m *nvml.Machine) { m.Hang = nil }) })
	b.store.policy = `{"checks":{"persistence":{"disabled":true}}}`
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.round(0)
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("the check that is off was probed")
	}
	b.want(t, "with the hanging check off", "True Verified")
}

func TestReportDescribesTheMachine(t *testing.T) {
	m := nvml.H100(2)
	if err := m.Partition(1, "3g.40gb@4+4", "1g.10gb@0+1"); err != nil {
		t.Fatal(err)
	}
	m.GPUs[0].Fabric, m.GPUs[1].Fabric = nil, nil
	b := newBench(m, health.Policy{})
	b.round(0)
	r, err := health.Decode(b.store.report)
	if err != nil {
		t.Fatal(err)
	}
	want := health.Report{
		Version: 1, BootID: m.BootID, State: health.Ready, Reason: health.ReasonVerified, Since: start.Unix(), Verified: true, Known: 2,
		Driver: "550.54.15", Library: "12.550.54.15", CUDA: "12.4",
		GPUs: []health.ReportGPU{
			{Index: 0, UUID: m.GPUs[0].Identity.UUID, Product: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, ComputeCapability: "9.0"},
			{Index: 1, UUID: m.GPUs[1].Identity.UUID, Product: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, ComputeCapability: "9.0",
				MIG: true, Partitions: []health.Partition{"3g.40gb@4+4", "1g.10gb@0+1"}},
		},
		Skipped: []health.Check{health.CheckFabric},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestLostAnnotationIsWrittenAgainWithTheHeartbeat(t *testing.T) {
	b := newBench(nvml.H100(1), health.Policy{})
	b.round(0)
	b.store.report = nil
	b.round(6 * time.Minute)
	if len(b.store.report) == 0 {
		t.Error("the report is still missing")
	}
}

func TestFaultsOfTheAPIServerAreTriedAgain(t *testing.T) {
	b := newBench(nvml.H100(1), health.Policy{})
	b.store.err = errors.New("no route")
	if pause := b.round(0); pause != agent.DefaultStartInterval {
		t.Errorf("pause %s", pause)
	}
	b.store.err = nil
	b.round(5 * time.Second)
	b.want(t, "after the outage", "True Verified")
	b.store.err = errors.New("no route")
	b.lib.Update(func(m *nvml.Machine) { m.GPUs[0].Lost = true })
	b.round(time.Minute)
	b.store.err = nil
	b.round(5 * time.Second)
	b.want(t, "after the second outage", "False GPULost")
	if !b.store.condition.LastTransition.Equal(start.Add(65 * time.Second)) {
		t.Errorf("transition at %s, want the time of the fault", b.store.condition.LastTransition)
	}
}

func TestRebootClosesUntilVerifiedAgain(t *testing.T) {
	b := newBench(nvml.H100(4), health.Policy{})
	b.round(0)
	b.lib.Update(func(m *nvml.Machine) { m.BootID, m.Init = "second", agent.DriverNotLoaded })
	b.restart(health.Policy{})
	b.round(time.Minute)
	b.want(t, "while booting", "Unknown DriverNotLoaded")
	b.lib.Update(func(m *nvml.Machine) { m.Init = "" })
	b.round(time.Minute)
	b.want(t, "after the boot", "True Verified")
}

func TestDriverThatGoesIsFoundAgain(t *testing.T) {
	b := newBench(nvml.H100(1), health.Policy{})
	b.round(0)
	b.lib.Update(func(m *nvml.Machine) { m.Init = agent.VersionMismatch })
	b.round(time.Minute)
	b.want(t, "while it differs", "False DriverLibraryMismatch")
	b.lib.Update(func(m *nvml.Machine) { m.Init = "" })
	b.round(time.Minute)
	b.want(t, "within the hold", "False DriverLibraryMismatch")
	b.round(5 * time.Minute)
	b.want(t, "after the hold", "True Verified")
}

// eventually polls real time: the loop under test runs in other goroutines.
func eventually(t *testing.T, what string, ok func() bool, each func()) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		each()
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("%s: did not happen", what)
}

func TestRunPublishesXIDsAsTheyComeAndStops(t *testing.T) {
	b := newBench(nvml.H100(2), health.Policy{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.agent.Run(ctx) }()
	tick := func() {
		if b.clock.HasWaiters() {
			b.clock.Step(200 * time.Millisecond)
		}
	}
	eventually(t, "ready", func() bool { return b.store.status() == "True Verified" }, tick)
	b.lib.Update(func(m *nvml.Machine) {
		m.Events = []health.XIDEvent{{Code: 31, GPU: 0, GI: -1}, {Code: 48, GPU: 1, GI: -1}}
	})
	before := b.clock.Now()
	eventually(t, "fenced", func() bool { return b.store.status() == "False XIDNeedsReboot" }, tick)
	if took := b.clock.Since(before); took > 30*time.Second {
		t.Errorf("fencing took %s of the agent's time", took)
	}
	cancel()
	eventually(t, "stop", func() bool { return len(done) > 0 }, tick)
	if err := <-done; err != nil {
		t.Error(err)
	}
	// A new agent of the same boot remembers.
	b.restart(health.Policy{})
	b.round(time.Minute)
	b.want(t, "after a restart of the agent", "False XIDNeedsReboot")
}

// TestPolicyOfTheNode: what the node's pool demands comes on top of the agent's own policy,
// soon on a node that waits for it and with the next heartbeat on one at work, and goes again.
func TestPolicyOfTheNode(t *testing.T) {
	m := nvml.H100(8)
	m.GPUs[0].Fabric = &health.Fabric{State: health.FabricInProgress}
	b := newBench(m, health.Policy{})
	b.round(0)
	b.want(t, "while the fabric is not up", "Unknown FabricNotReady")
	b.store.policy = `{"checks":{"fabric":{"disabled":true}},"xids":[{"code":31,"class":"Reboot"}]}`
	b.round(10 * time.Second)
	b.want(t, "before the node was read again", "Unknown FabricNotReady")
	b.round(30 * time.Second)
	b.want(t, "under the policy of the pool", "True Verified")

	b.store.policy = "{not a policy"
	b.round(10 * time.Minute)
	b.want(t, "with a policy that cannot be read", "True Verified")

	b.store.policy = ""
	b.round(10 * time.Minute) // this heartbeat brings the news
	b.round(time.Minute)
	b.round(2 * time.Minute)
	b.want(t, "without the policy, once the fault has lasted", "False FabricNotReady")
}
