package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// fillOracle is the value of the best fill, by trying all.
func fillOracle(m *model, s, c int, values []float64, free []int64) float64 {
	if c == len(m.classes) {
		return 0
	}
	best := fillOracle(m, s, c+1, values, free)
	if !m.classes[c].mask.has(s) {
		return best
	}
	left := append([]int64(nil), free...)
	for k := 1; k <= min(m.classes[c].n, m.classes[c].perNode); k++ {
		for d, r := range m.classes[c].req {
			if left[d] -= r; left[d] < 0 {
				return best
			}
		}
		best = max(best, float64(k)*values[c]+fillOracle(m, s, c+1, values, left))
	}
	return best
}

// The bound on a fill is never below the best one, whatever the budget, and
// with a large one it is that value and comes with the fill.
func TestPricerAgainstTryingAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for i := range 500 {
		p := Problem{Resources: []string{"x", "y", "z"}, Shapes: []Shape{{Name: "s", Price: 1, Allocatable: []int64{5 + rng.Int64N(15), 5 + rng.Int64N(15), 4}}}}
		for c := range 1 + rng.IntN(6) {
			p.Classes = append(p.Classes, Class{Name: fmt.Sprint(c), Count: 1 + rng.IntN(4), MaxPerNode: rng.IntN(4),
				Requests: []int64{rng.Int64N(6), rng.Int64N(6), rng.Int64N(3)}})
		}
		m := newModel(p)
		values := make([]float64, len(m.classes))
		for c := range values {
			values[c] = rng.Float64()
		}
		want := fillOracle(m, 0, 0, values, m.shapes[0].alloc)
		for _, budget := range []int{0, 3, 30, 1 << 20} {
			bound, fill := newPricer(m, 0).solve(values, 0, rng.IntN(10), budget)
			if bound < want*(1-1e-9) {
				t.Fatalf("case %d, budget %d: bound %v is below the best fill %v: %+v", i, budget, bound, want, p)
			}
			got := 0.0
			for _, s := range fill {
				got += float64(s.n) * values[s.class]
			}
			if budget == 1<<20 && (math.Abs(bound-want) > 1e-9 || math.Abs(got-want) > 1e-9) {
				t.Fatalf("case %d: bound %v and fill %v, want %v: %+v", i, bound, got, want, p)
			}
		}
	}
}

// A free-standing linear program with a known optimum: three ways to cover two
// rows, of which the two cheap ones mix.
func TestMasterFindsTheOptimum(t *testing.T) {
	lp := newMaster([]float64{10, 6}, []column{{cost: 3, pods: []share{{0, 1}}}, {cost: 4, pods: []share{{1, 1}}}})
	lp.cols = append(lp.cols, column{cost: 5, pods: []share{{0, 1}, {1, 1}}}, column{cost: 4, pods: []share{{0, 2}}})
	lp.optimize(100)
	// 6 of the pair (30) and 2 of the double (8).
	if got := 10*lp.prices[0] + 6*lp.prices[1]; math.Abs(got-38) > 1e-6 {
		t.Errorf("optimum %v, want 38", got)
	}
}

func TestUnused(t *testing.T) {
	tests := map[string]struct {
		alloc, load []int64
		gpus, want  int
	}{
		"an empty node":                          {[]int64{8, 0}, []int64{0, 0}, 8, 8},
		"whole GPUs":                             {[]int64{8, 0}, []int64{3, 0}, 8, 5},
		"replicas fill one GPU before the next":  {[]int64{40, 0}, []int64{6, 0}, 8, 6},
		"two kinds of partition share the GPUs":  {[]int64{16, 8}, []int64{5, 4}, 8, 4},
		"a node without GPUs":                    {[]int64{0, 0}, []int64{0, 0}, 0, 0},
		"partitions of more GPUs than are there": {[]int64{1, 0}, []int64{1, 0}, 8, 0},
		"the largest amounts there are":          {[]int64{math.MaxInt64, 0}, []int64{math.MaxInt64, 0}, 1 << 24, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := &model{gpuDims: []int{0, 1}}
			if got := m.unused(&shape{alloc: tt.alloc, gpus: tt.gpus}, tt.load); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}
