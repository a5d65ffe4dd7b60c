package fleet

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// DefaultIterations is the number of improvement steps of a Solve that sets
// none. Small plans are at their best long before; in plans of hundreds of nodes
// the rounded linear program leaves less than 1 % to win.
const DefaultIterations = 3_000

// Solve returns the cheapest plan that it finds, and a bound on the cheapest
// that there is. It never costs more than Greedy's. The plan leaves as few pods
// unplaced as the search finds possible, and among such plans costs least.
//
// The linear program of LowerBound gives each pod a price. Plans are started
// from the program's whole nodes and from builds that value pods at these
// prices; the best is improved by ruin and recreate: some nodes, preferably
// those that cost more than the pods on them are worth, are emptied and their
// pods built anew. Equal input, seed and iterations give an equal plan,
// whatever the order of classes, shapes and resources.
func Solve(p Problem, o Options) (Plan, error) {
	if err := p.Validate(); err != nil {
		return Plan{}, err
	}
	m := newModel(p)
	stop := o.stop()
	r := m.relax(solveBudget, stop)
	rng := rand.New(rand.NewPCG(o.Seed, 0x6b617270656e7465)) //nolint:gosec // a search must be repeatable, nothing is secret
	values := m.values(r)
	st := m.improve(m.start(r, values, rng), values, r.bound, o, rng)
	out := m.plan(p, st)
	out.LowerBound = r.bound
	return out, nil
}

// values are the program's prices, lifted a little so that pods which it holds
// for free are still worth placing.
func (m *model) values(r relaxation) []float64 {
	out := make([]float64, len(m.classes))
	for c := range out {
		out[c] = max(r.prices[c], 1e-3*m.cheapestShare(c), 1e-9)
	}
	return out
}

// start is the best of several simple plans.
func (m *model) start(r relaxation, values []float64, rng *rand.Rand) *state {
	best, keys := m.greedy(), make([]float64, len(m.classes))
	m.balance(best)
	for _, keep := range []float64{1, 0.8, 0.5, 2} {
		for range 3 {
			order := m.placeable()
			for _, c := range order {
				keys[c] = values[c] * math.Exp(0.2*rng.NormFloat64())
			}
			sortFalling(order, keys)
			st := m.rounded(r, keep)
			st.nodes = newBuilder(m, values, true).build(st.nodes, st.left, order, &st.room)
			m.balance(st)
			if better(st.unplaced(), st.room.price, best.unplaced(), best.room.price) {
				best = st
			}
		}
	}
	return best
}

// placeable lists the classes that some shape holds.
func (m *model) placeable() []int {
	var out []int
	for c := range m.classes {
		if !m.classes[c].mask.empty() {
			out = append(out, c)
		}
	}
	return out
}

// rounded opens the nodes of the linear program: each fill as many times as its
// amount, rounded up where the fraction is at least keep, as long as there are
// pods for it.
func (m *model) rounded(r relaxation, keep float64) *state {
	st := m.newState()
	fills := slices.Clone(r.fills)
	slices.SortStableFunc(fills, func(a, b fill) int { return cmp.Compare(b.amount, a.amount) })
	for _, f := range fills {
		times := int(f.amount + 1e-6)
		if f.amount-float64(times) >= keep {
			times++
		}
		for range times {
			if !m.place(st, f) {
				break
			}
		}
	}
	return st
}

func (m *model) place(st *state, f fill) bool {
	if !m.admits(&st.room, f.shape) {
		return false
	}
	load := make([]int64, len(m.shapes[f.shape].alloc))
	for _, s := range f.pods {
		if st.left[s.class] < s.n {
			return false
		}
		for d, q := range m.classes[s.class].req {
			load[d] += q * int64(s.n)
		}
	}
	if !m.opens(&m.shapes[f.shape], load) {
		return false
	}
	for _, s := range f.pods {
		st.left[s.class] -= s.n
	}
	m.add(&st.room, f.shape, 1)
	st.nodes = append(st.nodes, node{shape: f.shape, pods: sortShares(slices.Clone(f.pods))})
	return true
}
