package mig

import (
	"fmt"
	"slices"
)

// counts is how many instances of each profile one GPU holds, by place in
// Geometry.profiles. It is comparable, so that it keys maps.
type counts [maxProfiles]uint8

// Place finds where the partitions of one GPU lie. The placements come in the
// order in which to create them, large ones first, each at the last start that
// still leaves room for the rest, as the driver does; create them with explicit
// placement. Errors are an ErrUnknownProfile, an ErrPlacementsUnknown or an
// ErrDoesNotFit that names the rule which is broken.
func (g *Geometry) Place(d Demand) ([]Placement, error) {
	g = g.named(d)
	v, err := g.vector(d)
	if err != nil {
		return nil, fmt.Errorf("placing %s, %w", d, err)
	}
	if g.units == 0 {
		return nil, fmt.Errorf("placing %s on %s, use one of its named layouts, %w", d, g.key, ErrPlacementsUnknown)
	}
	c, err := g.bounded(v)
	if err != nil {
		return nil, fmt.Errorf("placing %s on %s, %w", d, g.key, err)
	}
	placements, ok := g.pack(c)
	if !ok {
		return nil, fmt.Errorf("placing %s on %s, no arrangement on its %d memory units is free of overlap; take some away or plan for more GPUs, %w", d, g.key, g.units, ErrDoesNotFit)
	}
	return placements, nil
}

// bounded checks the rules that need no arrangement: per-profile maxima and
// media engines.
func (g *Geometry) bounded(v []int) (counts, error) {
	var c counts
	var sum Engines
	for i, n := range v {
		p := g.profiles[i]
		if n > p.maxInstances {
			return c, fmt.Errorf("a GPU holds at most %d of %s, not %d; plan for more GPUs, %w", p.maxInstances, p.Name(), n, ErrDoesNotFit)
		}
		c[i] = uint8(n) //nolint:gosec // maxInstances is at most maxPerGPU
		if p.engines != nil {
			sum.add(*p.engines, n)
		}
	}
	if g.spec.MediaBudget != nil {
		if engine, want, have := g.spec.MediaBudget.exceeded(sum); engine != "" {
			return c, fmt.Errorf("the partitions take %d %s of %d; use profiles with fewer media engines, such as -me, %w", want, engine, have, ErrDoesNotFit)
		}
	}
	return c, nil
}

func (e *Engines) add(o Engines, n int) {
	e.Decoders += n * o.Decoders
	e.JPEG += n * o.JPEG
	e.OFA += n * o.OFA
	e.Encoders += n * o.Encoders
}

func (e engineSpec) exceeded(sum Engines) (engine string, want, have int) {
	for _, c := range []struct {
		name   string
		want   int
		budget *int
	}{
		{"decoders", sum.Decoders, e.Decoders},
		{"JPEG engines", sum.JPEG, e.JPEG},
		{"optical flow engines", sum.OFA, e.OFA},
		{"encoders", sum.Encoders, e.Encoders},
	} {
		if c.budget != nil && c.want > *c.budget {
			return c.name, c.want, *c.budget
		}
	}
	return "", 0, 0
}

// pack arranges the instances without overlap by backtracking over starts.
func (g *Geometry) pack(c counts) ([]Placement, bool) {
	var todo []int
	need := 0
	for _, i := range g.order {
		for range c[i] {
			todo = append(todo, i)
			need += g.profiles[i].weight()
		}
	}
	if need > g.units {
		return nil, false
	}
	placed := make([]Placement, 0, len(todo))
	if !g.packFrom(todo, 0, &placed) {
		return nil, false
	}
	return placed, true
}

func (g *Geometry) packFrom(todo []int, occupied uint32, placed *[]Placement) bool {
	if len(todo) == 0 {
		return true
	}
	p := g.profiles[todo[0]]
	size := p.weight()
	for _, start := range slices.Backward(p.starts) {
		mask := (uint32(1)<<size - 1) << start
		if occupied&mask != 0 || !descends(*placed, p.Name(), start) {
			continue
		}
		*placed = append(*placed, Placement{Profile: p.Name(), Start: start, Size: size})
		if g.packFrom(todo[1:], occupied|mask, placed) {
			return true
		}
		*placed = (*placed)[:len(*placed)-1]
	}
	return false
}

// descends keeps equal instances in one order, so that their permutations are
// not tried again.
func descends(placed []Placement, profile string, start int) bool {
	if len(placed) == 0 {
		return true
	}
	last := placed[len(placed)-1]
	return last.Profile != profile || start < last.Start
}
