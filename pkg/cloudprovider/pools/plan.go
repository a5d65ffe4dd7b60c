package pools

import (
	"slices"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

const (
	// MaxLayouts bounds the layouts of one model that are offered beside planned
	// and carried ones. Each is an offering per zone and capacity type of each
	// instance type, so that the bound is on memory and on the time of a
	// scheduling round: 24 layouts are 144 offerings of a type in three zones.
	MaxLayouts = 24
	// maxPlanned bounds the planned layouts of mixed contents of one model.
	maxPlanned = 8
)

// planLayouts returns the layouts of one model where the pool lists profiles:
// the maximal layouts over these profiles, and layouts of mixed contents for the
// demand, so that it takes the fewest GPUs on nodes with several.
func planLayouts(g *mig.Geometry, profiles []string, r Request) []mig.NodeLayout {
	profiles = slices.DeleteFunc(slices.Clone(profiles), func(name string) bool { return !hasProfile(g, name) })
	if len(profiles) == 0 {
		return nil
	}
	demand := restrict(r.Demand, profiles)
	maximal, err := g.LayoutsFor(profiles)
	if err != nil {
		return nil
	}
	var planned []mig.NodeLayout
	if plan, err := g.Plan(demand, mig.WithProfiles(profiles...)); err == nil && demand.Total() > 0 {
		maximal = prefer(maximal, plan)
		planned = mixed(plan, nodeSizes(g, r))
	}
	planned = append(planned, previous(g, r, demand.Total() > 0)...)
	var layouts []mig.NodeLayout
	for _, l := range maximal[:min(len(maximal), MaxLayouts)] {
		layouts = appendUniform(layouts, l)
	}
	return append(layouts, carriedOrFew(planned, r.Carried)...)
}

func restrict(d mig.Demand, profiles []string) mig.Demand {
	own := mig.Demand{}
	for _, name := range profiles {
		if n := d[name]; n > 0 {
			own[name] = min(n, mig.MaxDemand/len(profiles))
		}
	}
	return own
}

// prefer moves what bounds must not cut to the front: the layouts of the plan,
// then those of one profile, by which every profile stays on offer. The rest
// keeps its order, large partitions first.
func prefer(layouts []mig.Layout, plan mig.Plan) []mig.Layout {
	inPlan := map[string]bool{}
	for _, s := range plan.Shares {
		inPlan[s.Layout.Name()] = true
	}
	rank := func(l mig.Layout) int {
		switch {
		case inPlan[l.Name()]:
			return 0
		case len(l.Counts()) == 1:
			return 1
		}
		return 2
	}
	sorted := slices.Clone(layouts)
	slices.SortStableFunc(sorted, func(a, b mig.Layout) int { return rank(a) - rank(b) })
	return sorted
}

// nodeSizes are the GPU counts of the shapes with this model, ascending.
func nodeSizes(g *mig.Geometry, r Request) []int {
	var sizes []int
	for _, s := range r.Catalog.GPUShapes() {
		if s.MIGCapable() && s.Model.MIG == g.Key() {
			sizes = append(sizes, s.GPUs)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// mixed lays a plan out on nodes of each size. Nodes that a share fills alone
// need no layout of their own; what remains of the shares is put on shared nodes,
// whose last GPUs repeat the last layout.
func mixed(plan mig.Plan, sizes []int) []mig.NodeLayout {
	var layouts []mig.NodeLayout
	for _, size := range sizes {
		var rest []mig.Layout
		for _, s := range plan.Shares {
			for range s.GPUs % size {
				rest = append(rest, s.Layout)
			}
		}
		for node := range slices.Chunk(rest, size) {
			layouts = appendMixed(layouts, node, size)
		}
	}
	return layouts
}

func appendMixed(layouts []mig.NodeLayout, gpus []mig.Layout, size int) []mig.NodeLayout {
	for len(gpus) < size {
		gpus = append(gpus, gpus[len(gpus)-1])
	}
	var parts []mig.DeviceLayout
	for from := 0; from < size; {
		to := from + 1
		for to < size && gpus[to].Equal(gpus[from]) {
			to++
		}
		var indices []int
		for i := from; i < to; i++ {
			indices = append(indices, i)
		}
		parts = append(parts, mig.Devices(gpus[from], indices...))
		from = to
	}
	if len(parts) == 1 {
		return layouts // a maximal layout, on all GPUs
	}
	if n, err := mig.NewNodeLayout("", parts...); err == nil {
		layouts = append(layouts, n)
	}
	return layouts
}

// previous are the layouts of mixed contents that were planned before: those that
// are carried, and all while pods still wait, because a launch may be under way.
func previous(g *mig.Geometry, r Request, waiting bool) []mig.NodeLayout {
	if r.Previous == nil || r.Previous.MIG == nil {
		return nil
	}
	var kept []mig.NodeLayout
	for _, l := range r.Previous.MIG.layouts[g.Key()] {
		if len(l.Parts()) > 1 && (waiting || slices.Contains(r.Carried, l.Name())) {
			kept = append(kept, l)
		}
	}
	return kept
}

// carriedOrFew keeps all carried layouts and the first few of the others.
func carriedOrFew(layouts []mig.NodeLayout, carried []string) []mig.NodeLayout {
	var kept []mig.NodeLayout
	others, seen := 0, map[string]bool{}
	for _, l := range layouts {
		if seen[l.Name()] {
			continue
		}
		seen[l.Name()] = true
		if !slices.Contains(carried, l.Name()) {
			if others++; others > maxPlanned {
				continue
			}
		}
		kept = append(kept, l)
	}
	return kept
}
