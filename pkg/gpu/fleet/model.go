package fleet

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// model is a Problem in canonical form: classes and shapes sorted by content, so
// that the order of the input cannot show in the output; equal classes merged;
// shapes that another shape replaces at no loss dropped.
type model struct {
	classes []class
	shapes  []shape // ascending price, then name
	gpuDims []int   // dimensions are sorted by the name of the resource
	limits  Limits
	// alone is the price of the cheapest shape that holds one pod of the class;
	// 0 if there is none.
	alone []float64
}

type class struct {
	req     []int64
	n       int
	perNode int   // at least 1
	mask    set   // shapes that are allowed and hold one pod
	members []int // input classes, by name; more than one only without a cap
}

type shape struct {
	alloc []int64
	inv   []float64 // 1/alloc, 0 where alloc is 0
	price float64
	gpus  int
	max   int // math.MaxInt without a cap
	input int
}

// set is a bit set over model.shapes.
type set []uint64

func newSet(n int) set       { return make(set, (n+63)/64) }
func (s set) add(i int)      { s[i>>6] |= 1 << (i & 63) }
func (s set) has(i int) bool { return s[i>>6]>>(i&63)&1 == 1 }
func (s set) empty() bool    { return !slices.ContainsFunc(s, func(w uint64) bool { return w != 0 }) }

// newModel expects a valid problem.
func newModel(p Problem) *model {
	m := &model{limits: p.Limits}
	dims := byKey(len(p.Resources), func(a, b int) int { return cmp.Compare(p.Resources[a], p.Resources[b]) })
	for d, in := range dims {
		if slices.Contains(p.GPUResources, p.Resources[in]) {
			m.gpuDims = append(m.gpuDims, d)
		}
	}
	order := byKey(len(p.Shapes), func(a, b int) int {
		x, y := p.Shapes[a], p.Shapes[b]
		return cmp.Or(cmp.Compare(x.Price, y.Price), cmp.Compare(x.Name, y.Name))
	})
	all := make([]shape, len(order))
	for i, in := range order {
		all[i] = newShape(p.Shapes[in], in, dims)
	}
	m.classes = mergeClasses(p, all, dims)
	m.shapes = all
	m.dropDominated()
	m.setAlone()
	return m
}

func byKey(n int, less func(a, b int) int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, less)
	return order
}

func permute(v []int64, order []int) []int64 {
	out := make([]int64, len(v))
	for i, in := range order {
		out[i] = v[in]
	}
	return out
}

func newShape(s Shape, input int, dims []int) shape {
	out := shape{alloc: permute(s.Allocatable, dims), inv: make([]float64, len(s.Allocatable)),
		price: s.Price, gpus: s.GPUs, max: math.MaxInt, input: input}
	if s.MaxNodes > 0 {
		out.max = s.MaxNodes
	}
	for d, a := range out.alloc {
		if a > 0 {
			out.inv[d] = 1 / float64(a)
		}
	}
	return out
}

// mergeClasses sorts the classes with pods and joins those that are equal. A
// cap per node holds for each class of the input, so capped ones stay apart.
func mergeClasses(p Problem, shapes []shape, dims []int) []class {
	masks, reqs := make([]set, len(p.Classes)), make([][]int64, len(p.Classes))
	for i, c := range p.Classes {
		reqs[i] = permute(c.Requests, dims)
		masks[i] = classMask(c, reqs[i], shapes)
	}
	order := byKey(len(p.Classes), func(a, b int) int {
		x, y := p.Classes[a], p.Classes[b]
		return cmp.Or(slices.Compare(reqs[a], reqs[b]), slices.Compare(masks[a], masks[b]),
			cmp.Compare(x.MaxPerNode, y.MaxPerNode), cmp.Compare(x.Name, y.Name))
	})
	var out []class
	for _, i := range order {
		c := p.Classes[i]
		if c.Count == 0 {
			continue
		}
		if last := len(out) - 1; last >= 0 && c.MaxPerNode == 0 && out[last].perNode == math.MaxInt &&
			slices.Equal(out[last].req, reqs[i]) && slices.Equal(out[last].mask, masks[i]) {
			out[last].n += c.Count
			out[last].members = append(out[last].members, i)
			continue
		}
		perNode := math.MaxInt
		if c.MaxPerNode > 0 {
			perNode = c.MaxPerNode
		}
		out = append(out, class{req: reqs[i], n: c.Count, perNode: perNode, mask: masks[i], members: []int{i}})
	}
	return out
}

