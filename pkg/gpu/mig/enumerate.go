package mig

import (
	"fmt"
	"slices"
)

// space is every multiset of partitions that one GPU can hold. It is closed
// downwards: taking an instance away leaves a multiset that fits.
type space struct {
	feasible map[counts]struct{}
}

// enumerate grows the space one instance at a time. On models without known
// placements it is what the named layouts hold, and all that is below.
func (g *Geometry) enumerate() *space {
	s := &space{feasible: map[counts]struct{}{}}
	if g.units == 0 {
		s.feasible[counts{}] = struct{}{}
		for _, l := range g.layouts {
			g.below(s, l.counts)
		}
		return s
	}
	g.grow(s, counts{}, 0)
	return s
}

func (g *Geometry) grow(s *space, c counts, from int) {
	s.feasible[c] = struct{}{}
	for i := from; i < len(g.profiles); i++ {
		next := c
		next[i]++
		if g.holds(next) {
			g.grow(s, next, i)
		}
	}
}

func (g *Geometry) below(s *space, c counts) {
	if _, seen := s.feasible[c]; seen {
		return
	}
	s.feasible[c] = struct{}{}
	for i := range g.profiles {
		if c[i] > 0 {
			less := c
			less[i]--
			g.below(s, less)
		}
	}
}

func (g *Geometry) holds(c counts) bool {
	v := make([]int, len(g.profiles))
	for i := range v {
		v[i] = int(c[i])
	}
	if _, err := g.bounded(v); err != nil {
		return false
	}
	_, ok := g.pack(c)
	return ok
}

// Maximal returns every layout of plain profiles to which no plain profile can
// be added, large partitions first. On models without known placements these
// are the named layouts of plain profiles that no other contains.
func (g *Geometry) Maximal() []Layout {
	layouts, err := g.LayoutsFor(g.BaseProfiles())
	if err != nil {
		panic(err) // the names are the geometry's own
	}
	return layouts
}

// LayoutsFor returns every layout made only of the given profiles to which none
// of them can be added, large partitions first. Layouts that mig-parted names
// have that name; the others have a generated one, equal for equal contents,
// that is valid as a mig-parted name and as a label value.
func (g *Geometry) LayoutsFor(profiles []string) ([]Layout, error) {
	want := Demand{}
	for _, name := range profiles {
		want[name] = 1
	}
	g = g.named(want)
	v, err := g.vector(want)
	if err != nil {
		return nil, fmt.Errorf("making layouts, %w", err)
	}
	var layouts []Layout
	for c := range g.space().feasible {
		if g.maximalIn(c, v) {
			layouts = append(layouts, Layout{name: g.nameOf(c), geometry: g, counts: c})
		}
	}
	slices.SortFunc(layouts, compareLayouts)
	return layouts, nil
}

func (g *Geometry) maximalIn(c counts, allowed []int) bool {
	if c == (counts{}) {
		return false
	}
	for i, ok := range allowed {
		if ok == 0 {
			if c[i] > 0 {
				return false
			}
			continue
		}
		more := c
		more[i]++
		if _, fits := g.space().feasible[more]; fits {
			return false
		}
	}
	return true
}
