package trials_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
)

const (
	pool     = "inference"
	deadline = 10 * time.Minute
)

var t0 = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// run is a Book with its clock and a count of nodes.
type run struct {
	*trials.Book
	clock *clocktesting.FakePassiveClock
	nodes int
}

func newRun() *run {
	c := clocktesting.NewFakePassiveClock(t0)
	return &run{Book: trials.NewBook(c), clock: c}
}

func (r *run) after(d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

func (r *run) launch(zone string) trials.Trial {
	r.nodes++
	return trials.Trial{
		UID: types.UID(fmt.Sprint("n", r.nodes)), Pool: pool, Launched: r.clock.Now(),
		Offering: trials.Offering{NodeClass: "gpu", InstanceType: "g5.xlarge", Zone: zone, Image: "ami-1"},
	}
}

func (r *run) avoided() []string {
	var out []string
	for _, a := range r.Avoided("gpu") {
		out = append(out, fmt.Sprintf("%s %s after %d, for %s (%s)", a.InstanceType, a.Zone, a.Failures, a.Until.Sub(r.clock.Now()), a.Reason))
	}
	return out
}

func TestFiveBadAmongAHundredAreNeitherStormNorBackoff(t *testing.T) {
	r := newRun()
	var bad []trials.Trial
	for i := range 100 {
		r.after(100 * time.Millisecond)
		if n := r.launch("a"); i%20 == 7 {
			bad = append(bad, n)
		} else {
			r.Verified(n)
		}
	}
	r.after(deadline)
	for _, n := range bad {
		r.Failed(n, "NoGPUs", "the driver shows no GPU")
	}
	if s, ok := r.Storm(pool); ok {
		t.Errorf("a storm: %+v", s)
	}
	if got := r.avoided(); len(got) > 0 {
		t.Errorf("avoided: %v", got)
	}
}

func TestBackoffDoublesWithEachRetryAndEndsWithASuccess(t *testing.T) {
	r := newRun()
	want := []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 16 * time.Minute}
	for try, wait := range want {
		sisters := []trials.Trial{r.launch("a"), r.launch("a"), r.launch("a")}
		r.after(deadline)
		for _, n := range sisters {
			r.Failed(n, "NoGPUs", "")
		}
		if diff := cmp.Diff([]string{fmt.Sprintf("g5.xlarge a after %d, for %s (NoGPUs)", try+1, wait)}, r.avoided()); diff != "" {
			t.Fatalf("try %d (-want +got)\n%s", try, diff)
		}
		r.after(wait)
		if got := r.avoided(); len(got) > 0 {
			t.Fatalf("try %d: still avoided: %v", try, got)
		}
	}
	good := r.launch("a")
	r.after(time.Minute)
	r.Verified(good)
	bad := r.launch("a")
	r.after(deadline)
	r.Failed(bad, "NoGPUs", "")
	if diff := cmp.Diff([]string{"g5.xlarge a after 1, for 1m0s (NoGPUs)"}, r.avoided()); diff != "" {
		t.Errorf("after a success (-want +got)\n%s", diff)
	}
}

