package scenario

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
)

var update = flag.Bool("update", false, "write the golden files anew")

// leaping is a clock that jumps to the end of every wait.
type leaping struct{ *clocktesting.FakeClock }

func (l leaping) After(d time.Duration) <-chan time.Time {
	c := l.FakeClock.After(d)
	l.Step(d)
	return c
}

var _ clock.Clock = leaping{}

// fake is a World in which pods start running one a second after a scale, and that records what it
// is asked to do.
type fake struct {
	clock   clock.Clock
	scaled  time.Time
	want    int
	calls   []string
	targets int
	broken  error
}

func (f *fake) log(format string, args ...any) error {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	return nil
}

func (f *fake) Apply(_ context.Context, text string) error { return f.log("apply %s", text) }
func (f *fake) Delete(_ context.Context, r Ref) error      { return f.log("delete %s", r) }
func (f *fake) Scale(_ context.Context, r Ref, n int) error {
	f.scaled, f.want = f.clock.Now(), n
	return f.log("scale %s %d", r, n)
}
func (f *fake) AddLocalNodes(_ context.Context, l LocalNodes) error {
	return f.log("local %s %d", l.Name, l.Count)
}
func (f *fake) Fail(_ context.Context, x Failure) error { return f.log("fail %s", x) }
func (f *fake) Heal(_ context.Context, x Failure) error { return f.log("heal %s", x) }
func (f *fake) Interrupt(_ context.Context, t Targets) (int, error) {
	return f.targets, f.log("interrupt %s", t)
}
func (f *fake) Kill(_ context.Context, t Targets) (int, error) {
	return f.targets, f.log("kill %s", t)
}
func (f *fake) Reboot(_ context.Context, t Targets) (int, error) {
	return f.targets, f.log("reboot %s", t)
}
func (f *fake) Cordon(_ context.Context, selector string) (int, error) {
	return f.targets, f.log("cordon %s", selector)
}
func (f *fake) FailNode(x node.Fault) error           { return f.log("node fault %s", x.Kind) }
func (f *fake) HealNode(name string) error            { return f.log("heal node %s", name) }
func (f *fake) KillController(context.Context) error  { return f.log("kill controller") }
func (f *fake) StartController(context.Context) error { return f.log("start controller") }
func (f *fake) RollController(context.Context) error  { return f.log("roll controller") }

func (f *fake) Observe(context.Context, []Ref) (*Snapshot, error) {
	if f.broken != nil {
		return nil, f.broken
	}
	s := &Snapshot{}
	if f.scaled.IsZero() {
		return s, nil
	}
	for i := range min(f.want, int(f.clock.Since(f.scaled)/time.Second)) {
		s.Pods = append(s.Pods, Pod{Name: fmt.Sprint(i), Phase: "Running"})
		s.Cloud.Instances = append(s.Cloud.Instances, Instance{
			ID: fmt.Sprint(i), Type: "g5.2xlarge", CapacityType: "spot", Price: 0.5, Start: f.scaled.Add(time.Duration(i+1) * time.Second),
		})
	}
	return s, nil
}

func perform(t *testing.T, text string, prepare func(*fake)) (*fake, *Result, error) {
	t.Helper()
	s, err := Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s.Settings.Controller = ControllerOurs
	clk := leaping{clocktesting.NewFakeClock(origin)}
	f := &fake{clock: clk, targets: 2}
	if prepare != nil {
		prepare(f)
	}
	result, err := NewPlayer(f, clk, nil).Play(t.Context(), s)
	return f, result, err
}

