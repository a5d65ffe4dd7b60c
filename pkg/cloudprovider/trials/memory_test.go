package trials_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
)

// restarted is the same run after a restart, with what the pool's status kept.
func (r *run) restarted(limit int) *run {
	next := &run{Book: trials.NewBook(r.clock), clock: r.clock, nodes: r.nodes}
	next.Restore(pool, r.Memories(pool, limit))
	return next
}

func TestBackoffGoesOnAfterARestart(t *testing.T) {
	r := newRun()
	want := []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 16 * time.Minute}
	for try, wait := range want {
		sisters := []trials.Trial{r.launch("a"), r.launch("a")}
		r.after(deadline)
		r.Failed(sisters[0], "NoGPUs", "")
		// A restart between two verdicts of one try does not make two tries of it.
		r = r.restarted(64)
		r.Failed(sisters[1], "NoGPUs", "")
		r = r.restarted(64)
		if diff := cmp.Diff([]string{fmt.Sprintf("g5.xlarge a after %d, for %s (NoGPUs)", try+1, wait)}, r.avoided()); diff != "" {
			t.Fatalf("try %d (-want +got)\n%s", try, diff)
		}
		r.after(wait)
		r = r.restarted(64)
		if got := r.avoided(); len(got) > 0 {
			t.Fatalf("try %d: still avoided: %v", try, got)
		}
	}
	r.after(2 * time.Hour)
	if got := r.restarted(64).Memories(pool, 64); len(got) > 0 {
		t.Errorf("remembered after two hours: %v", got)
	}
}

func TestRestoreDoesNotOverruleOutcomes(t *testing.T) {
	r := newRun()
	old := r.launch("a")
	r.after(time.Minute)
	bad := r.launch("a")
	r.after(deadline)
	r.Failed(bad, "NoGPUs", "")
	kept := r.Memories(pool, 64)

	for name, tc := range map[string]struct {
		before func(*run)
		want   []string
	}{
		"nodes that were verified before the failure are told again": {func(n *run) { n.Verified(old) },
			[]string{"g5.xlarge a after 1, for 1m0s (NoGPUs)"}},
		"a node launched after it was verified": {func(n *run) { n.Verified(n.launch("a")) }, nil},
		"another one failed already": {func(n *run) { n.Failed(n.launch("a"), "GPULost", "") },
			[]string{"g5.xlarge a after 1, for 1m0s (GPULost)"}},
		"it was restored before": {func(n *run) { n.Restore(pool, nil) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			next := &run{Book: trials.NewBook(r.clock), clock: r.clock, nodes: r.nodes}
			tc.before(next)
			next.Restore(pool, kept)
			if diff := cmp.Diff(tc.want, next.avoided()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestAnOlderImageSaysNothingOfANewerOne has nodes of the image before told to the book
// again, as they are with each look at them.
func TestAnOlderImageSaysNothingOfANewerOne(t *testing.T) {
	r := newRun()
	of := func(image string) trials.Trial {
		n := r.launch("a")
		n.Offering.Image = image
		return n
	}
	avoided := func() (images []string) {
		for _, a := range r.Avoided("gpu") {
			images = append(images, a.Image)
		}
		return images
	}
	old, older := of("ami-1"), of("ami-1")
	r.Verified(old)
	r.after(time.Hour)
	bad, sister := of("ami-2"), of("ami-3")
	r.after(deadline)
	r.Failed(bad, "NoGPUs", "")
	for _, node := range []struct {
		name string
		tell func()
	}{
		{"verified", func() { r.Verified(old) }},
		{"failed", func() { r.Failed(older, "NoReport", "") }},
		{"launched with it", func() { r.Verified(sister) }},
		{"verified after a restart", func() { r = r.restarted(64); r.Verified(old) }},
		{"launched with it, too", func() { r = r.restarted(64); r.Verified(sister) }},
	} {
		node.tell()
		if got := avoided(); !slices.Contains(got, "ami-2") {
			t.Fatalf("an older node is told, %s: avoided are %v, not ami-2", node.name, got)
		}
	}
	// Back to the image before.
	r.Verified(of("ami-1"))
	if got := r.Memories(pool, 64); len(got) > 0 {
		t.Errorf("remembered after the NodeClass has moved on: %v", got)
	}
}

func TestAnOlderImageDoesNotUnproveANewerOne(t *testing.T) {
	r := newRun()
	old := r.launch("a")
	r.after(time.Hour)
	good, bad := r.launch("a"), r.launch("a")
	good.Offering.Image, bad.Offering.Image = "ami-2", "ami-2"
	r.Verified(good)
	r.Verified(old)
	r.after(deadline)
	r.Failed(bad, "NoGPUs", "")
	if got := r.avoided(); len(got) > 0 {
		t.Errorf("avoided although a node that was launched with it was verified: %v", got)
	}
}

func TestASuccessAfterARestartEndsTheBackoff(t *testing.T) {
	r := newRun()
	bad := r.launch("a")
	r.after(deadline)
	r.Failed(bad, "NoGPUs", "")
	r = r.restarted(64)
	good := r.launch("a")
	r.Verified(good)
	if got := r.Memories(pool, 64); len(got) > 0 {
		t.Errorf("remembered after a success: %v", got)
	}
}

func TestMemoriesAreBoundedOrderedAndOfOnePool(t *testing.T) {
	r := newRun()
	for i := range 5 {
		for range i + 1 { // later zones have failed more often and pause for longer
			n := r.launch(fmt.Sprint("z", 4-i))
			r.after(time.Minute)
			r.Failed(n, "NoGPUs", "")
			r.after(time.Minute)
		}
	}
	other := r.launch("z9")
	other.Pool = "training"
	r.after(time.Minute)
	r.Failed(other, "NoGPUs", "")
	var got []string
	for _, m := range r.Memories(pool, 3) {
		got = append(got, fmt.Sprintf("%s after %d", m.Zone, m.Failures))
	}
	if diff := cmp.Diff([]string{"z0 after 5", "z1 after 4", "z2 after 3"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRestoreDistrustsWhatItReads(t *testing.T) {
	r := newRun()
	o := trials.Offering{NodeClass: "gpu", InstanceType: "g5.xlarge", Zone: "a"}
	r.Restore(pool, []trials.Memory{
		{Avoidance: trials.Avoidance{Offering: o, Until: t0.Add(1000 * time.Hour), Failures: 1 << 30, Reason: "NoGPUs"}, Launched: t0},
		{Avoidance: trials.Avoidance{Offering: trials.Offering{NodeClass: "gpu", Zone: "b"}, Until: t0.Add(time.Minute), Failures: -1}, Launched: t0},
	})
	if diff := cmp.Diff([]string{"g5.xlarge a after 100, for 16m0s (NoGPUs)"}, r.avoided()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
