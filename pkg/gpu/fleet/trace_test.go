package fleet_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet/openb"
)

// traceProblem is the first n whole-GPU pods of a list that run on the families.
func traceProblem(t testing.TB, list, families string, n int) fleet.Problem {
	t.Helper()
	f, err := os.Open("../../../test/data/openb/openb_pod_list_" + list + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pods, err := openb.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	standIns, err := openb.StandIns()
	if err != nil {
		t.Fatal(err)
	}
	shapes, models := openb.Shapes(catalog.Default().GPUShapes(), strings.Split(families, "+"))
	var kept []openb.Pod
	for _, p := range openb.Whole(pods) {
		if len(kept) < n && p.Runs(shapes, p.Allowed(models, standIns)) {
			kept = append(kept, p)
		}
	}
	return openb.Problem(kept, shapes, models, standIns)
}

// The table of the benchmark, in small: the figures of the simple packing, and
// how far ours may be from the bound. Prices in $/h of us-east-1 on demand.
func TestTrace(t *testing.T) {
	tests := map[string]struct {
		list, families         string
		pods                   int
		wantGreedy, wantAtMost float64
	}{
		"20 pods on g6":               {"default", "g6", 20, 38.43, 38.38},
		"80 pods on g6":               {"default", "g6", 80, 117.12, 113.10},
		"400 pods on g6":              {"default", "g6", 400, 480.79, 463.50},
		"20 pods on four families":    {"default", "g4dn+g5+g6+g6e", 20, 29.11, 29.12},
		"80 pods on four families":    {"default", "g4dn+g5+g6+g6e", 80, 89.29, 85.90},
		"400 pods on four families":   {"default", "g4dn+g5+g6+g6e", 400, 370.70, 357.50},
		"20 pods on eight-GPU nodes":  {"default", "p4d+p5", 20, 87.83, 87.84},
		"80 pods on eight-GPU nodes":  {"default", "p4d+p5", 80, 277.25, 263.50},
		"400 pods on eight-GPU nodes": {"default", "p4d+p5", 400, 1251.59, 1185.72},
		"80 pods that name models":    {"gpuspec33", "g4dn+g5+g6+g6e", 80, 116.75, 114.70},
		"400 pods that name models":   {"gpuspec33", "g4dn+g5+g6+g6e", 400, 436.43, 423.50},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := traceProblem(t, tt.list, tt.families, tt.pods)
			plan, bound := solve(t, p, fleet.Options{}), lowerBound(t, p)
			greedy, err := fleet.Greedy(p)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(greedy.Price-tt.wantGreedy) > 0.01 {
				t.Errorf("greedy costs %.2f, want %.2f", greedy.Price, tt.wantGreedy)
			}
			if len(plan.Unplaced) > 0 || plan.Price > tt.wantAtMost {
				t.Errorf("ours costs %.2f and leaves %v, want at most %.2f and nothing", plan.Price, plan.Unplaced, tt.wantAtMost)
			}
			if plan.Price > bound.Price*1.02 || bound.Price > plan.Price+slack {
				t.Errorf("ours costs %.2f, want within 2 %% above the bound %.2f", plan.Price, bound.Price)
			}
		})
	}
}

func BenchmarkSolve(b *testing.B) {
	for _, size := range []struct {
		list string
		pods int
	}{{"default", 1000}, {"gpuspec33", 1000}, {"multigpu50", 5000}} {
		for _, families := range []string{"g4dn+g5+g6+g6e", allFamilies} {
			p := traceProblem(b, size.list, families, size.pods)
			pods := 0
			for _, c := range p.Classes {
				pods += c.Count
			}
			b.Run(fmt.Sprintf("pods=%d/classes=%d/shapes=%d", pods, len(p.Classes), len(p.Shapes)), func(b *testing.B) {
				b.ReportAllocs()
				var plan fleet.Plan
				for b.Loop() {
					plan, _ = fleet.Solve(p, fleet.Options{})
				}
				if err := fleet.Verify(p, plan); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(plan.Price/plan.LowerBound, "price/bound")
			})
		}
	}
}

func BenchmarkLowerBound(b *testing.B) {
	for _, n := range []int{100, 1000} {
		p := traceProblem(b, "default", allFamilies, n)
		b.Run(fmt.Sprintf("pods=%d/classes=%d/shapes=%d", n, len(p.Classes), len(p.Shapes)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lowerBound(b, p)
			}
		})
	}
}

const allFamilies = "g4dn+g5+g6+g6e+g7+g7e+gr6+p3+p3dn+p4d+p4de+p5+p5en+p6-b200+p6-b300"
