package mig

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const (
	// AllDisabled is mig-parted's layout of a GPU with MIG mode off.
	AllDisabled = "all-disabled"
	// AllEnabled is mig-parted's layout of a GPU with MIG mode on and no
	// partition: it offers nothing.
	AllEnabled = "all-enabled"
	// AllBalanced is mig-parted's layout of small, middle and large partitions.
	AllBalanced = "all-balanced"

	maxLabelValue = 63
)

var layoutNamePattern = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// Strategy is the device plugin's MIG strategy.
type Strategy string

const (
	// Mixed advertises each profile as a resource of its own.
	Mixed Strategy = "mixed"
	// Single advertises partitions as nvidia.com/gpu and needs all of one
	// profile.
	Single Strategy = "single"
)

// Layout is what one GPU of a model is split into: MIG off, or MIG on with a
// multiset of partitions that has been checked to fit. It is an immutable
// value; the zero Layout is none.
type Layout struct {
	name     string
	geometry *Geometry
	counts   counts
	disabled bool
}

// Layout finds a layout by mig-parted's name: all-disabled, all-enabled,
// all-balanced, or all-<profile> with + written as a dot.
func (g *Geometry) Layout(name string) (Layout, error) {
	for _, n := range append([]*Geometry{g}, g.namings...) {
		if l, ok := n.layouts[name]; ok {
			return l, nil
		}
	}
	return Layout{}, fmt.Errorf("looking for layout %q on %s, it has %s; make others with LayoutOf", name, g.key, strings.Join(g.LayoutNames(), " "))
}

// LayoutNames returns the named layouts, sorted.
func (g *Geometry) LayoutNames() []string { return slices.Sorted(maps.Keys(g.layouts)) }

// LayoutOf makes a layout of its own name, after Place has checked it; models
// without known placements hold parts of their named layouts. An empty name
// asks for the generated one. A name that mig-parted gives to other contents is
// refused, and so is one that cannot be a label value.
func (g *Geometry) LayoutOf(name string, d Demand) (Layout, error) {
	g = g.named(d)
	c, err := g.fit(d)
	if err != nil {
		return Layout{}, fmt.Errorf("making layout %q, %w", name, err)
	}
	l := Layout{name: name, geometry: g, counts: c}
	if name == "" {
		l.name = g.nameOf(c)
	}
	if !layoutNamePattern.MatchString(l.name) {
		return Layout{}, fmt.Errorf("making layout %q, the name must be a label value: at most %d letters, digits, '.', '_', '-' with a letter or digit at both ends", name, maxLabelValue)
	}
	if known, ok := g.layouts[l.name]; ok && (known.disabled || known.counts != c) {
		return Layout{}, fmt.Errorf("making layout %q, mig-parted gives that name to %s; choose another", name, known.describe())
	}
	return l, nil
}

func (g *Geometry) fit(d Demand) (counts, error) {
	if g.units != 0 {
		if _, err := g.Place(d); err != nil {
			return counts{}, err
		}
	}
	v, err := g.vector(d)
	if err != nil {
		return counts{}, err
	}
	c, err := g.bounded(v)
	if err != nil {
		return counts{}, fmt.Errorf("placing %s on %s, %w", d, g.key, err)
	}
	if g.units == 0 && len(g.layouts) > 0 {
		if _, ok := g.space().feasible[c]; !ok {
			return counts{}, fmt.Errorf("placing %s on %s, no named layout holds it, %w", d, g.key, ErrPlacementsUnknown)
		}
	}
	return c, nil
}

// Name returns the layout's name in mig-parted's configuration.
func (l Layout) Name() string { return l.name }

// Geometry returns the model that the layout is for; nil for the zero Layout.
func (l Layout) Geometry() *Geometry { return l.geometry }

// IsZero reports whether the layout is none.
func (l Layout) IsZero() bool { return l.geometry == nil }

// MIGEnabled reports whether the GPU has MIG mode on.
func (l Layout) MIGEnabled() bool { return l.geometry != nil && !l.disabled }

// Counts returns the partitions of one GPU. The caller owns the map.
func (l Layout) Counts() Demand {
	if l.geometry == nil {
		return Demand{}
	}
	return l.geometry.demand(l.counts)
}

// Placements returns where the partitions lie, in creation order; nil where
// the model's placements are not known.
func (l Layout) Placements() []Placement {
	if l.geometry == nil || l.geometry.units == 0 {
		return nil
	}
	placed, _ := l.geometry.pack(l.counts)
	return placed
}

