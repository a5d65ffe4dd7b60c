package fleet

import (
	"math"
	"slices"
)

// pricer solves the pricing problem of column generation for one shape: the
// most valuable set of pods that fits on one node (a bounded knapsack in several
// dimensions), by depth-first branch and bound.
//
// Items are sorted by value per size, size being the mix Σ_d λ_d·request_d /
// allocatable_d. For any λ ≥ 0 the items of the optimum fit into the one mixed
// dimension too, so that its fractional optimum is an upper bound. A few steps
// of multiplicative weights lower that bound; λ is kept from one call to the
// next because the values change little between calls.
type pricer struct {
	m      *model
	shape  int
	lambda []float64

	items  []item
	ratio  []float64 // per item and dimension, greatest value per unit from there on
	tail   []float64 // per item, value of all that follow
	free   []int64
	take   []int
	always []share // classes without requests
	found  bool
	best   struct {
		value float64
		take  []int
	}
	budget int
	open   float64 // greatest bound of a subtree left unexplored
}

type item struct {
	class   int
	limit   int
	value   float64 // of one pod
	density float64
}

func newPricer(m *model, s int) *pricer {
	dims := len(m.shapes[s].alloc)
	p := &pricer{m: m, shape: s, lambda: make([]float64, dims), free: make([]int64, dims)}
	for d := range p.lambda {
		p.lambda[d] = 1 / float64(dims)
	}
	return p
}

// solve finds a fill worth more than floor. It returns an upper bound on the
// value of every fill, at least floor; and the best fill found above floor, or
// nil. With a large enough budget of nodes the bound is the value of that fill.
func (p *pricer) solve(values []float64, floor float64, steps, budget int) (float64, []share) {
	p.budget = budget
	base := p.collect(values)
	if base+p.tune(floor-base, steps) <= floor {
		return floor, nil
	}
	p.suffixes()
	copy(p.free, p.m.shapes[p.shape].alloc)
	p.open, p.found = floor, false
	p.best.value = floor
	p.take = append(p.take[:0], make([]int, len(p.items))...)
	p.descend(0, base)
	if !p.found {
		return max(floor, p.open), nil
	}
	fill := slices.Clone(p.always)
	for i, k := range p.best.take {
		if k > 0 {
			fill = append(fill, share{p.items[i].class, k})
		}
	}
	return max(p.best.value, p.open), fill
}

// collect lists the classes of some value as items. Classes that request
// nothing are always in; it returns their value.
func (p *pricer) collect(values []float64) float64 {
	p.items, p.always = p.items[:0], p.always[:0]
	base := 0.0
	for c := range p.m.classes {
		if values[c] <= 0 || !p.m.classes[c].mask.has(p.shape) {
			continue
		}
		limit := p.m.most(c, p.m.shapes[p.shape].alloc, p.m.classes[c].n)
		if p.m.fraction(c, p.shape) == 0 {
			p.always = append(p.always, share{c, limit})
			base += float64(limit) * values[c]
			continue
		}
		p.items = append(p.items, item{class: c, limit: limit, value: values[c]})
	}
	return base
}

// tune lowers the mixed bound and leaves the items sorted for the best mix. It
// stops once the bound is at most floor, since nothing can be found then.
func (p *pricer) tune(floor float64, steps int) float64 {
	best, usage := math.Inf(1), make([]float64, len(p.lambda))
	lambda := slices.Clone(p.lambda)
	for step := 0; ; step++ {
		p.sort(lambda)
		bound := p.mixed(usage)
		if bound < best {
			best = bound
			copy(p.lambda, lambda)
		}
		if best <= floor || step >= steps {
			break
		}
		sum := 0.0
		for d, u := range usage {
			lambda[d] = max(lambda[d], 1e-4) * math.Exp(1.5/float64(step+2)*min(u-1, 1))
			sum += lambda[d]
		}
		for d := range lambda {
			lambda[d] /= sum
		}
	}
	p.sort(p.lambda)
	return best
}

func (p *pricer) sort(lambda []float64) {
	inv := p.m.shapes[p.shape].inv
	for i := range p.items {
		size := 0.0
		for d, r := range p.m.classes[p.items[i].class].req {
			size += lambda[d] * float64(r) * inv[d]
		}
		p.items[i].density = p.items[i].value / size // size > 0, see collect and tune
	}
	slices.SortFunc(p.items, func(a, b item) int {
		switch {
		case a.density > b.density:
			return -1
		case a.density < b.density:
			return 1
		}
		return a.class - b.class
	})
}

// mixed is the fractional optimum of the one mixed dimension of capacity 1, and
// fills usage with what it takes of each real one.
func (p *pricer) mixed(usage []float64) float64 {
	clear(usage)
	inv := p.m.shapes[p.shape].inv
	room, value := 1.0, 0.0
	for _, it := range p.items {
		size := it.value / it.density
		k := min(float64(it.limit), room/size)
		value += k * it.value
		room -= k * size
		for d, r := range p.m.classes[it.class].req {
			usage[d] += k * float64(r) * inv[d]
		}
		if room <= 0 {
			break
		}
	}
	return value * (1 + 1e-12)
}

func (p *pricer) suffixes() {
	dims, n := len(p.lambda), len(p.items)
	p.ratio = append(p.ratio[:0], make([]float64, (n+1)*dims)...)
	p.tail = append(p.tail[:0], make([]float64, n+1)...)
	for i := n - 1; i >= 0; i-- {
		it := p.items[i]
		p.tail[i] = p.tail[i+1] + float64(it.limit)*it.value
		for d, r := range p.m.classes[it.class].req {
			v := math.Inf(1)
			if r > 0 {
				v = it.value / float64(r)
			}
			p.ratio[i*dims+d] = max(p.ratio[(i+1)*dims+d], v)
		}
	}
}

// bound is an upper bound on what items i and later add.
func (p *pricer) bound(i int) float64 {
	dims, inv := len(p.lambda), p.m.shapes[p.shape].inv
	mixed, out := 0.0, p.tail[i]
	for d, f := range p.free {
		mixed += p.lambda[d] * float64(f) * inv[d]
		if r := p.ratio[i*dims+d]; !math.IsInf(r, 1) {
			out = min(out, r*float64(f))
		}
	}
	return min(out, mixed*p.items[i].density) * (1 + 1e-12)
}

func (p *pricer) descend(i int, value float64) {
	if value > p.best.value*(1+1e-12) {
		p.best.value = value
		p.best.take = append(p.best.take[:0], p.take[:i]...)
		p.found = true
	}
	p.budget--
	if i == len(p.items) {
		return
	}
	bound := value + p.bound(i)
	if bound <= p.best.value {
		return
	}
	if p.budget < 0 {
		p.open = max(p.open, bound)
		return
	}
	it := p.items[i]
	req := p.m.classes[it.class].req
	for k := p.m.most(it.class, p.free, it.limit); k >= 0; k-- {
		p.take[i] = k
		for d, r := range req {
			p.free[d] -= r * int64(k)
		}
		p.descend(i+1, value+float64(k)*it.value)
		for d, r := range req {
			p.free[d] += r * int64(k)
		}
		if p.budget < 0 {
			p.open = max(p.open, bound) // also covers the counts not tried
			break
		}
	}
	p.take[i] = 0
}
