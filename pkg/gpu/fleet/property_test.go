package fleet_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
)

const slack = 1e-6

// On every case: bound ≤ optimum ≤ ours ≤ greedy. The share of cases where ours
// is the optimum is logged; it was 100 % of 400 when this was written.
func TestAgainstExhaustiveSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	solved, optimal, tight := 0, 0, 0
	for i := range 400 {
		p := tiny(rng, false)
		best := optimum(p)
		if math.IsInf(best, 1) {
			continue
		}
		plan := solve(t, p, fleet.Options{Seed: uint64(i)})
		bound := lowerBound(t, p)
		if len(plan.Unplaced) > 0 {
			t.Fatalf("case %d: pods unplaced that a plan of price %v places: %+v", i, best, p)
		}
		if bound.Price > best+slack || plan.LowerBound > best+slack {
			t.Fatalf("case %d: bounds %v and %v are above the optimum %v: %+v", i, bound.Price, plan.LowerBound, best, p)
		}
		if plan.Price < best-slack {
			t.Fatalf("case %d: price %v is below the optimum %v: %+v", i, plan.Price, best, p)
		}
		solved++
		if plan.Price <= best+slack {
			optimal++
		}
		if bound.Price >= best-slack {
			tight++
		}
	}
	t.Logf("of %d cases: optimum found in %d, bound tight in %d", solved, optimal, tight)
	if solved < 200 || optimal*100 < solved*98 {
		t.Errorf("optimum found in %d of %d cases, want 98 %% of 200 and more", optimal, solved)
	}
}

// With limits a plan is valid whatever is asked, and where everything can be
// placed it nearly always is, at the optimum.
func TestAgainstExhaustiveSearchWithLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	possible, optimal := 0, 0
	for i := range 400 {
		p := tiny(rng, true)
		plan := solve(t, p, fleet.Options{Seed: uint64(i)})
		best := optimum(p)
		if math.IsInf(best, 1) {
			if len(plan.Unplaced) == 0 {
				t.Fatalf("case %d: everything placed where nothing can: %+v", i, p)
			}
			continue
		}
		possible++
		if len(plan.Unplaced) == 0 && plan.Price <= best+slack {
			optimal++
		}
		if len(plan.Unplaced) == 0 && plan.Price < best-slack {
			t.Fatalf("case %d: price %v is below the optimum %v: %+v", i, plan.Price, best, p)
		}
	}
	t.Logf("of %d cases that can be placed: optimum found in %d", possible, optimal)
	if possible < 100 || optimal*100 < possible*95 {
		t.Errorf("optimum found in %d of %d cases, want 95 %% of 100 and more", optimal, possible)
	}
}

// The order of classes, shapes and resources is noise.
func TestInputOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 60 {
		p := tiny(rng, i%2 == 0)
		if i == 0 {
			p = traceProblem(t, "gpuspec33", "g4dn+g5+g6+g6e", 60)
		}
		want := describe(p, solve(t, p, fleet.Options{Seed: 7, Iterations: 300}))
		q := shuffled(p, rng)
		got := describe(q, solve(t, q, fleet.Options{Seed: 7, Iterations: 300}))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("case %d: plans differ by the order of the input (-want +got):\n%s", i, diff)
		}
	}
}

func shuffled(p fleet.Problem, rng *rand.Rand) fleet.Problem {
	classes, shapes, dims := rng.Perm(len(p.Classes)), rng.Perm(len(p.Shapes)), rng.Perm(len(p.Resources))
	vector := func(v []int64) []int64 {
		out := make([]int64, len(v))
		for i, d := range dims {
			out[i] = v[d]
		}
		return out
	}
	q := fleet.Problem{GPUResources: p.GPUResources, Limits: p.Limits}
	for _, d := range dims {
		q.Resources = append(q.Resources, p.Resources[d])
	}
	for _, s := range shapes {
		sh := p.Shapes[s]
		sh.Allocatable = vector(sh.Allocatable)
		q.Shapes = append(q.Shapes, sh)
	}
	for _, c := range classes {
		cl := p.Classes[c]
		cl.Requests = vector(cl.Requests)
		if cl.Shapes != nil {
			allowed := make([]int, len(cl.Shapes))
			for i, s := range cl.Shapes {
				allowed[i] = slices.Index(shapes, s)
			}
			cl.Shapes = allowed
		}
		q.Classes = append(q.Classes, cl)
	}
	return q
}

type named struct {
	Price    float64
	Bound    float64
	Nodes    []map[string]int
	Unplaced map[string]int
	Reasons  map[string]fleet.Reason
}

func describe(p fleet.Problem, plan fleet.Plan) named {
	out := named{Price: math.Round(plan.Price * 1e6), Bound: math.Round(plan.LowerBound * 1e6),
		Unplaced: map[string]int{}, Reasons: map[string]fleet.Reason{}}
	for _, n := range plan.Nodes {
		node := map[string]int{p.Shapes[n.Shape].Name + " nodes": n.Count}
		for _, s := range n.Pods {
			node[p.Classes[s.Class].Name] = s.Count
		}
		out.Nodes = append(out.Nodes, node)
	}
	for _, u := range plan.Unplaced {
		out.Unplaced[p.Classes[u.Class].Name] = u.Count
		out.Reasons[p.Classes[u.Class].Name] = u.Reason
	}
	return out
}

// solve runs Solve and Greedy, checks both plans from first principles, and
// their order.
func solve(t testing.TB, p fleet.Problem, o fleet.Options) fleet.Plan {
	t.Helper()
	plan, err := fleet.Solve(p, o)
	if err != nil {
		t.Fatalf("solving %+v: %v", p, err)
	}
	simple, err := fleet.Greedy(p)
	if err != nil {
		t.Fatalf("packing %+v: %v", p, err)
	}
	for name, pl := range map[string]fleet.Plan{"solve": plan, "greedy": simple} {
		if err := fleet.Verify(p, pl); err != nil {
			t.Fatalf("%s made an invalid plan for %+v: %v", name, p, err)
		}
	}
	if n, g := count(plan), count(simple); n > g || n == g && plan.Price > simple.Price+slack {
		t.Fatalf("ours leaves %d pods and costs %v, greedy %d and %v, for %+v", n, plan.Price, g, simple.Price, p)
	}
	if len(plan.Unplaced) == 0 && plan.LowerBound > plan.Price+slack {
		t.Fatalf("bound %v is above the plan's price %v for %+v", plan.LowerBound, plan.Price, p)
	}
	return plan
}

func count(plan fleet.Plan) (n int) {
	for _, u := range plan.Unplaced {
		n += u.Count
	}
	return n
}

func lowerBound(t testing.TB, p fleet.Problem) fleet.Bound {
	t.Helper()
	b, err := fleet.LowerBound(p)
	if err != nil {
		t.Fatalf("bounding %+v: %v", p, err)
	}
	return b
}
