package mig

import (
	"cmp"
	"slices"
)

const (
	// memoryWeight makes one memory unit of waste dearer than the compute slices
	// of MaxDemand GPUs.
	memoryWeight = int64(1) << 32
	// exactGPUs is up to how many GPUs every pair of patterns is compared.
	exactGPUs = 2
	// searchedGPUs is up to how many GPUs the tree search gets the whole demand;
	// beyond, the bulk is rounded off a relaxation and it gets the rest.
	searchedGPUs = 6
	// searchNodes bounds one tree search until it has a cover, improveNodes
	// afterwards. Counting nodes and not time keeps plans equal on every machine.
	searchNodes  = 4000
	improveNodes = 800
	// slacks is how often the bulk is rounded off, each time by one GPU more per
	// pattern.
	slacks = 3
)

// problem is an integer covering problem: choose how often to use each pattern
// so that every demanded profile is covered, with the fewest patterns, then the
// least cost, then the fewest distinct patterns.
type problem struct {
	dims     []int // places in Geometry.profiles of the demanded profiles
	demand   []int
	patterns []pattern
	prices   []int64 // of one partition per dimension, scaled; see relax
	dearest  int64   // price of the dearest pattern
	most     []int   // per dimension, the most that one pattern has
}

type pattern struct {
	counts []int
	cost   int64 // waste
	layout int   // place in the list of layouts
}

type solution struct {
	uses    []int // per pattern
	lower   int
	optimal bool
}

func newProblem(g *Geometry, v []int, layouts []Layout) *problem {
	p := &problem{}
	for _, i := range g.order {
		if v[i] > 0 {
			p.dims = append(p.dims, i)
			p.demand = append(p.demand, v[i])
		}
	}
	for n, l := range layouts {
		w := l.Stranded()
		pat := pattern{layout: n, cost: int64(w.MemoryUnits)*memoryWeight + int64(w.ComputeSlices)}
		for _, i := range p.dims {
			pat.counts = append(pat.counts, int(l.counts[i]))
		}
		p.patterns = append(p.patterns, pat)
	}
	p.dropDominated()
	p.most = make([]int, len(p.dims))
	for _, pat := range p.patterns {
		for d, c := range pat.counts {
			p.most[d] = max(p.most[d], c)
		}
	}
	return p
}

// dropDominated drops patterns that another replaces one for one at no more
// cost. That changes neither the number, nor the cost, nor the distinctness of
// the best solution.
func (p *problem) dropDominated() {
	kept := p.patterns[:0:0]
	for _, a := range p.patterns {
		dominated := func(b pattern) bool {
			return b.cost <= a.cost && covers(b.counts, a.counts) &&
				(b.cost < a.cost || !slices.Equal(a.counts, b.counts) || b.layout < a.layout)
		}
		if !slices.ContainsFunc(p.patterns, dominated) {
			kept = append(kept, a)
		}
	}
	p.patterns = kept
}

// unserved returns a dimension that no pattern covers, or -1.
func (p *problem) unserved() int { return slices.Index(p.most, 0) }

func (p *problem) solve() solution {
	uses := make([]int, len(p.patterns))
	if len(p.dims) == 0 {
		return solution{uses: uses, optimal: true}
	}
	x := p.relax()
	lower := p.bound(p.demand)
	if lower <= exactGPUs {
		if pair := p.best(); pair != nil {
			for _, i := range pair {
				uses[i]++
			}
			return solution{uses: uses, lower: len(pair), optimal: true}
		}
		lower = exactGPUs + 1
	}
	uses = p.round(x, lower)
	return solution{uses: uses, lower: lower, optimal: sum(uses) == lower}
}

// best returns the best cover of at most exactGPUs patterns, or nil.
func (p *problem) best() []int {
	if one := p.bestOne(); one != nil {
		return one
	}
	return p.bestTwo()
}

func (p *problem) bestOne() []int {
	var best []int
	for i, a := range p.patterns {
		if covers(a.counts, p.demand) && (best == nil || a.cost < p.patterns[best[0]].cost) {
			best = []int{i}
		}
	}
	return best
}

// bestTwo compares every pair; among equal costs a pattern with itself wins.
func (p *problem) bestTwo() []int {
	var best []int
	var bestCost int64
	for i, a := range p.patterns {
		for j, b := range p.patterns[i:] {
			if !coverTogether(a.counts, b.counts, p.demand) {
				continue
			}
			cost := a.cost + b.cost
			alike := j == 0 && best != nil && best[0] != best[1]
			if best == nil || cost < bestCost || cost == bestCost && alike {
				best, bestCost = []int{i, i + j}, cost
			}
		}
	}
	return best
}

// round takes the bulk from the relaxation, rounded down, and searches for the
// rest; small demands are all rest. It does so with ever more left to the search
// and keeps the best.
func (p *problem) round(x []float64, lower int) []int {
	var best []int
	for slack := range slacks {
		bulk := make([]int, len(p.patterns))
		if lower > searchedGPUs {
			for i := range bulk {
				bulk[i] = max(0, int(x[i]+1e-7)-slack)
			}
		}
		rest := slices.Clone(p.demand)
		for i, n := range bulk {
			for d, c := range p.patterns[i].counts {
				rest[d] = max(0, rest[d]-n*c)
			}
		}
		uses := p.search(rest, bulk)
		p.prune(uses)
		p.merge(uses)
		if best == nil || p.compare(uses, best) < 0 {
			best = uses
		}
		if sum(bulk) == 0 {
			break
		}
	}
	return best
}

// compare orders solutions: fewest GPUs, least waste, fewest distinct patterns.
func (p *problem) compare(a, b []int) int {
	measure := func(uses []int) (cost int64, kinds int) {
		for i, n := range uses {
			cost += int64(n) * p.patterns[i].cost
			if n > 0 {
				kinds++
			}
		}
		return cost, kinds
	}
	costA, kindsA := measure(a)
	costB, kindsB := measure(b)
	return cmp.Or(cmp.Compare(sum(a), sum(b)), cmp.Compare(costA, costB), cmp.Compare(kindsA, kindsB))
}

// prune takes GPUs away that the others make superfluous, dear ones first.
func (p *problem) prune(uses []int) {
	order := make([]int, len(uses))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.patterns[b].cost, p.patterns[a].cost) })
	for _, i := range order {
		for uses[i] > 0 {
			uses[i]--
			if !p.covered(uses) {
				uses[i]++
				break
			}
		}
	}
}

// merge replaces all GPUs of one pattern by another in use, where that is no
// worse, so that fewer distinct layouts remain.
func (p *problem) merge(uses []int) {
	for i := range uses {
		for j := range uses {
			n := uses[i]
			if i == j || n == 0 || uses[j] == 0 || p.patterns[j].cost > p.patterns[i].cost {
				continue
			}
			uses[i], uses[j] = 0, uses[j]+n
			if !p.covered(uses) {
				uses[i], uses[j] = n, uses[j]-n
			}
		}
	}
}

func (p *problem) covered(uses []int) bool {
	for d, want := range p.demand {
		for i, n := range uses {
			want -= n * p.patterns[i].counts[d]
		}
		if want > 0 {
			return false
		}
	}
	return true
}

func covers(have, want []int) bool {
	for i := range want {
		if have[i] < want[i] {
			return false
		}
	}
	return true
}

func coverTogether(a, b, want []int) bool {
	for i := range want {
		if a[i]+b[i] < want[i] {
			return false
		}
	}
	return true
}

func sum(v []int) int {
	n := 0
	for _, i := range v {
		n += i
	}
	return n
}
