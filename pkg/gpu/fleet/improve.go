package fleet

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// improver is the ruin and recreate search over one state.
type improver struct {
	m      *model
	st     *state
	values []float64
	rng    *rand.Rand
	b      *builder
	noisy  []float64

	waste   []float64 // by node: price less the worth of the pods on it
	total   float64   // of waste
	picked  []int     // nodes to ruin, falling
	classes []int
	left    []int
	fresh   []node
	keys    []float64
}

// iterations is the number of steps that the options ask for.
func (o Options) iterations() int {
	if o.Iterations == 0 {
		return DefaultIterations
	}
	return max(o.Iterations, 0)
}

func (m *model) improve(st *state, values []float64, bound float64, o Options, rng *rand.Rand) *state {
	if len(st.nodes) == 0 && !m.capped() {
		return st
	}
	im := &improver{m: m, st: st, values: values, rng: rng, noisy: slices.Clone(values)}
	im.b = newBuilder(m, im.noisy, true)
	im.left = make([]int, len(m.classes))
	im.keys = make([]float64, len(m.classes))
	for _, n := range st.nodes {
		im.waste = append(im.waste, im.wasteOf(n))
		im.total += im.waste[len(im.waste)-1]
	}
	best := st.clone()
	stop, steps := o.stop(), o.iterations()
	for i := range steps {
		if i&15 == 0 && stop() || best.unplaced() == 0 && best.room.price <= bound+tolerance(bound) {
			break
		}
		im.step(best, 1-float64(i)/float64(steps))
		if better(st.unplaced(), st.room.price, best.unplaced(), best.room.price) {
			best = st.clone()
		}
	}
	m.balance(best)
	m.resum(best)
	return best
}

// breadth draws how many nodes to ruin; none only if there are none.
func (im *improver) breadth() int {
	if len(im.st.nodes) == 0 {
		return 0
	}
	return 1 + im.rng.IntN(min(8, len(im.st.nodes)))
}

func (im *improver) wasteOf(n node) float64 {
	w := im.m.shapes[n.shape].price
	for _, s := range n.pods {
		w -= im.values[s.class] * float64(s.n)
	}
	return max(w, 0)
}

// step ruins a few nodes and keeps what is built from their pods if the whole
// is then better, equal, or worse than best by no more than a slack that falls
// to nothing as heat goes from 1 to 0.
func (im *improver) step(best *state, heat float64) {
	st := im.st
	im.pick(im.breadth())
	before, price, unplaced := st.room.price, 0.0, 0
	im.gather()
	for _, c := range im.classes {
		unplaced += st.left[c]
	}
	for _, i := range im.picked {
		n := st.nodes[i]
		price += im.m.shapes[n.shape].price
		im.m.add(&st.room, n.shape, -1)
	}
	im.perturb()
	im.b.lean = im.spread()
	im.fresh = im.b.build(im.fresh[:0], im.left, im.classes, &st.room)
	left := 0
	for _, c := range im.classes {
		left += im.left[c]
	}
	slack := heat * 0.002 * best.room.price
	if left < unplaced || left == unplaced && st.room.price <= max(before, min(best.room.price+slack, before+price*0.1)) {
		im.commit()
		return
	}
	for _, n := range im.fresh {
		im.m.add(&st.room, n.shape, -1)
	}
	for _, i := range im.picked {
		im.m.add(&st.room, st.nodes[i].shape, 1)
	}
	st.room.price = before
}

// pick chooses k nodes, half by waste and half evenly.
func (im *improver) pick(k int) {
	im.picked = im.picked[:0]
	for j := range k {
		i := im.rng.IntN(len(im.st.nodes))
		if (j == 0 || im.rng.IntN(2) == 0) && im.total > 1e-9 {
			i = im.roulette()
		}
		if !slices.Contains(im.picked, i) {
			im.picked = append(im.picked, i)
		}
	}
	slices.SortFunc(im.picked, func(a, b int) int { return b - a })
}

func (im *improver) roulette() int {
	at := im.rng.Float64() * im.total
	for i, w := range im.waste {
		if at -= w; at < 0 {
			return i
		}
	}
	return len(im.waste) - 1
}

// gather adds up the demand of the picked nodes and of the unplaced pods.
func (im *improver) gather() {
	copy(im.left, im.st.left)
	for _, i := range im.picked {
		for _, s := range im.st.nodes[i].pods {
			im.left[s.class] += s.n
		}
	}
	im.classes = im.classes[:0]
	for c, n := range im.left {
		if n > 0 && !im.m.classes[c].mask.empty() {
			im.classes = append(im.classes, c)
		}
	}
}

// perturb draws new values and a new order for the next build.
func (im *improver) perturb() {
	spread := 0.4 * im.rng.Float64()
	for _, c := range im.classes {
		im.noisy[c] = im.values[c] * (1 + spread*(2*im.rng.Float64()-1))
	}
	im.m.orderInto(im.classes, im.noisy, im.keys, im.rng)
}

// orderInto sorts classes by one of three keys: value, value times a random
// factor, or chance.
func (m *model) orderInto(classes []int, values, keys []float64, rng *rand.Rand) {
	mode := rng.IntN(4)
	for _, c := range classes {
		switch mode {
		case 0:
			keys[c] = values[c]
		case 1, 2:
			keys[c] = values[c] * math.Exp(rng.NormFloat64())
		default:
			keys[c] = rng.Float64()
		}
	}
	sortFalling(classes, keys)
}

func sortFalling(classes []int, keys []float64) {
	slices.SortFunc(classes, func(a, b int) int {
		return cmp.Or(cmp.Compare(keys[b], keys[a]), cmp.Compare(a, b))
	})
}

// commit replaces the picked nodes by the fresh ones.
func (im *improver) commit() {
	st := im.st
	for _, i := range im.picked {
		last := len(st.nodes) - 1
		im.total -= im.waste[i]
		st.nodes[i], im.waste[i] = st.nodes[last], im.waste[last]
		st.nodes, im.waste = st.nodes[:last], im.waste[:last]
	}
	for _, n := range im.fresh {
		w := im.wasteOf(n)
		st.nodes, im.waste = append(st.nodes, n), append(im.waste, w)
		im.total += w
	}
	for _, c := range im.classes {
		st.left[c] = im.left[c]
	}
	im.total = max(im.total, 0)
}
