package mig

import (
	"errors"
	"fmt"
	"slices"
)

// ErrNoLayout is in the chain of errors about demands that no allowed layout
// can serve.
var ErrNoLayout = errors.New("no allowed layout offers the profile")

// Plan says how many GPUs to split into which layouts so that a demand is
// served.
type Plan struct {
	// Shares are the layouts in use, whole GPUs first, then large partitions
	// before small ones.
	Shares []Share
	// Waste is stranded over all GPUs: no pod can ever use it. Partitions beyond
	// the demand are not waste but Spare.
	Waste Waste
	// Spare counts the partitions beyond the demand.
	Spare Demand
	// LowerBound is a proven number of GPUs below which no plan exists, whole
	// GPUs included.
	LowerBound int
	// Optimal reports whether no plan of fewer GPUs exists.
	Optimal bool
}

// Share is a number of GPUs with one layout.
type Share struct {
	Layout Layout
	GPUs   int
}

// GPUs returns the GPUs of the plan.
func (p Plan) GPUs() int {
	sum := 0
	for _, s := range p.Shares {
		sum += s.GPUs
	}
	return sum
}

// Supply returns the partitions of all GPUs of the plan.
func (p Plan) Supply() Demand {
	sum := Demand{}
	for _, s := range p.Shares {
		for name, n := range s.Layout.Counts() {
			sum[name] += n * s.GPUs
		}
	}
	return sum
}

// Option changes what a plan may use.
type Option func(*planOptions)

type planOptions struct {
	layouts   []Layout
	limited   bool
	profiles  []string
	wholeGPUs int
}

// WithLayouts restricts the plan to the given layouts of the model. An empty
// list allows none.
func WithLayouts(layouts ...Layout) Option {
	return func(o *planOptions) { o.layouts, o.limited = append(o.layouts, layouts...), true }
}

// WithProfiles lets GPUs be filled up with these profiles beside the demanded
// ones. Without it they are filled up with demanded ones alone.
func WithProfiles(names ...string) Option {
	return func(o *planOptions) { o.profiles = append(o.profiles, names...) }
}

// WithWholeGPUs adds GPUs with MIG off. They share no card with partitions.
func WithWholeGPUs(n int) Option { return func(o *planOptions) { o.wholeGPUs = n } }

// Plan serves the demand with the fewest GPUs, of such plans one with the least
// waste (memory units, then compute slices), and of those one with the fewest
// distinct layouts. Up to two GPUs all three are optimal; beyond, the number of
// GPUs is within a proven distance of LowerBound, and waste and layouts are
// heuristic. Equal input gives equal plans.
//
// At a given number of GPUs all plans leave the same memory to the demand, so
// they differ in what nobody can use: a GPU is filled up with demanded profiles
// (or those of WithProfiles), and Waste counts what even they leave over.
func (g *Geometry) Plan(d Demand, opts ...Option) (Plan, error) {
	var o planOptions
	for _, opt := range opts {
		opt(&o)
	}
	g = g.planningFor(d, o)
	v, err := g.vector(d)
	if err != nil {
		return Plan{}, fmt.Errorf("planning %s, %w", d, err)
	}
	layouts, err := g.allowed(d, o)
	if err != nil {
		return Plan{}, fmt.Errorf("planning %s, %w", d, err)
	}
	p := newProblem(g, v, layouts)
	if i := p.unserved(); i >= 0 {
		name := g.profiles[p.dims[i]].Name()
		return Plan{}, fmt.Errorf("planning %s on %s, %s: %w; allow one that does, such as %s", d, g.key, name, ErrNoLayout, layoutNameOf(name))
	}
	s := p.solve()
	plan := Plan{LowerBound: s.lower + o.wholeGPUs, Optimal: s.optimal}
	if o.wholeGPUs > 0 {
		plan.Shares = append(plan.Shares, Share{Layout: g.layouts[AllDisabled], GPUs: o.wholeGPUs})
	}
	for i, n := range s.uses {
		if n > 0 {
			plan.add(layouts[p.patterns[i].layout], n)
		}
	}
	plan.Spare = plan.Supply()
	for _, name := range d.names() {
		if plan.Spare[name] -= d[name]; plan.Spare[name] == 0 {
			delete(plan.Spare, name)
		}
	}
	return plan, nil
}

// planningFor returns the naming that the layouts, or else the names, belong to.
func (g *Geometry) planningFor(d Demand, o planOptions) *Geometry {
	if len(o.layouts) > 0 && o.layouts[0].geometry != nil && o.layouts[0].geometry.base == g {
		return o.layouts[0].geometry
	}
	return g.named(d.Plus(onesOf(o.profiles)))
}

func (p *Plan) add(l Layout, n int) {
	p.Shares = append(p.Shares, Share{Layout: l, GPUs: n})
	w := l.Stranded()
	p.Waste.MemoryUnits += n * w.MemoryUnits
	p.Waste.ComputeSlices += n * w.ComputeSlices
}

// allowed lists the layouts that a plan may use, in a fixed order.
func (g *Geometry) allowed(d Demand, o planOptions) ([]Layout, error) {
	if o.wholeGPUs < 0 || o.wholeGPUs > MaxDemand {
		return nil, fmt.Errorf("WithWholeGPUs is %d, want 0 to %d", o.wholeGPUs, MaxDemand)
	}
	if !o.limited {
		return g.LayoutsFor(append(d.names(), o.profiles...))
	}
	if len(o.profiles) > 0 {
		return nil, errors.New("both WithLayouts and WithProfiles are given; layouts already say their profiles, so drop WithProfiles")
	}
	for _, l := range o.layouts {
		if l.geometry != g {
			return nil, fmt.Errorf("layout %q is for %s, not for %s; take it from the geometry that plans", l.name, l.geometry.keyOrNone(), g.key)
		}
	}
	layouts := slices.Clone(o.layouts)
	slices.SortFunc(layouts, compareLayouts)
	return slices.Compact(layouts), nil
}

func (g *Geometry) keyOrNone() string {
	if g == nil {
		return "no model"
	}
	return g.key
}

func onesOf(names []string) Demand {
	d := Demand{}
	for _, name := range names {
		d[name] = 1
	}
	return d
}
