package mig_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// oracle knows what fits a GPU by the obvious way: it walks the memory units
// from the left, and at each puts nothing or one instance that may start there.
// It reads the data itself and shares no code with the package.
type oracle struct {
	raw  rawGPU
	fits map[string]mig.Demand // by Demand.String
}

func newOracle(raw rawGPU) *oracle {
	o := &oracle{raw: raw, fits: map[string]mig.Demand{}}
	o.walk(0, mig.Demand{})
	return o
}

func (o *oracle) walk(unit int, held mig.Demand) {
	if unit >= o.raw.Units {
		if o.withinBudget(held) {
			o.fits[held.String()] = maps.Clone(held)
		}
		return
	}
	o.walk(unit+1, held)
	for _, p := range o.raw.Profiles {
		for _, pl := range p.Placements {
			if pl.Start == unit && held[p.Name] < p.Max {
				held[p.Name]++
				o.walk(unit+pl.Size, held)
				if held[p.Name]--; held[p.Name] == 0 {
					delete(held, p.Name)
				}
			}
		}
	}
}

func (o *oracle) withinBudget(held mig.Demand) bool {
	for engine, have := range o.raw.Budget {
		for _, p := range o.raw.Profiles {
			have -= held[p.Name] * p.Engines[engine]
		}
		if have < 0 {
			return false
		}
	}
	return true
}

func (o *oracle) holds(d mig.Demand) bool { _, ok := o.fits[d.String()]; return ok }

// gpus returns the fewest GPUs that hold the demand, at most limit+1, by trying
// every multiset for the first GPU.
func (o *oracle) gpus(d mig.Demand, limit int) int {
	if d.Total() == 0 {
		return 0
	}
	if limit == 0 {
		return 1
	}
	if o.holds(d) {
		return 1
	}
	best := limit + 1
	for _, first := range o.fits {
		rest := mig.Demand{}
		taken := 0
		for name, n := range d {
			use := min(n, first[name])
			taken += use
			if n > use {
				rest[name] = n - use
			}
		}
		if taken == first.Total() && taken > 0 {
			best = min(best, 1+o.gpus(rest, min(limit, best)-1))
		}
	}
	return best
}

// maximal returns the multisets of the given profiles to which none can be
// added.
func (o *oracle) maximal(profiles []string) []mig.Demand {
	var all []mig.Demand
	for _, d := range o.fits {
		ok := d.Total() > 0
		for name := range d {
			ok = ok && slices.Contains(profiles, name)
		}
		for _, name := range profiles {
			ok = ok && !o.holds(d.Plus(mig.Demand{name: 1}))
		}
		if ok {
			all = append(all, d)
		}
	}
	return all
}

// waste returns what the multiset leaves over on a GPU.
func (o *oracle) waste(d mig.Demand) mig.Waste {
	w := mig.Waste{MemoryUnits: o.raw.Units, ComputeSlices: o.raw.Slices}
	for _, p := range o.raw.Profiles {
		w.MemoryUnits -= d[p.Name] * *p.MemorySlices
		w.ComputeSlices -= d[p.Name] * p.Slices
	}
	return w
}

// oracles makes one oracle for each model with known placements.
func oracles(t testing.TB) map[string]*oracle {
	all := map[string]*oracle{}
	for key, raw := range rawData(t) {
		if raw.Units > 0 {
			all[key] = newOracle(raw)
		}
	}
	return all
}
