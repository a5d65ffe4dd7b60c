package fleet_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
)

// capped draws a problem whose only limit is the cap on unused GPUs: pods of one,
// two and four GPUs on shapes of two to eight, where full nodes often leave a rest
// that may not open one.
func capped(rng *rand.Rand) fleet.Problem {
	p := tiny(rng, false)
	for s := range p.Shapes {
		gpus := []int{2, 3, 4, 4, 8}[rng.IntN(5)]
		p.Shapes[s].GPUs, p.Shapes[s].Allocatable[2] = gpus, int64(gpus)
		p.Shapes[s].Price += float64(gpus)
	}
	for c := range p.Classes {
		p.Classes[c].Requests[2] = []int64{0, 1, 1, 1, 2, 4}[rng.IntN(6)]
	}
	p.Limits.MaxUnusedGPUs = ptr(rng.IntN(3))
	return p
}

// Under the cap everything that can be placed is placed, and at the least price.
func TestAgainstExhaustiveSearchUnderTheCap(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	possible, optimal := 0, 0
	for i := range 600 {
		p := capped(rng)
		best := optimum(p)
		plan := solve(t, p, fleet.Options{Seed: uint64(i)})
		if math.IsInf(best, 1) {
			if len(plan.Unplaced) == 0 {
				t.Fatalf("case %d: everything placed where nothing can: %+v", i, p)
			}
			continue
		}
		possible++
		if len(plan.Unplaced) > 0 {
			t.Errorf("case %d: pods wait that a plan of price %v places: %+v", i, best, p)
			continue
		}
		if plan.Price <= best+slack {
			optimal++
		}
	}
	t.Logf("of %d cases that can be placed: optimum found in %d", possible, optimal)
	if possible < 150 || optimal*1000 < possible*995 {
		t.Errorf("optimum found in %d of %d cases, want 99.5 %% of 150 and more", optimal, possible)
	}
}

func TestPodsAreBalancedUnderTheCap(t *testing.T) {
	tests := map[string]struct {
		pods, gpus, cap int
		wantNodes       []int // pods on each, dearest plan order
		wantUnplaced    int
	}{
		"six pods are three and three on nodes of four":              {6, 4, 1, []int{3, 3}, 0},
		"seven are four and three":                                   {7, 4, 1, []int{4, 3}, 0},
		"five cannot be spread: four run and one waits":              {5, 4, 1, []int{4}, 1},
		"without a GPU to spare only full nodes are opened":          {6, 4, 0, []int{4}, 2},
		"a rest of one is made up for by seven full nodes":           {57, 8, 1, []int{8, 7, 7, 7, 7, 7, 7, 7}, 0},
		"what cannot be spread at any number of nodes waits in part": {13, 8, 1, []int{8}, 5},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := fleet.Problem{Resources: []string{"nvidia.com/gpu"}, GPUResources: []string{"nvidia.com/gpu"},
				Classes: []fleet.Class{{Name: "pod", Requests: []int64{1}, Count: tt.pods}},
				Shapes:  []fleet.Shape{{Name: "node", Allocatable: []int64{int64(tt.gpus)}, Price: 1, GPUs: tt.gpus}},
				Limits:  fleet.Limits{MaxUnusedGPUs: ptr(tt.cap)}}
			plan := solve(t, p, fleet.Options{})
			var nodes []int
			for _, n := range plan.Nodes {
				for range n.Count {
					nodes = append(nodes, n.Pods[0].Count)
				}
			}
			if diff := cmp.Diff(tt.wantNodes, nodes); diff != "" {
				t.Errorf("pods by node (-want +got):\n%s", diff)
			}
			if got := count(plan); got != tt.wantUnplaced {
				t.Errorf("%d pods wait, want %d", got, tt.wantUnplaced)
			}
		})
	}
}

// Hundreds of nodes are balanced too, where no search by chance finds the one way.
func TestManyNodesAreBalancedUnderTheCap(t *testing.T) {
	p := fleet.Problem{Resources: []string{"nvidia.com/gpu"}, GPUResources: []string{"nvidia.com/gpu"},
		Classes: []fleet.Class{{Name: "pod", Requests: []int64{1}, Count: 1601}},
		Shapes:  []fleet.Shape{{Name: "node", Allocatable: []int64{8}, Price: 16, GPUs: 8}},
		Limits:  fleet.Limits{MaxUnusedGPUs: ptr(1)}}
	plan := solve(t, p, fleet.Options{})
	if len(plan.Unplaced) > 0 || plan.Price != 201*16 {
		t.Errorf("%d pods wait and the plan costs %v, want none and 3216", count(plan), plan.Price)
	}
}

// A pod's part of a GPU may be tiny and the cap as large as a small node.
func TestOddProblemsUnderTheCap(t *testing.T) {
	p := fleet.Problem{Resources: []string{"nvidia.com/gpu"}, GPUResources: []string{"nvidia.com/gpu"},
		Classes: []fleet.Class{
			{Name: "grain", Requests: []int64{1}, Count: 3 << 22, Shapes: []int{0}},
			{Name: "whole", Requests: []int64{1 << 20}, Count: 1, Shapes: []int{0, 1}}},
		Shapes: []fleet.Shape{
			{Name: "eight", Allocatable: []int64{8 << 20}, Price: 16, GPUs: 8},
			{Name: "one", Allocatable: []int64{1 << 20}, Price: 1, GPUs: 1}},
		Limits: fleet.Limits{MaxUnusedGPUs: ptr(2)}}
	if plan := solve(t, p, fleet.Options{}); len(plan.Unplaced) > 0 || plan.Price != 32 {
		t.Errorf("%d pods wait and the plan costs %v, want none and 32", count(plan), plan.Price)
	}
}
