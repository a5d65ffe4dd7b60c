package fleet_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
)

// small is a valid problem: two 1-GPU pods, a 1-GPU and an 8-GPU shape.
func small() fleet.Problem {
	return fleet.Problem{
		Resources: []string{"cpu", "nvidia.com/gpu"}, GPUResources: []string{"nvidia.com/gpu"},
		Classes: []fleet.Class{{Name: "a", Requests: []int64{2, 1}, Count: 2}},
		Shapes: []fleet.Shape{
			{Name: "gpu8", Allocatable: []int64{64, 8}, Price: 16, GPUs: 8},
			{Name: "gpu1", Allocatable: []int64{4, 1}, Price: 1, GPUs: 1}},
	}
}

func TestFaultyProblems(t *testing.T) {
	tests := map[string]struct {
		change func(*fleet.Problem)
		want   string
	}{
		"a price that is not a number":       {func(p *fleet.Problem) { p.Shapes[0].Price = math.NaN() }, "shapes[0] (gpu8).price is NaN; use a number from 0 to 1e12"},
		"an infinite price":                  {func(p *fleet.Problem) { p.Shapes[0].Price = math.Inf(1) }, "shapes[0] (gpu8).price is +Inf; use a number from 0 to 1e12"},
		"a negative price":                   {func(p *fleet.Problem) { p.Shapes[1].Price = -1 }, "shapes[1] (gpu1).price is -1; use a number from 0 to 1e12"},
		"a negative request":                 {func(p *fleet.Problem) { p.Classes[0].Requests[1] = -1 }, "classes[0] (a).requests[1] is -1; use 0 or more"},
		"a negative allocatable":             {func(p *fleet.Problem) { p.Shapes[0].Allocatable[0] = -64 }, "shapes[0] (gpu8).allocatable[0] is -64; use 0 or more"},
		"requests of another length":         {func(p *fleet.Problem) { p.Classes[0].Requests = []int64{1} }, "classes[0] (a).requests has 1 entries; give one for each of the 2 resources"},
		"a negative count":                   {func(p *fleet.Problem) { p.Classes[0].Count = -1 }, "classes[0] (a).count is -1; use 0 to 16777216"},
		"more pods than any cluster":         {func(p *fleet.Problem) { p.Classes[0].Count = math.MaxInt }, "classes[0] (a).count is 9223372036854775807; use 0 to 16777216"},
		"a shape that does not exist":        {func(p *fleet.Problem) { p.Classes[0].Shapes = []int{2} }, "classes[0] (a).shapes has index 2; use 0 to 1"},
		"a negative cap per node":            {func(p *fleet.Problem) { p.Classes[0].MaxPerNode = -1 }, "classes[0] (a).maxPerNode is -1; use 1 or more, or 0 for no cap"},
		"a negative cap on nodes":            {func(p *fleet.Problem) { p.Shapes[0].MaxNodes = -2 }, "shapes[0] (gpu8).maxNodes is -2; use 1 or more, or 0 for no cap"},
		"negative GPUs":                      {func(p *fleet.Problem) { p.Shapes[0].GPUs = -8 }, "shapes[0] (gpu8).gpus is -8; use 0 to 16777216"},
		"two shapes of one name":             {func(p *fleet.Problem) { p.Shapes[1].Name = "gpu8" }, `shapes[0] and [1] are both named "gpu8"; give them different names`},
		"a class without a name":             {func(p *fleet.Problem) { p.Classes[0].Name = "" }, "classes[0] has no name; give it one"},
		"a GPU resource that is not there":   {func(p *fleet.Problem) { p.GPUResources = []string{"mig"} }, `gpuResources[0] is "mig", which is not in resources; add it there`},
		"a negative limit of GPUs":           {func(p *fleet.Problem) { p.Limits.GPUs = ptr(-1) }, "limits.gpus is -1; use 0 or more, or leave it out"},
		"a negative limit of unused GPUs":    {func(p *fleet.Problem) { p.Limits.MaxUnusedGPUs = ptr(-1) }, "limits.maxUnusedGPUs is -1; use 0 or more, or leave it out"},
		"a limit of price that is no number": {func(p *fleet.Problem) { p.Limits.PricePerHour = ptr(math.NaN()) }, "limits.pricePerHour is NaN; use a number from 0 to 1e12, or leave it out"},
		"classes too many together but valid": {func(p *fleet.Problem) {
			p.Classes = []fleet.Class{{Name: "a", Requests: []int64{1, 1}, Count: 1 << 24}, {Name: "b", Requests: []int64{1, 1}, Count: 1}}
		}, "classes have more than 16777216 pods together; solve them in parts"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := small()
			tt.change(&p)
			_, solveErr := fleet.Solve(p, fleet.Options{})
			_, greedyErr := fleet.Greedy(p)
			_, boundErr := fleet.LowerBound(p)
			for fn, err := range map[string]error{"Solve": solveErr, "Greedy": greedyErr, "LowerBound": boundErr} {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s returns %v, want an error with %q", fn, err, tt.want)
				}
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestOddProblems(t *testing.T) {
	tests := map[string]struct {
		change       func(*fleet.Problem)
		wantPrice    float64
		wantUnplaced []fleet.Unplaced
	}{
		"two 1-GPU pods get two small nodes": {func(*fleet.Problem) {}, 2, nil},
		"nothing to place costs nothing":     {func(p *fleet.Problem) { p.Classes = nil }, 0, nil},
		"a class of no pods costs nothing":   {func(p *fleet.Problem) { p.Classes[0].Count = 0 }, 0, nil},
		"an empty problem":                   {func(p *fleet.Problem) { *p = fleet.Problem{} }, 0, nil},
		"no shapes at all": {func(p *fleet.Problem) { p.Shapes = nil }, 0,
			[]fleet.Unplaced{{Class: 0, Count: 2, Reason: fleet.ReasonNoShape, Shape: -1}}},
		"every shape smaller than the pod": {func(p *fleet.Problem) { p.Classes[0].Requests[0] = 65 }, 0,
			[]fleet.Unplaced{{Class: 0, Count: 2, Reason: fleet.ReasonNoShape, Shape: -1}}},
		"a class that may run nowhere": {func(p *fleet.Problem) { p.Classes[0].Shapes = []int{} }, 0,
			[]fleet.Unplaced{{Class: 0, Count: 2, Reason: fleet.ReasonNoShape, Shape: -1}}},
		"pods that request nothing share a node": {func(p *fleet.Problem) {
			p.Classes[0].Requests, p.Classes[0].Count = []int64{0, 0}, 1<<20
		}, 1, nil},
		"pods that request nothing but keep apart": {func(p *fleet.Problem) {
			p.Classes[0].Requests, p.Classes[0].MaxPerNode = []int64{0, 0}, 1
		}, 2, nil},
		"a problem without resources": {func(p *fleet.Problem) {
			p.Resources, p.GPUResources, p.Classes[0].Requests = nil, nil, nil
			p.Shapes[0].Allocatable, p.Shapes[1].Allocatable = nil, nil
		}, 1, nil},
		"the largest requests there are": {func(p *fleet.Problem) {
			p.Classes[0].Requests = []int64{math.MaxInt64, 1}
			p.Shapes[0].Allocatable = []int64{math.MaxInt64, 8}
		}, 32, nil},
		"requests that overflow when added": {func(p *fleet.Problem) {
			p.Classes[0].Requests = []int64{math.MaxInt64/2 + 1, 1}
			p.Shapes[0].Allocatable = []int64{math.MaxInt64, 8}
		}, 32, nil},
		"a million tiny pods on huge nodes": {func(p *fleet.Problem) {
			p.Classes[0].Requests, p.Classes[0].Count = []int64{1, 0}, 1_000_000
			p.Shapes[0].Allocatable = []int64{math.MaxInt64, 8}
		}, 16, nil},
		"a free shape is taken": {func(p *fleet.Problem) { p.Shapes[0].Price = 0 }, 0, nil},
		"two names of one class are merged": {func(p *fleet.Problem) {
			p.Classes = append(p.Classes, fleet.Class{Name: "b", Requests: []int64{2, 1}, Count: 1})
		}, 3, nil},
		"a cap on the small nodes": {func(p *fleet.Problem) { p.Shapes[1].MaxNodes = 1 }, 16, nil},
		"caps that leave a pod": {func(p *fleet.Problem) { p.Shapes[1].MaxNodes, p.Classes[0].Shapes = 1, []int{1} }, 1,
			[]fleet.Unplaced{{Class: 0, Count: 1, Reason: fleet.ReasonMaxNodes, Shape: 1}}},
		"an oversized launch is refused": {func(p *fleet.Problem) { p.Limits.MaxUnusedGPUs, p.Classes[0].Shapes = ptr(5), []int{0} }, 0,
			[]fleet.Unplaced{{Class: 0, Count: 2, Reason: fleet.ReasonUnusedGPUs, Shape: 0}}},
		"the oversize cap holds exactly": {func(p *fleet.Problem) { p.Limits.MaxUnusedGPUs, p.Classes[0].Shapes = ptr(6), []int{0} }, 16, nil},
		"a limit on GPUs": {func(p *fleet.Problem) { p.Limits.GPUs = ptr(1) }, 1,
			[]fleet.Unplaced{{Class: 0, Count: 1, Reason: fleet.ReasonGPULimit, Shape: 1}}},
		"a limit on price": {func(p *fleet.Problem) { p.Limits.PricePerHour = ptr(1.5) }, 1,
			[]fleet.Unplaced{{Class: 0, Count: 1, Reason: fleet.ReasonPriceLimit, Shape: 1}}},
		"a limit on price that is reached exactly": {func(p *fleet.Problem) { p.Limits.PricePerHour = ptr(2.0) }, 2, nil},
		"limits of nothing": {func(p *fleet.Problem) { p.Limits.GPUs, p.Limits.PricePerHour = ptr(0), ptr(0.0) }, 0,
			[]fleet.Unplaced{{Class: 0, Count: 2, Reason: fleet.ReasonGPULimit, Shape: 1}}},
		"replicas of a shared GPU count as one GPU in use": {func(p *fleet.Problem) {
			p.Shapes = []fleet.Shape{{Name: "shared", Allocatable: []int64{64, 40}, Price: 16, GPUs: 8}} // 5 replicas each
			p.Classes[0].Count, p.Limits.MaxUnusedGPUs = 6, ptr(6)
		}, 16, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := small()
			tt.change(&p)
			plan := solve(t, p, fleet.Options{})
			if math.Abs(plan.Price-tt.wantPrice) > slack {
				t.Errorf("price %v, want %v", plan.Price, tt.wantPrice)
			}
			if diff := cmp.Diff(tt.wantUnplaced, plan.Unplaced); diff != "" {
				t.Errorf("unplaced (-want +got):\n%s", diff)
			}
			if b := lowerBound(t, p); len(plan.Unplaced) == 0 && b.Price > plan.Price+slack {
				t.Errorf("bound %v is above the price %v", b.Price, plan.Price)
			}
		})
	}
}

func TestStopEndsEarlyWithAValidPlan(t *testing.T) {
	p := traceProblem(t, "default", "g4dn+g5+g6+g6e", 80)
	asked := 0
	plan := solve(t, p, fleet.Options{Stop: func() bool { asked++; return true }})
	if len(plan.Unplaced) > 0 || asked == 0 || asked > 3 {
		t.Errorf("stop was asked %d times and %d classes are unplaced, want 1 to 3 and none", asked, len(plan.Unplaced))
	}
}

func TestVerifyFindsFaults(t *testing.T) {
	plan := func() fleet.Plan {
		return fleet.Plan{Price: 2, GPUs: 2, Nodes: []fleet.Node{{Shape: 1, Count: 2, Pods: []fleet.Share{{Class: 0, Count: 1}}}}}
	}
	tests := map[string]struct {
		change func(*fleet.Problem, *fleet.Plan)
		want   string
	}{
		"a pod too many": {func(_ *fleet.Problem, pl *fleet.Plan) { pl.Nodes[0].Count, pl.Price, pl.GPUs = 3, 3, 3 }, "class a has 2 pods and the plan accounts for 3"},
		"a pod lost":     {func(_ *fleet.Problem, pl *fleet.Plan) { pl.Nodes[0].Count, pl.Price, pl.GPUs = 1, 1, 1 }, "class a has 2 pods and the plan accounts for 1"},
		"a node over its capacity": {func(_ *fleet.Problem, pl *fleet.Plan) {
			pl.Nodes[0] = fleet.Node{Shape: 1, Count: 1, Pods: []fleet.Share{{Class: 0, Count: 2}}}
		}, "nodes[0] is over its nvidia.com/gpu by 1"},
		"a wrong price":           {func(_ *fleet.Problem, pl *fleet.Plan) { pl.Price = 1 }, "the plan says a price of 1 and costs 2"},
		"a shape not allowed":     {func(p *fleet.Problem, _ *fleet.Plan) { p.Classes[0].Shapes = []int{0} }, "nodes[0] is of shape gpu1, which class a may not run on"},
		"a cap on nodes broken":   {func(p *fleet.Problem, _ *fleet.Plan) { p.Shapes[1].MaxNodes = 1 }, "the plan has 2 nodes of shape gpu1, over its cap of 1"},
		"a limit of GPUs broken":  {func(p *fleet.Problem, _ *fleet.Plan) { p.Limits.GPUs = ptr(1) }, "the plan has 2 GPUs of at most 1"},
		"a limit of price broken": {func(p *fleet.Problem, _ *fleet.Plan) { p.Limits.PricePerHour = ptr(1.5) }, "the plan costs 2 of at most 1.5"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, pl := small(), plan()
			if err := fleet.Verify(p, pl); err != nil {
				t.Fatalf("the plan is faulty before the change: %v", err)
			}
			tt.change(&p, &pl)
			if err := fleet.Verify(p, pl); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
