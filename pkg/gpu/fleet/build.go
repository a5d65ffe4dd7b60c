package fleet

import (
	"math"
	"slices"
)

// builder opens nodes one after the other for a demand: of all shapes, each
// filled first-fit in a given order of the classes, it takes the one with the
// most value for its price. It owns scratch space and is not for concurrent use.
type builder struct {
	m *model
	// value of placing one pod of the class.
	value []float64
	// whole turns on the two refinements that the plain greedy lacks: a filled
	// node shrinks to the cheapest shape that holds the same pods, and wherever
	// all that is left fits on one node the build may end with that.
	whole bool
	// lean is how many nodes of a build are filled no further than the cap on
	// unused GPUs asks for; see balance.go. 0 without a cap.
	lean int

	free, load []int64
	active     set
	fill, best []share
	mask       set
	rest       []share
}

func newBuilder(m *model, value []float64, whole bool) *builder {
	dims := 0
	if len(m.shapes) > 0 {
		dims = len(m.shapes[0].alloc)
	}
	return &builder{m: m, value: value, whole: whole, free: make([]int64, dims), load: make([]int64, dims),
		active: newSet(len(m.shapes)), mask: newSet(len(m.shapes))}
}

// build places the pods of left on new nodes, appended to nodes, in order of
// classes, each of which some shape holds if b.whole; it lowers left and spends r. Pods that no admitted node holds stay
// in left.
func (b *builder) build(nodes []node, left []int, order []int, r *room) []node {
	start, finish := len(nodes), ending{price: math.Inf(1), at: -1}
	spent, lean := r.price, b.lean
	for {
		if b.whole && lean == 0 { // an ending cannot tell what topping up will hold
			b.tryEnding(&finish, left, order, r, len(nodes), r.price-spent)
		}
		s := b.next(left, order, r)
		if s < 0 {
			break
		}
		pods := slices.Clone(b.best)
		for _, sh := range pods {
			left[sh.class] -= sh.n
		}
		nodes = append(nodes, node{shape: s, pods: sortShares(pods)})
		b.m.add(r, s, 1)
		b.lean = max(0, b.lean-1)
		if finish.undercuts(r.price - spent) {
			break // what follows only costs more
		}
	}
	if b.lean = 0; lean > 0 {
		b.topUp(nodes[start:], left, order)
	}
	if finish.at >= 0 && (anyLeft(left, order) || r.price-spent > finish.price) {
		nodes = b.rewind(nodes, left, r, finish)
	}
	return nodes
}

func sortShares(pods []share) []share {
	slices.SortFunc(pods, func(a, b share) int { return a.class - b.class })
	return pods
}

func anyLeft(left, order []int) bool {
	return slices.ContainsFunc(order, func(c int) bool { return left[c] > 0 })
}

// ending is the cheapest way seen to end a build: after node at, all that was
// left then on one node of the shape.
type ending struct {
	price float64
	at    int
	last  node
}

// undercuts says whether the ending, if there is one, costs no more than price.
func (e *ending) undercuts(price float64) bool {
	return e.at >= 0 && price >= e.price-tolerance(e.price)
}

func (b *builder) tryEnding(e *ending, left, order []int, r *room, at int, spent float64) {
	m := b.m
	clear(b.load)
	for i := range b.mask {
		b.mask[i] = ^uint64(0)
	}
	b.rest = b.rest[:0]
	for _, c := range order {
		if left[c] == 0 {
			continue
		}
		cl := &m.classes[c]
		if left[c] > cl.perNode {
			return
		}
		for i := range b.mask {
			b.mask[i] &= cl.mask[i]
		}
		for d, q := range cl.req {
			b.load[d] = satAddMul(b.load[d], q, left[c])
		}
		b.rest = append(b.rest, share{c, left[c]})
	}
	if len(b.rest) == 0 || b.mask.empty() {
		return
	}
	s := m.cheapestFor(b.load, b.mask, r, len(m.shapes))
	if s < 0 || spent+m.shapes[s].price >= e.price {
		return
	}
	*e = ending{price: spent + m.shapes[s].price, at: at, last: node{shape: s, pods: sortShares(slices.Clone(b.rest))}}
}

func (b *builder) rewind(nodes []node, left []int, r *room, e ending) []node {
	for _, n := range nodes[e.at:] {
		b.m.add(r, n.shape, -1)
		for _, sh := range n.pods {
			left[sh.class] += sh.n
		}
	}
	for _, sh := range e.last.pods {
		left[sh.class] -= sh.n
	}
	b.m.add(r, e.last.shape, 1)
	return append(nodes[:e.at], e.last)
}

// next picks the shape for one more node and leaves its pods in b.best; -1 if
// no admitted shape takes a pod.
func (b *builder) next(left, order []int, r *room) int {
	m := b.m
	clear(b.active)
	for _, c := range order {
		if left[c] > 0 {
			for i, w := range m.classes[c].mask {
				b.active[i] |= w
			}
		}
	}
	chosen, best := -1, -1.0
	for s := range m.shapes {
		if !b.active.has(s) || !m.admits(r, s) && !b.whole {
			continue
		}
		value := b.fillShape(s, left, order)
		if value <= 0 {
			continue
		}
		t := b.settle(s, r)
		if t < 0 {
			continue
		}
		if score := value / max(m.shapes[t].price, 1e-12); score >= best*(1-1e-12) { // of equal ones the larger
			chosen, best = t, score
			b.best = append(b.best[:0], b.fill...)
		}
	}
	return chosen
}

// settle is the shape that a fill of s is launched on.
func (b *builder) settle(s int, r *room) int {
	if b.whole {
		return b.m.cheapestFor(b.load, b.mask, r, s+1)
	}
	if b.m.opens(&b.m.shapes[s], b.load) {
		return s
	}
	return -1
}

// fillShape fills b.fill, b.load and b.mask first-fit and returns the value.
func (b *builder) fillShape(s int, left, order []int) float64 {
	m := b.m
	copy(b.free, m.shapes[s].alloc)
	b.fill = b.fill[:0]
	for i := range b.mask {
		b.mask[i] = ^uint64(0)
	}
	value := 0.0
	for _, c := range order {
		if left[c] == 0 || !m.classes[c].mask.has(s) {
			continue
		}
		k := m.most(c, b.free, left[c])
		if k > 0 && b.lean > 0 {
			k = b.leanest(s, c, k)
		}
		if k == 0 {
			continue
		}
		for d, q := range m.classes[c].req {
			b.free[d] -= q * int64(k)
		}
		for i, w := range m.classes[c].mask {
			b.mask[i] &= w
		}
		b.fill = append(b.fill, share{c, k})
		value += float64(k) * b.value[c]
	}
	for d, a := range m.shapes[s].alloc {
		b.load[d] = a - b.free[d]
	}
	return value
}