func classMask(c Class, req []int64, shapes []shape) set {
	mask := newSet(len(shapes))
	for s := range shapes {
		if (c.Shapes == nil || slices.Contains(c.Shapes, shapes[s].input)) && holds(shapes[s].alloc, req) {
			mask.add(s)
		}
	}
	return mask
}

func holds(alloc, load []int64) bool {
	for d := range load {
		if load[d] > alloc[d] {
			return false
		}
	}
	return true
}

// dropDominated removes a shape when an earlier one (cheaper or as cheap)
// without a cap on nodes allocates as much, takes the same pods and counts no
// worse against the limits: replacing node by node never costs more, so neither
// the optimum nor a lower bound changes.
func (m *model) dropDominated() {
	var kept []int
	for s := range m.shapes {
		if !slices.ContainsFunc(kept, func(t int) bool { return m.dominates(t, s) }) {
			kept = append(kept, s)
		}
	}
	shapes := make([]shape, len(kept))
	masks := make([]set, len(m.classes))
	for i := range masks {
		masks[i] = newSet(len(kept))
	}
	for i, s := range kept {
		shapes[i] = m.shapes[s]
		for c := range m.classes {
			if m.classes[c].mask.has(s) {
				masks[c].add(i)
			}
		}
	}
	m.shapes = shapes
	for c := range m.classes {
		m.classes[c].mask = masks[c]
	}
}

func (m *model) dominates(t, s int) bool {
	a, b := &m.shapes[t], &m.shapes[s]
	if a.max != math.MaxInt || !holds(a.alloc, b.alloc) {
		return false
	}
	if m.limits.GPUs != nil && a.gpus > b.gpus {
		return false
	}
	if m.limits.MaxUnusedGPUs != nil && (a.gpus > b.gpus || !sameGPUs(a, b, m.gpuDims)) {
		return false
	}
	for c := range m.classes {
		if m.classes[c].mask.has(s) && !m.classes[c].mask.has(t) {
			return false
		}
	}
	return true
}

func sameGPUs(a, b *shape, dims []int) bool {
	for _, d := range dims {
		if a.alloc[d] != b.alloc[d] {
			return false
		}
	}
	return a.gpus == b.gpus
}

func (m *model) setAlone() {
	m.alone = make([]float64, len(m.classes))
	for c := range m.classes {
		for s := range m.shapes {
			if m.classes[c].mask.has(s) {
				m.alone[c] = m.shapes[s].price
				break
			}
		}
	}
}

// most is how many pods of class c fit into free, at most limit.
func (m *model) most(c int, free []int64, limit int) int {
	k := int64(min(limit, m.classes[c].perNode))
	for d, r := range m.classes[c].req {
		if r > 0 && k > 0 {
			if free[d] < r {
				return 0
			}
			if r > math.MaxInt64/maxCount || r*k > free[d] {
				k = min(k, free[d]/r)
			}
		}
	}
	return int(k)
}

// unused is the number of GPUs of a node of shape s that no pod touches when
// load is on it: the GPUs less the fewest that can hold the largest share in
// use of any one GPU resource.
func (m *model) unused(s *shape, load []int64) int {
	used := uint64(0)
	for _, d := range m.gpuDims {
		if s.alloc[d] == 0 || load[d] == 0 {
			continue
		}
		// No amount is negative, and load ≤ alloc, so that the quotient is at most
		// gpus and its high word fits.
		alloc := uint64(s.alloc[d])                           //nolint:gosec // 0 or more
		hi, lo := bits.Mul64(uint64(load[d]), uint64(s.gpus)) //nolint:gosec // 0 or more
		q, rem := bits.Div64(hi, lo, alloc)
		if rem > 0 {
			q++
		}
		used = max(used, q)
	}
	return s.gpus - int(used)
}

// opens says whether the limits that hold for each node let load be launched
// on shape s.
func (m *model) opens(s *shape, load []int64) bool {
	return m.limits.MaxUnusedGPUs == nil || m.unused(s, load) <= *m.limits.MaxUnusedGPUs
}
