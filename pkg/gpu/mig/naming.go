package mig

import (
	"fmt"
	"maps"
	"slices"
)

// memoryTolerance is how far, in percent of the larger, the memory of two names
// may differ for one to be the other's under another rounding. Boards of one
// model differ by 2–5 %, profiles with the same slices by a factor of two.
const memoryTolerance = 15

// Namings returns what else the model's profiles are called on boards that
// report another memory size; empty for most. A naming has its own key and
// names, and the same placements. The caller owns the slice.
func (g *Geometry) Namings() []*Geometry { return slices.Clone(g.namings) }

// Observed returns the geometry with the names that a board shows, so that
// layouts and resources are what the node will advertise. Each name is matched
// by compute slices, attributes and nearest memory; profiles that the board
// does not show, as an old driver's, are left out with their layouts. A name
// without a counterpart, or two names for one profile, are errors.
func (g *Geometry) Observed(names []string) (*Geometry, error) {
	renamed := map[string]string{}
	for _, name := range names {
		own, err := g.counterpart(name)
		if err != nil {
			return nil, err
		}
		if other, ok := renamed[own]; ok && other != name {
			return nil, fmt.Errorf("matching observed profiles with %s, %s and %s both stand for %s; read the profiles of one GPU", g.key, other, name, own)
		}
		renamed[own] = name
	}
	if len(renamed) == 0 {
		return nil, fmt.Errorf("matching observed profiles with %s, none were given; read them from NVML with MIG mode on", g.key)
	}
	for _, known := range append([]*Geometry{g}, g.namings...) {
		if known.isNamed(renamed) {
			return known, nil
		}
	}
	return g.rename(g.key+"-observed", renamed)
}

// named returns the naming that has all names of the demand: the geometry
// itself, or the first other that does. Where none has, it is the geometry
// itself, whose errors then tell what it has.
func (g *Geometry) named(d Demand) *Geometry {
	for _, n := range append([]*Geometry{g}, g.namings...) {
		if !slices.ContainsFunc(d.names(), func(s string) bool { _, ok := n.index[s]; return !ok }) {
			return n
		}
	}
	return g
}

func (g *Geometry) isNamed(renamed map[string]string) bool {
	if len(renamed) != len(g.profiles) {
		return false
	}
	for _, name := range renamed {
		if _, ok := g.index[name]; !ok {
			return false
		}
	}
	return true
}

func (g *Geometry) counterpart(name string) (string, error) {
	n, err := ParseProfile(name)
	if err != nil {
		return "", err
	}
	best, distance := "", 0
	for _, p := range g.profiles {
		own := p.name
		if own.compute != n.compute || own.slices != n.slices || own.Attributes() != n.Attributes() {
			continue
		}
		d := abs(own.memoryGB - n.memoryGB)
		if d*100 <= memoryTolerance*max(own.memoryGB, n.memoryGB) && (best == "" || d < distance) {
			best, distance = p.Name(), d
		}
	}
	if best == "" {
		return "", g.unknownProfile(name)
	}
	return best, nil
}

// rename copies the geometry with other profile names; profiles without one go,
// and the layouts that need them.
func (g *Geometry) rename(key string, renamed map[string]string) (*Geometry, error) {
	spec := g.spec
	spec.AlsoObserved, spec.Profiles, spec.Layouts = nil, nil, map[string]map[string]int{}
	for _, p := range g.spec.Profiles {
		if to, ok := renamed[p.Name]; ok {
			p.Name, p.Resource = to, ""
			spec.Profiles = append(spec.Profiles, p)
		}
	}
	for name, held := range g.spec.Layouts {
		layout := map[string]int{}
		for profile, n := range held {
			to, ok := renamed[profile]
			if !ok {
				layout = nil
				break
			}
			if parsed, err := ParseProfile(profile); err == nil && name == parsed.LayoutName() {
				name = layoutNameOf(to)
			}
			layout[to] = n
		}
		if layout != nil {
			spec.Layouts[name] = layout
		}
	}
	other, err := newGeometry(key, spec)
	if err != nil {
		return nil, err
	}
	other.base = g
	return other, nil
}

func (g *Geometry) addNamings(also map[string]map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(also)) {
		renamed := map[string]string{}
		for _, p := range g.profiles {
			renamed[p.Name()] = p.Name()
		}
		for from, to := range also[key] {
			if _, ok := renamed[from]; !ok {
				return fmt.Errorf("also_observed[%s] renames %q, which is no profile of the GPU; use one of profiles", key, from)
			}
			if _, err := ParseProfile(to); err != nil {
				return fmt.Errorf("also_observed[%s], %w", key, err)
			}
			renamed[from] = to
		}
		n, err := g.rename(key, renamed)
		if err != nil {
			return fmt.Errorf("also_observed[%s], %w", key, err)
		}
		g.namings = append(g.namings, n)
	}
	return nil
}

func layoutNameOf(profile string) string {
	n, err := ParseProfile(profile)
	if err != nil {
		return ""
	}
	return n.LayoutName()
}

func abs(i int) int { return max(i, -i) }