func TestBackoffIsForgotten(t *testing.T) {
	r := newRun()
	for range 4 {
		n := r.launch("a")
		r.after(deadline)
		r.Failed(n, "NoGPUs", "")
		r.after(trials.MaxBackoff)
	}
	r.after(2 * time.Hour)
	r.Avoided("gpu") // drops what is old
	n := r.launch("a")
	r.after(deadline)
	r.Failed(n, "NoGPUs", "")
	if diff := cmp.Diff([]string{"g5.xlarge a after 1, for 1m0s (NoGPUs)"}, r.avoided()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestBackoffIsOfOneZoneTypeAndImage(t *testing.T) {
	r := newRun()
	a, b := r.launch("a"), r.launch("b")
	r.after(deadline)
	r.Failed(a, "NoGPUs", "")
	r.Verified(b)
	if diff := cmp.Diff([]string{"g5.xlarge a after 1, for 1m0s (NoGPUs)"}, r.avoided()); diff != "" {
		t.Errorf("two zones (-want +got)\n%s", diff)
	}
	if got := r.Avoided("cpu"); len(got) > 0 {
		t.Errorf("another NodeClass: %v", got)
	}
	c := r.launch("b")
	c.Offering.Image = "ami-2"
	r.Verified(c)
	if got := r.avoided(); len(got) > 0 {
		t.Errorf("after a new image was seen: %v", got)
	}
}

func TestStormBeginsWithACommonReasonAndEndsWithASuccess(t *testing.T) {
	r := newRun()
	old := r.launch("a")
	r.Verified(old)
	r.after(time.Hour)
	var nodes []trials.Trial
	for range 3 {
		nodes = append(nodes, r.launch("a"))
	}
	r.after(time.Minute)
	r.Suspect(nodes[0], "DriverLibraryMismatch", "550 and 535")
	r.Suspect(nodes[0], "DriverLibraryMismatch", "550 and 535")
	r.Suspect(nodes[1], "DriverLibraryMismatch", "550 and 535")
	if s, ok := r.Storm(pool); ok {
		t.Errorf("a storm after two nodes: %+v", s)
	}
	r.Suspect(nodes[2], "DriverLibraryMismatch", "550 and 535")
	want := trials.Storm{Reason: "DriverLibraryMismatch", Message: "550 and 535", Failures: 3}
	if s, _ := r.Storm(pool); s != want {
		t.Errorf("storm %+v, want %+v", s, want)
	}
	for _, n := range nodes {
		r.Failed(n, "DriverLibraryMismatch", "550 and 535")
		r.Forget(pool, n.UID)
	}
	if _, ok := r.Storm(pool); !ok {
		t.Error("the storm ended when its nodes were gone")
	}
	fixed := r.launch("b")
	r.Verified(fixed)
	if s, ok := r.Storm(pool); ok {
		t.Errorf("the storm goes on after a success: %+v", s)
	}
}

func TestDifferentFaultsAreNoStorm(t *testing.T) {
	r := newRun()
	for i := range 6 {
		n := r.launch("a")
		r.after(deadline)
		r.Failed(n, []string{"NoGPUs", "GPULost", "NoReport"}[i%3], "")
	}
	if s, ok := r.Storm(pool); ok {
		t.Errorf("storm %+v", s)
	}
}

func TestSuspectsThatRecoverOrGoDoNotCount(t *testing.T) {
	r := newRun()
	a, b, c := r.launch("a"), r.launch("a"), r.launch("a")
	for _, n := range []trials.Trial{a, b, c} {
		r.Suspect(n, "GPULost", "")
	}
	r.Forget(pool, b.UID)
	if s, ok := r.Storm(pool); ok {
		t.Errorf("storm %+v", s)
	}
}

func TestAdmissionDuringAStorm(t *testing.T) {
	r := newRun()
	if !r.Admit(pool, "calm", 1, nil) || !r.Admit(pool, "calm-2", 1, nil) {
		t.Error("a launch was refused without a storm")
	}
	r.Release(pool, "calm")
	r.Release(pool, "calm-2")
	r.Resume(pool, trials.Storm{Reason: "NoGPUs", Failures: 3})
	admitted := 0
	for i := range 10 {
		if r.Admit(pool, types.UID(fmt.Sprint("new-", i)), 3, []types.UID{"old"}) {
			admitted++
		}
	}
	if admitted != 2 {
		t.Errorf("%d admitted beside one in trial, want 2", admitted)
	}
	if !r.Admit(pool, "new-0", 3, []types.UID{"old"}) || !r.Admit(pool, "old", 3, []types.UID{"old"}) {
		t.Error("a node that is in already was refused")
	}
	r.Release(pool, "new-1")
	if !r.Admit(pool, "other", 3, []types.UID{"old", "new-0"}) {
		t.Error("the place of a launch that came to nothing was not free")
	}
	r.after(time.Hour)
	if !r.Admit(pool, "late", 1, nil) {
		t.Error("admissions without a node count for ever")
	}
	r.Verified(r.launch("a"))
	for i := range 5 {
		if !r.Admit(pool, types.UID(fmt.Sprint("after-", i)), 1, nil) {
			t.Error("a launch was refused after the storm")
		}
	}
}

func TestResumeDoesNotOverruleOutcomes(t *testing.T) {
	r := newRun()
	r.Verified(r.launch("a"))
	r.Resume(pool, trials.Storm{Reason: "NoGPUs"})
	if s, ok := r.Storm(pool); ok {
		t.Errorf("storm %+v", s)
	}
}

func TestAResumedStormEndsWithALaterLaunchOnly(t *testing.T) {
	launched := func(r *run, after time.Duration) trials.Trial {
		n := r.launch("a")
		n.Launched = t0.Add(after)
		return n
	}
	told := trials.Storm{Reason: "NoGPUs", Failures: 3, Since: t0.Add(time.Hour)}
	resume := func(r *run) { r.Resume(pool, told) }
	verify := func(after time.Duration) func(*run) { return func(r *run) { r.Verified(launched(r, after)) } }
	for name, tc := range map[string]struct {
		steps []func(*run)
		want  bool
	}{
		"an older node is told after it":      {[]func(*run){resume, verify(0)}, true},
		"an older node is told before it":     {[]func(*run){verify(0), resume}, true},
		"a node of that moment is told":       {[]func(*run){verify(time.Hour), resume, verify(time.Hour)}, true},
		"a later node is verified after it":   {[]func(*run){resume, verify(0), verify(2 * time.Hour)}, false},
		"a later node was verified before it": {[]func(*run){verify(2 * time.Hour), verify(0), resume}, false},
		"it is told again after a later node": {[]func(*run){resume, verify(2 * time.Hour), resume}, false},
		"a suspect was told before it":        {[]func(*run){func(r *run) { r.Suspect(launched(r, 0), "GPULost", "") }, resume}, true},
		"its status is this process's own":    {[]func(*run){func(r *run) { r.Restore(pool, nil) }, verify(0), resume}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun()
			for _, step := range tc.steps {
				step(r)
			}
			if s, ok := r.Storm(pool); ok != tc.want {
				t.Errorf("storm %v (%+v), want %v", ok, s, tc.want)
			}
		})
	}
}