// Resources returns the extended resources that one GPU advertises under the
// mixed strategy: its partitions, or nvidia.com/gpu with MIG off. The caller
// owns the map.
func (l Layout) Resources() map[string]int {
	r := map[string]int{}
	if l.geometry == nil {
		return r
	}
	if l.disabled {
		r[WholeGPUResource] = 1
	}
	for i, p := range l.geometry.profiles {
		if n := int(l.counts[i]); n > 0 {
			r[p.ResourceName()] = n
		}
	}
	return r
}

// ResourcesUnder returns the extended resources of one GPU under a strategy.
// The single strategy refuses layouts of several profiles.
func (l Layout) ResourcesUnder(s Strategy) (map[string]int, error) {
	mixed := l.Resources()
	switch {
	case s == Mixed:
		return mixed, nil
	case s != Single:
		return nil, fmt.Errorf("advertising layout %s, strategy %q is neither %q nor %q", l.name, s, Mixed, Single)
	case len(mixed) > 1:
		return nil, fmt.Errorf("advertising layout %s under strategy single, it has %s; use one profile or strategy mixed", l.name, l.Counts())
	}
	r := map[string]int{}
	for _, n := range mixed {
		r[WholeGPUResource] = n
	}
	return r, nil
}

// Waste is what nothing uses: memory units that no partition covers, and the
// compute slices beside them. On models without known placements memory is
// counted in compute slices.
type Waste struct {
	MemoryUnits, ComputeSlices int
}

// Stranded returns what one GPU of the layout can give to nobody. It is zero
// with MIG off.
func (l Layout) Stranded() Waste {
	if !l.MIGEnabled() {
		return Waste{}
	}
	w := Waste{MemoryUnits: l.geometry.totalWeight(), ComputeSlices: l.geometry.spec.ComputeSlices}
	for i, p := range l.geometry.profiles {
		w.MemoryUnits -= int(l.counts[i]) * p.weight()
		w.ComputeSlices -= int(l.counts[i]) * p.ComputeSlices()
	}
	return w
}

// Equal reports whether both layouts have the same name, model and contents.
func (l Layout) Equal(o Layout) bool { return l == o }

// String returns the name.
func (l Layout) String() string { return l.name }

// Fits reports whether one GPU of the layout holds the whole demand. Names are
// compared as they are: a node advertises 7g.186gb or 7g.189gb, never both.
func Fits(l Layout, d Demand) bool {
	for name, n := range d {
		switch {
		case n < 0:
			return false
		case n == 0:
			continue
		case l.geometry == nil:
			return false
		}
		i, ok := l.geometry.index[name]
		if !ok || n > int(l.counts[i]) {
			return false
		}
	}
	return true
}

func (g *Geometry) totalWeight() int {
	if g.units != 0 {
		return g.units
	}
	return g.spec.ComputeSlices
}

func (g *Geometry) addLayouts(named map[string]map[string]int) error {
	add := map[string]Layout{AllDisabled: {name: AllDisabled, geometry: g, disabled: true}, AllEnabled: {name: AllEnabled, geometry: g}}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if _, ok := add[name]; ok || !layoutNamePattern.MatchString(name) {
			return fmt.Errorf("layouts[%s] must be a label value other than %s and %s", name, AllDisabled, AllEnabled)
		}
		c, err := g.fit(named[name])
		if err != nil {
			return fmt.Errorf("layouts[%s], %w", name, err)
		}
		add[name] = Layout{name: name, geometry: g, counts: c}
	}
	g.layouts = add
	return nil
}

// nameOf returns mig-parted's name of the contents where it has one, and else
// the counts, largest first, as in 1x3g.40gb_4x1g.10gb.
func (g *Geometry) nameOf(c counts) string {
	for _, name := range g.LayoutNames() {
		if l := g.layouts[name]; l.counts == c && !l.disabled {
			return name
		}
	}
	var parts []string
	for _, i := range g.order {
		if c[i] > 0 {
			parts = append(parts, fmt.Sprintf("%dx%s", c[i], g.profiles[i].name.dotted()))
		}
	}
	return shorten(strings.Join(parts, "_"))
}

// shorten keeps a name within a label value: a digest replaces its end.
func shorten(s string) string {
	if len(s) <= maxLabelValue {
		return s
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	digest := fmt.Sprintf("_%016x", h.Sum64())
	return s[:maxLabelValue-len(digest)] + digest
}

func (l Layout) describe() string {
	if l.disabled {
		return "a GPU with MIG off"
	}
	return l.Counts().String()
}

// compareLayouts puts large partitions first, then many.
func compareLayouts(a, b Layout) int {
	for _, i := range a.geometry.order {
		if d := cmp.Compare(b.counts[i], a.counts[i]); d != 0 {
			return d
		}
	}
	return cmp.Compare(a.name, b.name)
}
