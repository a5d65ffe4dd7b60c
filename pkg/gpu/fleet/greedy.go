package fleet

import (
	"cmp"
	"slices"
)

// Greedy is the simple packing that Solve is measured against. A pod is worth
// the price of the cheapest shape that holds it alone. Until nothing is left,
// every shape is filled first-fit, and the one with the lowest price for the
// worth on it is opened. That runs once for each of three orders of the pods
// (dearest share of a shape first; in falling order of the second resource by
// name, then the first, so memory, then cpu; most GPUs first) and the cheapest of the three plans counts.
// Limits hold; nothing is improved afterwards.
func Greedy(p Problem) (Plan, error) {
	if err := p.Validate(); err != nil {
		return Plan{}, err
	}
	m := newModel(p)
	return m.plan(p, m.greedy()), nil
}

func (m *model) greedy() *state {
	var best *state
	for _, order := range m.greedyOrders() {
		st := m.newState()
		st.nodes = newBuilder(m, m.worth(), false).build(nil, st.left, order, &st.room)
		if best == nil || better(st.unplaced(), st.room.price, best.unplaced(), best.room.price) {
			best = st
		}
	}
	return best
}

// worth is alone, and a trifle for pods that a free shape holds, so that every
// pod is worth placing.
func (m *model) worth() []float64 {
	out := make([]float64, len(m.alone))
	for c, v := range m.alone {
		out[c] = max(v, 1e-9)
	}
	return out
}

func (m *model) greedyOrders() [][]int {
	share := make([]float64, len(m.classes))
	for c := range m.classes {
		share[c] = m.cheapestShare(c)
	}
	req := func(c, d int) int64 {
		if d >= len(m.classes[c].req) {
			return 0
		}
		return m.classes[c].req[d]
	}
	gpus := func(c int) (sum float64) {
		for _, d := range m.gpuDims {
			sum += float64(m.classes[c].req[d])
		}
		return sum
	}
	byClass := func(less func(a, b int) int) []int {
		return byKey(len(m.classes), func(a, b int) int { return cmp.Or(-less(a, b), cmp.Compare(a, b)) })
	}
	return [][]int{
		byClass(func(a, b int) int { return cmp.Compare(share[a], share[b]) }),
		byClass(func(a, b int) int {
			return cmp.Or(cmp.Compare(req(a, 1), req(b, 1)), cmp.Compare(req(a, 0), req(b, 0)))
		}),
		byClass(func(a, b int) int { return cmp.Compare(gpus(a), gpus(b)) }),
	}
}

// cheapestShare is the least price of the part of a node that one pod takes,
// its largest fraction of any resource.
func (m *model) cheapestShare(c int) float64 {
	var shares []float64
	for s := range m.shapes {
		if m.classes[c].mask.has(s) {
			shares = append(shares, m.shapes[s].price*m.fraction(c, s))
		}
	}
	if len(shares) == 0 {
		return 0
	}
	return slices.Min(shares)
}

// fraction is the largest part of any resource of shape s that one pod takes.
func (m *model) fraction(c, s int) float64 {
	f := 0.0
	for d, r := range m.classes[c].req {
		f = max(f, float64(r)*m.shapes[s].inv[d])
	}
	return f
}
