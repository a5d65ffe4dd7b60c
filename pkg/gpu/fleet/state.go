package fleet

import (
	"cmp"
	"math"
	"slices"
)

// node is one open node of a partial plan.
type node struct {
	shape int
	pods  []share // ascending class
}

type share struct{ class, n int }

// state is a partial plan: nodes, and what is left of the demand.
type state struct {
	nodes []node
	left  []int // pods without a node, by class
	room  room
}

// room is what the limits over the whole plan still leave, and what was spent.
type room struct {
	price float64 // spent
	gpus  int     // spent
	nodes []int   // spent, by shape
}

func (m *model) newState() *state {
	st := &state{left: make([]int, len(m.classes)), room: room{nodes: make([]int, len(m.shapes))}}
	for c := range m.classes {
		st.left[c] = m.classes[c].n
	}
	return st
}

func (st *state) clone() *state {
	out := &state{nodes: slices.Clone(st.nodes), left: slices.Clone(st.left), room: st.room}
	out.room.nodes = slices.Clone(st.room.nodes)
	return out
}

// unplaced counts the pods without a node.
func (st *state) unplaced() int {
	n := 0
	for _, k := range st.left {
		n += k
	}
	return n
}

// better orders plans: fewer pods without a node, then cheaper by more than
// rounding.
func better(unplacedA int, priceA float64, unplacedB int, priceB float64) bool {
	if unplacedA != unplacedB {
		return unplacedA < unplacedB
	}
	return priceA < priceB-tolerance(priceB)
}

func tolerance(price float64) float64 { return 1e-9 * (1 + price) }

func (m *model) add(r *room, s, sign int) {
	r.price += float64(sign) * m.shapes[s].price
	r.gpus += sign * m.shapes[s].gpus
	r.nodes[s] += sign
}

// admits says whether the limits over the plan leave room for one more node.
func (m *model) admits(r *room, s int) bool {
	sh := &m.shapes[s]
	if r.nodes[s] >= sh.max {
		return false
	}
	if l := m.limits.GPUs; l != nil && r.gpus+sh.gpus > *l {
		return false
	}
	l := m.limits.PricePerHour
	return l == nil || r.price+sh.price <= *l+tolerance(*l)
}

// resum recomputes the price, so that rounding of many small steps does not add
// up.
func (m *model) resum(st *state) {
	st.room.price = 0
	for _, n := range st.nodes {
		st.room.price += m.shapes[n.shape].price
	}
}

// plan turns the state into a Plan over the indexes of the input. Merged
// classes are taken apart in the order of their names.
func (m *model) plan(p Problem, st *state) Plan {
	nodes := slices.Clone(st.nodes)
	slices.SortFunc(nodes, func(a, b node) int {
		return cmp.Or(-cmp.Compare(a.shape, b.shape), -slices.CompareFunc(a.pods, b.pods, func(x, y share) int {
			return cmp.Or(-cmp.Compare(x.class, y.class), cmp.Compare(x.n, y.n))
		}))
	})
	out := Plan{}
	give := newDealer(p, m)
	for _, n := range nodes {
		in := m.shapes[n.shape].input
		next := Node{Shape: in, Count: 1}
		for _, s := range n.pods {
			next.Pods = append(next.Pods, give.take(s.class, s.n)...)
		}
		slices.SortFunc(next.Pods, func(a, b Share) int { return cmp.Compare(a.Class, b.Class) })
		if last := len(out.Nodes) - 1; last >= 0 && out.Nodes[last].Shape == in && slices.Equal(out.Nodes[last].Pods, next.Pods) {
			out.Nodes[last].Count++
		} else {
			out.Nodes = append(out.Nodes, next)
		}
		out.GPUs += p.Shapes[in].GPUs
	}
	for _, n := range out.Nodes {
		out.Price += float64(n.Count) * p.Shapes[n.Shape].Price
	}
	for c, k := range st.left {
		if k > 0 {
			reason, shape := m.explain(c, &st.room)
			for _, s := range give.take(c, k) {
				out.Unplaced = append(out.Unplaced, Unplaced{Class: s.Class, Count: s.Count, Reason: reason, Shape: shape})
			}
		}
	}
	slices.SortFunc(out.Unplaced, func(a, b Unplaced) int { return cmp.Compare(a.Class, b.Class) })
	return out
}

// dealer hands out the pods of merged classes.
type dealer struct {
	p    Problem
	m    *model
	used []int // pods taken, by input class
}

func newDealer(p Problem, m *model) *dealer {
	return &dealer{p: p, m: m, used: make([]int, len(p.Classes))}
}

func (d *dealer) take(class, n int) []Share {
	var out []Share
	for _, in := range d.m.classes[class].members {
		k := min(n, d.p.Classes[in].Count-d.used[in])
		if k > 0 {
			out = append(out, Share{Class: in, Count: k})
			d.used[in] += k
			n -= k
		}
	}
	return out
}

// explain finds the cheapest shape that holds a pod of the class and the first
// of the limits that refuses it. A limit on nodes of a shape is the reason only
// if no shape is free of it.
func (m *model) explain(c int, r *room) (Reason, int) {
	cheapest := -1
	for s := range m.shapes {
		if !m.classes[c].mask.has(s) {
			continue
		}
		if cheapest < 0 {
			cheapest = s
		}
		if r.nodes[s] < m.shapes[s].max {
			return m.refusal(c, s, r), m.shapes[s].input
		}
	}
	if cheapest < 0 {
		return ReasonNoShape, -1
	}
	return ReasonMaxNodes, m.shapes[cheapest].input
}

func (m *model) refusal(c, s int, r *room) Reason {
	sh := &m.shapes[s]
	if l := m.limits.GPUs; l != nil && r.gpus+sh.gpus > *l {
		return ReasonGPULimit
	}
	if l := m.limits.PricePerHour; l != nil && r.price+sh.price > *l+tolerance(*l) {
		return ReasonPriceLimit
	}
	if !m.opens(sh, m.classes[c].req) {
		return ReasonUnusedGPUs
	}
	// The shape would do; it is the search that left the pod out for one that
	// it could place in its stead, which only limits over the plan bring about.
	if m.limits.GPUs != nil {
		return ReasonGPULimit
	}
	if m.limits.PricePerHour != nil {
		return ReasonPriceLimit
	}
	return ReasonMaxNodes
}

// cheapestFor is the cheapest shape of mask that holds load and that the limits
// let open, up to and without shape end; -1 if there is none.
func (m *model) cheapestFor(load []int64, mask set, r *room, end int) int {
	for s := range min(end, len(m.shapes)) {
		if mask.has(s) && holds(m.shapes[s].alloc, load) && m.admits(r, s) && m.opens(&m.shapes[s], load) {
			return s
		}
	}
	return -1
}

// satAddMul is sum + n*q, held at the largest int64.
func satAddMul(sum, q int64, n int) int64 {
	if q > 0 && int64(n) > (math.MaxInt64-sum)/q {
		return math.MaxInt64
	}
	return sum + q*int64(n)
}