func TestStepsReachTheWorldInOrder(t *testing.T) {
	f, result, err := perform(t, `name: all
localNodes: [{name: idc, count: 3, like: p4d.24xlarge}]
manifests: [{inline: first}]
steps:
  - apply: {inline: second}
  - delete: {kind: Job, namespace: a, name: b}
  - scale: {kind: Deployment, name: web, replicas: 1}
  - fail: {capacity: {capacityType: spot}}
  - heal: {capacity: {capacityType: spot}}
  - fail: {throttle: {}}
  - fail: {launch: {operation: RunInstances}}
  - interrupt: {count: 2}
  - kill: {instanceType: g5.xlarge}
  - reboot: {count: 1}
  - cordon: team=a
  - nodeFault: {kind: driver-never}
  - healNode: driver-never
  - killController: {}
  - startController: {}
  - rollController: {}
`, nil)
	if err != nil || !result.Passed {
		t.Fatal(err, result.Failure)
	}
	want := []string{
		"local idc 3", "apply first", "apply second", "delete Job a/b", "scale Deployment web 1", "fail capacity of spot", "heal capacity of spot",
		"fail API rate of CreateFleet", "fail launch by RunInstances", "interrupt 2 of any", "kill every instance of g5.xlarge",
		"reboot 1 of any", "cordon team=a", "node fault driver-never", "heal node driver-never", "kill controller", "start controller",
		"roll controller",
	}
	if diff := cmp.Diff(want, f.calls); diff != "" {
		t.Error(diff)
	}
}

const story = `name: story
steps:
  - name: five are asked for
    scale: {kind: Deployment, name: web, replicas: 5}
  - name: the first runs
    expect:
      measure: {name: time to the first, since: five are asked for}
      pods: [{phase: Running, count: ">=1"}]
  - name: all run and go on running
    expect:
      hold: 10s
      measure: {name: from the first to all}
      pods: [{phase: Running, count: 5}]
  - name: two machines die
    kill: {count: 2}
`

const peakFleet = `peakFleet: {gpus: 8, gpusPerServer: 8, serverPrice: 52560, years: 3, kilowattsEach: 5, pricePerKWh: 0.1}
`

func TestTimelines(t *testing.T) {
	for name, text := range map[string]string{
		"passed": story + peakFleet,
		"failed": story + "  - name: ten run\n    expect:\n      within: 3s\n      pods: [{phase: Running, count: 10}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, result, err := perform(t, text, nil)
			if err != nil {
				t.Fatal(err)
			}
			result.UpSeconds = 6.5
			var b strings.Builder
			if err := result.Write(&b); err != nil {
				t.Fatal(err)
			}
			file := "testdata/" + name + ".txt"
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("run the test with -update if this is meant: %s", diff)
			}
		})
	}
}

func TestAnExpectationThatStopsHoldingIsNotMet(t *testing.T) {
	_, result, err := perform(t, `name: flap
steps:
  - scale: {kind: Deployment, name: web, replicas: 5}
  - expect:
      within: 4s
      hold: 2s
      pods: [{count: 1}]
`, nil)
	if err != nil || result.Passed {
		t.Fatalf("passed although one pod alone is true for 1 s only, err %v", err)
	}
	if want := []string{"pods: 4, want 1"}; !cmp.Equal(want, result.Steps[1].Unmet) {
		t.Errorf("got %q", result.Steps[1].Unmet)
	}
}

func TestStepsAfterAFailureAreNotPlayed(t *testing.T) {
	f, result, err := perform(t, "name: x\nsteps:\n  - kill: {}\n  - killController: {}\n", func(f *fake) { f.targets = 0 })
	if err != nil || result.Passed || len(result.Steps) != 1 {
		t.Fatalf("got %+v, %v", result, err)
	}
	if want := []string{"kill every instance of any"}; !cmp.Equal(want, f.calls) {
		t.Errorf("got %q", f.calls)
	}
	if want := "kill every instance of any: no running instance or node matches"; result.Failure != want {
		t.Errorf("got %q", result.Failure)
	}
}

func TestABrokenWorldIsAnErrorAndNotAVerdict(t *testing.T) {
	broken := errors.New("the controller ended by itself")
	_, result, err := perform(t, "name: x\nsteps:\n  - expect: {nodeClaims: 0}\n", func(f *fake) { f.broken = broken })
	if !errors.Is(err, broken) || result.Passed {
		t.Errorf("got %v, passed %t", err, result.Passed)
	}
}

func TestAnInterruptEndsAWait(t *testing.T) {
	s, err := Parse("x.yaml", []byte("name: x\nsteps:\n  - wait: 1h\n"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	clk := clocktesting.NewFakeClock(origin)
	result, err := NewPlayer(&fake{clock: clk}, clk, nil).Play(ctx, s)
	if !errors.Is(err, context.Canceled) || result.Passed {
		t.Errorf("got %v", err)
	}
}
