package mig

import (
	"cmp"
	"slices"
)

// remainder keys what is still uncovered.
type remainder struct {
	rest [maxProfiles]int32
	left int
}

// search covers rest with as few patterns as it finds, beside a bulk that is
// already chosen, and returns the uses of both together. It tries n = bound,
// bound+1, … by branch and bound; each try is limited in nodes, so that a larger
// n than needed is possible, and found by taking the best pattern first.
func (p *problem) search(rest, bulk []int) []int {
	for n := p.bound(rest); ; n++ {
		s := &searcher{problem: p, bulk: bulk, uses: make([]int, len(bulk)), seen: map[remainder]int64{}}
		s.descend(rest, n, 0)
		if s.best != nil {
			total := slices.Clone(bulk)
			for i, k := range s.best {
				total[i] += k
			}
			return total
		}
	}
}

type searcher struct {
	*problem
	bulk, uses []int
	best       []int
	bestCost   int64
	bestKinds  int
	nodes      int
	seen       map[remainder]int64 // least cost at which a state was entered
}

// descend covers rest with exactly left patterns where it can.
func (s *searcher) descend(rest []int, left int, cost int64) {
	if sum(rest) == 0 {
		s.record(cost)
		return
	}
	s.nodes++
	if s.hopeless(rest, left, cost) || s.entered(rest, left, cost) {
		return
	}
	dim := s.scarcest(rest)
	for _, i := range s.ranked(rest, dim) {
		next := slices.Clone(rest)
		for d, c := range s.patterns[i].counts {
			next[d] = max(0, next[d]-c)
		}
		s.uses[i]++
		s.descend(next, left-1, cost+s.patterns[i].cost)
		s.uses[i]--
	}
}

// hopeless reports whether nothing better can come of a state, or the nodes are
// spent.
func (s *searcher) hopeless(rest []int, left int, cost int64) bool {
	budget := searchNodes
	if s.best != nil {
		budget = improveNodes
	}
	return left == 0 || s.nodes > budget || s.bound(rest) > left || s.best != nil && cost > s.bestCost
}

// entered reports whether the state was entered before at no more cost, and
// remembers it.
func (s *searcher) entered(rest []int, left int, cost int64) bool {
	key := remainder{left: left}
	for i, n := range rest {
		key.rest[i] = int32(n) //nolint:gosec // at most MaxDemand
	}
	least, ok := s.seen[key]
	if ok && least <= cost {
		return true
	}
	s.seen[key] = cost
	return false
}

func (s *searcher) record(cost int64) {
	kinds := 0
	for i, n := range s.uses {
		if n+s.bulk[i] > 0 {
			kinds++
		}
	}
	if s.best == nil || cost < s.bestCost || cost == s.bestCost && kinds < s.bestKinds {
		s.best, s.bestCost, s.bestKinds = slices.Clone(s.uses), cost, kinds
	}
}

// scarcest picks the dimension that needs the most patterns of its own; some
// pattern of any cover has it, so that branching on it loses nothing.
func (s *searcher) scarcest(rest []int) int {
	best, bestNum, bestDen := -1, 0, 1
	for d, n := range rest {
		if m := s.most[d]; n > 0 && (best < 0 || n*bestDen > bestNum*m) {
			best, bestNum, bestDen = d, n, m
		}
	}
	return best
}

// ranked lists the patterns with the dimension, most useful first.
func (s *searcher) ranked(rest []int, dim int) []int {
	type ranked struct {
		pattern int
		gain    int64
	}
	var list []ranked
	for i, p := range s.patterns {
		if p.counts[dim] == 0 {
			continue
		}
		var gain int64
		for d, c := range p.counts {
			gain += int64(min(c, rest[d])) * s.prices[d]
		}
		list = append(list, ranked{i, gain})
	}
	slices.SortStableFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.gain, a.gain), cmp.Compare(s.patterns[a.pattern].cost, s.patterns[b.pattern].cost))
	})
	order := make([]int, len(list))
	for i, r := range list {
		order[i] = r.pattern
	}
	return order
}
