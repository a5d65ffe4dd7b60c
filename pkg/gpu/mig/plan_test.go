package mig_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata/plan")

// TestPlanScenarios plays testdata/plan/*.txt: a comment, what is wanted on
// which GPU, and below the line the plan.
func TestPlanScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/plan/*.txt")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d scenario files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for i, scenario := range strings.Split(strings.TrimSpace(string(b)), "\n\n") {
				question, _, ok := strings.Cut(scenario, "\n----\n")
				if !ok {
					t.Fatalf("scenario %d has no line", i)
				}
				fmt.Fprintf(&out, "%s\n----\n%s\n\n", question, answer(t, question))
			}
			got := strings.TrimSuffix(out.String(), "\n")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(string(b), got); d != "" && !*update {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// answer plans the question and prints the plan for a reader.
func answer(t *testing.T, question string) string {
	t.Helper()
	g, demand, opts := parseQuestion(t, question)
	plan, err := g.Plan(demand, opts...)
	if err != nil {
		return "error: " + err.Error()
	}
	proof := "no plan needs fewer"
	if !plan.Optimal {
		proof = fmt.Sprintf("at least %d needed", plan.LowerBound)
	}
	lines := []string{fmt.Sprintf("%d GPUs, %s", plan.GPUs(), proof)}
	for _, s := range plan.Shares {
		held := s.Layout.Counts().String()
		if !s.Layout.MIGEnabled() {
			held = "one whole GPU"
		}
		lines = append(lines, fmt.Sprintf("  %d × %s (%s)", s.GPUs, s.Layout.Name(), held))
	}
	return strings.Join(append(lines, fmt.Sprintf("spare: %s; wasted: %d memory units, %d compute slices", plan.Spare, plan.Waste.MemoryUnits, plan.Waste.ComputeSlices)), "\n")
}

func parseQuestion(t *testing.T, question string) (*mig.Geometry, mig.Demand, []mig.Option) {
	t.Helper()
	asked := map[string]string{}
	for line := range strings.Lines(question) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(line, "#") {
			asked[key] = value
		}
	}
	g, ok := mig.ForProduct(asked["gpu"])
	if !ok {
		t.Fatalf("no GPU %q", asked["gpu"])
	}
	demand := parseDemand(t, asked["wanted"])
	var opts []mig.Option
	for key, value := range asked {
		switch key {
		case "gpu", "wanted":
		case "whole GPUs":
			opts = append(opts, mig.WithWholeGPUs(parseDemand(t, value+" x")["x"]))
		case "only layouts":
			for name := range strings.FieldsSeq(value) {
				opts = append(opts, mig.WithLayouts(layout(t, g.Key(), name)))
			}
		case "may also cut":
			opts = append(opts, mig.WithProfiles(strings.Fields(value)...))
		default:
			t.Fatalf("no question: %q", key)
		}
	}
	return g, demand, opts
}

func parseDemand(t *testing.T, s string) mig.Demand {
	t.Helper()
	d := mig.Demand{}
	for part := range strings.SplitSeq(s, ", ") {
		var n int
		var name string
		if _, err := fmt.Sscanf(part, "%d %s", &n, &name); err != nil {
			t.Fatalf("%q: %v", part, err)
		}
		d[name] += n
	}
	return d
}

// TestPlanIsOptimalUpToTwoGPUs compares random demands with exhaustive search:
// the number of GPUs with every way to split the demand over two GPUs, and
// waste and distinct layouts with every pair of maximal layouts.
func TestPlanIsOptimalUpToTwoGPUs(t *testing.T) {
	all := oracles(t)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		o, g := all[key], geometry(t, key)
		r := rand.New(rand.NewPCG(1, 2))
		solved, rounds := 0, 30
		if slices.Contains([]string{"a30-24gb", "h100-80gb", "rtxpro6000-96gb"}, key) {
			rounds = 200 // the others have the same table with other names
		}
		for range rounds {
			if checkOptimal(t, o, g, randomDemand(r, o.raw, 1+r.IntN(10))) {
				solved++
			}
		}
		if solved*5 < rounds {
			t.Errorf("%s: %d of the demands fit two GPUs", key, solved)
		}
	}
}

// checkOptimal reports whether the demand takes at most two GPUs; if so the plan
// must be as good as any.
func checkOptimal(t *testing.T, o *oracle, g *mig.Geometry, d mig.Demand) bool {
	t.Helper()
	plan, err := g.Plan(d)
	if err != nil {
		t.Fatalf("%s: %s: %v", g.Key(), d, err)
	}
	checkPlan(t, o, d, plan)
	want := o.gpus(d, 2)
	if want > 2 {
		if plan.GPUs() < 3 {
			t.Fatalf("%s: %s takes %d GPUs, exhaustive search finds no two", g.Key(), d, plan.GPUs())
		}
		return false
	}
	waste, kinds := o.bestPair(d, want)
	if plan.GPUs() != want || plan.LowerBound != want || !plan.Optimal || plan.Waste != waste || len(plan.Shares) != kinds {
		t.Fatalf("%s: %s: got %d GPUs (bound %d, optimal %t), waste %v, %d layouts; want %d, %v, %d",
			g.Key(), d, plan.GPUs(), plan.LowerBound, plan.Optimal, plan.Waste, len(plan.Shares), want, waste, kinds)
	}
	return true
}

// bestPair returns the least waste of all covers by n maximal layouts, and the
// fewest distinct layouts at that waste.
func (o *oracle) bestPair(d mig.Demand, n int) (mig.Waste, int) {
	layouts := o.maximal(slices.Sorted(maps.Keys(d)))
	best, kinds, found := mig.Waste{}, 0, false
	try := func(k int, held ...mig.Demand) {
		w, sum := mig.Waste{}, mig.Demand{}
		for _, h := range held {
			sum = sum.Plus(h)
			w.MemoryUnits += o.waste(h).MemoryUnits
			w.ComputeSlices += o.waste(h).ComputeSlices
		}
		for name, want := range d {
			if sum[name] < want {
				return
			}
		}
		if !found || less(w, k, best, kinds) {
			best, kinds, found = w, k, true
		}
	}
	for i, a := range layouts {
		if n == 1 {
			try(1, a)
			continue
		}
		for _, b := range layouts[i+1:] {
			try(2, a, b)
		}
		try(1, a, a)
	}
	return best, kinds
}

func less(a mig.Waste, kindsA int, b mig.Waste, kindsB int) bool {
	return slices.Compare([]int{a.MemoryUnits, a.ComputeSlices, kindsA}, []int{b.MemoryUnits, b.ComputeSlices, kindsB}) < 0
}

// checkPlan checks what every plan must keep: it serves the demand, each layout
// fits a GPU, and the sums are right.
func checkPlan(t *testing.T, o *oracle, d mig.Demand, plan mig.Plan) {
	t.Helper()
	var waste mig.Waste
	for _, s := range plan.Shares {
		if s.GPUs < 1 || !o.holds(s.Layout.Counts()) {
			t.Fatalf("%s: %d × %s, which no GPU holds", d, s.GPUs, s.Layout.Counts())
		}
		waste.MemoryUnits += s.GPUs * o.waste(s.Layout.Counts()).MemoryUnits
		waste.ComputeSlices += s.GPUs * o.waste(s.Layout.Counts()).ComputeSlices
	}
	supply := plan.Supply()
	for name, n := range d {
		if supply[name]-n != plan.Spare[name] || plan.Spare[name] < 0 {
			t.Fatalf("%s: supply %s, spare %s", d, supply, plan.Spare)
		}
	}
	if waste != plan.Waste || plan.LowerBound > plan.GPUs() || plan.Optimal && plan.LowerBound != plan.GPUs() {
		t.Fatalf("%s: waste %v, want %v; %d GPUs, bound %d, optimal %t", d, plan.Waste, waste, plan.GPUs(), plan.LowerBound, plan.Optimal)
	}
}

// TestPlanIsExactAtThreeGPUs goes one GPU beyond the promise.
func TestPlanIsExactAtThreeGPUs(t *testing.T) {
	raw := rawData(t)["h100-80gb"]
	o, g := newOracle(raw), geometry(t, "h100-80gb")
	r := rand.New(rand.NewPCG(3, 4))
	for range 25 {
		d := randomDemand(r, raw, 6+r.IntN(4))
		plan, err := g.Plan(d)
		if err != nil {
			t.Fatal(err)
		}
		if want := o.gpus(d, 3); want <= 3 && plan.GPUs() != want {
			t.Errorf("%s takes %d GPUs, want %d", d, plan.GPUs(), want)
		}
	}
}

// TestPlanIsNearTheBound holds large plans to one GPU above the proven bound,
// and most of them to the bound itself.
func TestPlanIsNearTheBound(t *testing.T) {
	all := oracles(t)
	for _, key := range []string{"a30-24gb", "a100-40gb", "h100-80gb", "rtxpro6000-96gb"} {
		o, g := all[key], geometry(t, key)
		r := rand.New(rand.NewPCG(5, 6))
		at, total := 0, 0
		for _, size := range []int{20, 50, 200, 1000} {
			for range 15 {
				d := randomDemand(r, o.raw, size)
				plan, err := g.Plan(d)
				if err != nil {
					t.Fatal(err)
				}
				checkPlan(t, o, d, plan)
				total++
				switch plan.GPUs() - plan.LowerBound {
				case 0:
					at++
				case 1:
				default:
					t.Errorf("%s: %s takes %d GPUs, the bound is %d", key, d, plan.GPUs(), plan.LowerBound)
				}
			}
		}
		t.Logf("%s: %d of %d plans meet the bound", key, at, total)
		if at*10 < total*9 {
			t.Errorf("%s: only %d of %d plans meet the bound", key, at, total)
		}
	}
}

func TestPlanIsDeterministic(t *testing.T) {
	raw := rawData(t)["h100-80gb"]
	g := geometry(t, "h100-80gb")
	layouts := g.Maximal()
	r := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		d := randomDemand(r, raw, 1+r.IntN(100))
		delete(d, "1g.10gb+me")
		want, err := g.Plan(d, mig.WithLayouts(layouts...))
		if err != nil {
			t.Fatal(err)
		}
		r.Shuffle(len(layouts), func(i, j int) { layouts[i], layouts[j] = layouts[j], layouts[i] })
		got, err := g.Plan(maps.Clone(d), mig.WithLayouts(append(layouts, layouts[0])...))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-first +second):\n%s", d, diff)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	g := geometry(t, "h100-80gb")
	ones, _ := g.Layout("all-1g.10gb")
	off, _ := g.Layout("all-disabled")
	foreign, _ := geometry(t, "a30-24gb").Layout("all-1g.6gb")
	for name, tc := range map[string]struct {
		demand  mig.Demand
		opts    []mig.Option
		wantErr string
	}{
		"no layout with the profile": {mig.Demand{"3g.40gb": 1}, []mig.Option{mig.WithLayouts(ones)}, "planning 1×3g.40gb on h100-80gb, 3g.40gb: no allowed layout offers the profile; allow one that does, such as all-3g.40gb"},
		"only whole GPUs":            {mig.Demand{"3g.40gb": 1}, []mig.Option{mig.WithLayouts(off)}, "no allowed layout offers the profile"},
		"no layout at all":           {mig.Demand{"3g.40gb": 1}, []mig.Option{mig.WithLayouts()}, "no allowed layout offers the profile"},
		"a layout of another model":  {mig.Demand{"1g.10gb": 1}, []mig.Option{mig.WithLayouts(ones, foreign)}, `layout "all-1g.6gb" is for a30-24gb, not for h100-80gb`},
		"an empty layout":            {mig.Demand{"1g.10gb": 1}, []mig.Option{mig.WithLayouts(mig.Layout{})}, "is for no model"},
		"layouts and profiles":       {mig.Demand{"1g.10gb": 1}, []mig.Option{mig.WithLayouts(ones), mig.WithProfiles("3g.40gb")}, "drop WithProfiles"},
		"an unknown profile":         {mig.Demand{"1g.5gb": 1}, nil, "looking for 1g.5gb on h100-80gb, it has"},
		"an unknown profile to fill": {mig.Demand{"1g.10gb": 1}, []mig.Option{mig.WithProfiles("1g.5gb")}, "looking for 1g.5gb"},
		"negative whole GPUs":        {nil, []mig.Option{mig.WithWholeGPUs(-1)}, "WithWholeGPUs is -1, want 0 to 1000000"},
		"a negative count":           {mig.Demand{"1g.10gb": -3}, nil, "-3 is negative"},
		"too much":                   {mig.Demand{"1g.10gb": 1 << 62, "3g.40gb": 1 << 62}, nil, "more than 1000000 partitions in all; split the demand"},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := g.Plan(tc.demand, tc.opts...)
			wantError(t, err, tc.wantErr)
			if len(plan.Shares) > 0 {
				t.Errorf("a plan beside the error: %v", plan)
			}
			if strings.Contains(tc.wantErr, "no allowed") && !errors.Is(err, mig.ErrNoLayout) {
				t.Errorf("%v is not ErrNoLayout", err)
			}
		})
	}
}

// TestPlanAtTheLimit plans as much as is allowed.
func TestPlanAtTheLimit(t *testing.T) {
	plan, err := geometry(t, "h100-80gb").Plan(mig.Demand{"1g.10gb": mig.MaxDemand - 1, "3g.40gb": 1})
	if err != nil || plan.GPUs() != 142858 || !plan.Optimal { // the 3g leaves 4 slices, ⌈999,995/7⌉ GPUs the rest
		t.Errorf("%d GPUs, bound %d, %v", plan.GPUs(), plan.LowerBound, err)
	}
}

// TestPlanNamesBoardsAsDemanded follows the names of the demand, or of the
// layouts.
func TestPlanNamesBoardsAsDemanded(t *testing.T) {
	g := geometry(t, "gb200-186gb")
	plan, err := g.Plan(mig.Demand{"7g.189gb": 1, "2g.47gb": 1})
	if err != nil || plan.Shares[0].Layout.Name() != "all-7g.189gb" || plan.Shares[0].Layout.Geometry().Key() != "gb200-189gb" {
		t.Errorf("%v, %v", plan, err)
	}
	l, _ := geometry(t, "gb200-189gb").Layout("all-2g.47gb")
	if plan, err = g.Plan(mig.Demand{"2g.47gb": 1}, mig.WithLayouts(l)); err != nil || !cmp.Equal(plan.Shares[0].Layout, l) {
		t.Errorf("%v, %v", plan, err)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add(uint8(0), uint16(7), uint16(1), uint16(0), uint16(2))
	f.Add(uint8(14), uint16(1), uint16(1), uint16(1), uint16(1))
	f.Fuzz(func(t *testing.T, model uint8, a, b, c, e uint16) {
		all := mig.Geometries()
		g := all[int(model)%len(all)]
		d := mig.Demand{}
		profiles := g.Profiles()
		for i, n := range []uint16{a, b, c, e} {
			d[profiles[(int(model)/len(all)+i*3)%len(profiles)].Name()] += int(n)
		}
		plan, err := g.Plan(d)
		if err != nil {
			t.Fatal(err)
		}
		supply := plan.Supply()
		for name, n := range d {
			if supply[name] < n {
				t.Fatalf("%s: supply %s", d, supply)
			}
		}
		if gap := plan.GPUs() - plan.LowerBound; gap < 0 || gap > 2 {
			t.Fatalf("%s: %d GPUs, bound %d", d, plan.GPUs(), plan.LowerBound)
		}
	})
}

// BenchmarkPlan plans partitions of every profile that the model has, or of few.
// The gate is 50 ms for 10,000 on one core.
func BenchmarkPlan(b *testing.B) {
	raws := rawData(b)
	for _, key := range []string{"a30-24gb", "h100-80gb", "rtxpro6000-96gb"} {
		for _, size := range []int{10, 1000, 10_000} {
			for _, profiles := range []int{3, len(raws[key].Profiles)} {
				b.Run(fmt.Sprintf("gpu=%s/partitions=%d/profiles=%d", key, size, profiles), func(b *testing.B) {
					raw := raws[key]
					raw.Profiles = raw.Profiles[len(raw.Profiles)-profiles:]
					d := randomDemand(rand.New(rand.NewPCG(9, 10)), raw, size)
					g := geometry(b, key)
					plan, err := g.Plan(d)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportAllocs()
					for b.Loop() {
						plan, _ = g.Plan(d)
					}
					b.ReportMetric(float64(plan.GPUs()), "GPUs")
					b.ReportMetric(float64(plan.GPUs()-plan.LowerBound), "GPUs-over-bound")
				})
			}
		}
	}
}

// randomDemand draws partitions with random weights for the profiles, so that
// some demands are dominated by few.
func randomDemand(r *rand.Rand, raw rawGPU, size int) mig.Demand {
	weights := make([]float64, len(raw.Profiles))
	total := 0.0
	for i := range weights {
		weights[i] = r.Float64() * r.Float64()
		total += weights[i]
	}
	d := mig.Demand{}
	for range size {
		x := r.Float64() * total
		for i, w := range weights {
			if x -= w; x < 0 || i == len(weights)-1 {
				d[raw.Profiles[i].Name]++
				break
			}
		}
	}
	return d
}
