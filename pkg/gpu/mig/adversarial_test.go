package mig_test

import (
	"math"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

func TestDemandFromResources(t *testing.T) {
	got, err := mig.DemandFromResources(map[string]int{"cpu": 4, "nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb.me": 2, "nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-7g.80gb": 0})
	if d := cmp.Diff(mig.Demand{"1g.10gb+me": 2, "3g.40gb": 1}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	got, err = mig.DemandFromResources(map[string]int{"nvidia.com/mig-big": 1, "nvidia.com/mig-1g.10gb.shared": 2, "nvidia.com/mig-1g.10gb": 3})
	wantError(t, err, `parsing MIG resource "nvidia.com/mig-big"`)
	wantError(t, err, "it counts shared replicas")
	if d := cmp.Diff(mig.Demand{"1g.10gb": 3}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestHugeCountsAreRefused covers sums that would overflow.
func TestHugeCountsAreRefused(t *testing.T) {
	g := geometry(t, "h100-80gb")
	for _, d := range []mig.Demand{
		{"1g.10gb": math.MaxInt}, {"1g.10gb": math.MaxInt, "2g.20gb": math.MaxInt, "3g.40gb": 2},
		{"1g.10gb": mig.MaxDemand, "2g.20gb": 1},
	} {
		_, err := g.Plan(d)
		wantError(t, err, "more than 1000000 partitions in all; split the demand")
		_, err = g.Place(d)
		wantError(t, err, "split the demand")
		if l, _ := g.Layout("all-balanced"); mig.Fits(l, d) {
			t.Errorf("%v fits", d)
		}
	}
	_, err := g.Place(mig.Demand{"1g.10gb": math.MinInt})
	wantError(t, err, "is negative; use 0 or leave it out")
}

// TestResultsAreTheCallers changes everything that is handed out and asks again.
func TestResultsAreTheCallers(t *testing.T) {
	g := geometry(t, "h100-80gb")
	l, _ := g.Layout("all-balanced")
	l.Counts()["1g.10gb"] = 99
	l.Resources()["nvidia.com/mig-1g.10gb"] = 99
	g.Profiles()[0] = mig.Profile{}
	g.Profiles()[1].Placements()[0].Start = 99
	g.Products()[0], g.DeviceFilter()[0] = "x", "x"
	g.Status()["ids"] = "x"
	g.Maximal()[0] = mig.Layout{}
	mig.Geometries()[0] = nil
	n, _ := mig.NewNodeLayout("", mig.AllDevices(l))
	n.Parts()[0] = mig.DeviceLayout{}
	after, _ := g.Layout("all-balanced")
	if d := cmp.Diff(mig.Demand{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}, after.Counts()); d != "" {
		t.Error(d)
	}
	if g.Profiles()[0].Name() != "1g.10gb" || g.Profiles()[1].Placements()[0].Start != 0 || g.Products()[0] == "x" || g.DeviceFilter()[0] == "x" ||
		g.Status()["ids"] == "x" || g.Maximal()[0].IsZero() || mig.Geometries()[0] == nil || n.Parts()[0].Layout().IsZero() {
		t.Error("the package's own values changed")
	}
}

// TestConcurrentUse lets many goroutines ask for what is made on first use.
func TestConcurrentUse(t *testing.T) {
	all := mig.Geometries()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, g := range all {
				if len(g.Maximal()) == 0 {
					t.Error(g.Key())
				}
			}
		})
	}
	wg.Wait()
}

// TestZeroValues asks zero values for everything.
func TestZeroValues(t *testing.T) {
	var l mig.Layout
	var n mig.NodeLayout
	got := []any{l.IsZero(), l.MIGEnabled(), l.Name(), len(l.Counts()), len(l.Resources()), len(l.Placements()), l.Stranded()}
	if d := cmp.Diff([]any{true, false, "", 0, 0, 0, mig.Waste{}}, got); d != "" {
		t.Errorf("zero layout (-want +got):\n%s", d)
	}
	if _, ok := n.LayoutAt(0); ok || n.Geometry() != nil || n.Name() != "" {
		t.Errorf("zero node layout %v", n)
	}
	_, err := n.Layouts(8)
	wantError(t, err, "no part covers device 0")
	if p := (mig.Plan{}); p.GPUs() != 0 || len(p.Supply()) != 0 {
		t.Errorf("zero plan %v", p)
	}
	if got := mig.Demand(nil).String(); got != "nothing" {
		t.Errorf("nil demand %q", got)
	}
}
