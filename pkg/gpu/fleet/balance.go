package fleet

import "sort"

// The cap on unused GPUs makes full nodes a trap: six pods of one GPU on nodes of
// four are four on one node and two that may not open another, though three and
// three are allowed. Two means answer it, and neither does anything without a cap:
// lean fills, which stop at the fewest pods that open a node and are topped up at
// the end of the build, and balance, which opens a node for pods that have none
// with what other nodes can spare.

// capped says whether nodes have to be used up to some part to be opened.
func (m *model) capped() bool { return m.limits.MaxUnusedGPUs != nil }

// spread draws how many nodes of the next build are filled lean: none in half of
// the builds.
func (im *improver) spread() int {
	if !im.m.capped() || im.rng.IntN(2) == 0 {
		return 0
	}
	return 1 + im.rng.IntN(8)
}

// leanest is the least number of pods of class c, at most k, that opens a node of
// shape s with the fill so far; k if none does, or if the pods use no GPU and so
// stand in nobody's way.
func (b *builder) leanest(s, c, k int) int {
	req, sh := b.m.classes[c].req, &b.m.shapes[s]
	if !b.m.usesGPU(c) {
		return k
	}
	return min(k, sort.Search(k+1, func(n int) bool {
		for d, q := range req {
			b.load[d] = sh.alloc[d] - b.free[d] + q*int64(n)
		}
		return b.m.opens(sh, b.load)
	}))
}

func (m *model) usesGPU(c int) bool {
	for _, d := range m.gpuDims {
		if m.classes[c].req[d] > 0 {
			return true
		}
	}
	return false
}

// topUp puts pods of left where the nodes have room for them. More pods on a node
// never break a limit.
func (b *builder) topUp(nodes []node, left, order []int) {
	m := b.m
	for i := range nodes {
		n := &nodes[i]
		m.roomOf(n, b.free)
		for _, c := range order {
			if left[c] == 0 || !m.classes[c].mask.has(n.shape) {
				continue
			}
			k := min(m.most(c, b.free, left[c]), m.classes[c].perNode-n.count(c))
			if k <= 0 {
				continue
			}
			n.pods = withPods(n.pods, c, k)
			m.subtract(b.free, c, k)
			left[c] -= k
		}
	}
}

// roomOf is what the pods of a node leave of it.
func (m *model) roomOf(n *node, free []int64) {
	copy(free, m.shapes[n.shape].alloc)
	for _, sh := range n.pods {
		m.subtract(free, sh.class, sh.n)
	}
}

func (m *model) subtract(free []int64, c, k int) {
	for d, q := range m.classes[c].req {
		free[d] -= q * int64(k)
	}
}

func (n *node) count(c int) int {
	for _, sh := range n.pods {
		if sh.class == c {
			return sh.n
		}
	}
	return 0
}

// withPods is a copy of pods with k more, or fewer, of a class.
func withPods(pods []share, c, k int) []share {
	out := make([]share, 0, len(pods)+1)
	for _, sh := range pods {
		if sh.class == c {
			sh.n, k = sh.n+k, 0
		}
		if sh.n > 0 {
			out = append(out, sh)
		}
	}
	if k > 0 {
		out = sortShares(append(out, share{c, k}))
	}
	return out
}

// balance opens nodes for the pods of a state that have none, the cheapest shape
// first, as long as other nodes can spare the pods that the cap asks for.
func (m *model) balance(st *state) {
	if !m.capped() {
		return
	}
	for _, c := range m.placeable() {
		for s := 0; s < len(m.shapes) && st.left[c] > 0; s++ {
			for st.left[c] > 0 && m.classes[c].mask.has(s) && m.admits(&st.room, s) && m.draw(st, c, s) {
			}
		}
	}
}

// draw opens one node of shape s with pods of class c that have none, and what it
// takes from other nodes that stay open without. It says whether it could, and
// changes nothing if not.
func (m *model) draw(st *state, c, s int) bool {
	sh := &m.shapes[s]
	fresh, free, load := node{shape: s}, make([]int64, len(sh.alloc)), make([]int64, len(sh.alloc))
	m.roomOf(&fresh, free)
	k := m.most(c, free, st.left[c])
	fresh.pods = withPods(nil, c, k)
	m.subtract(free, c, k)
	given := map[int][]share{} // by node, what it keeps
	for i := range st.nodes {
		if m.used(sh, free, load) {
			break
		}
		keeps := m.spare(st.nodes[i], &fresh, free, load)
		if len(keeps) > 0 {
			given[i] = keeps
		}
	}
	if !m.used(sh, free, load) {
		return false
	}
	for i, pods := range given {
		st.nodes[i].pods = pods
	}
	st.left[c] -= k
	st.nodes = append(st.nodes, fresh)
	m.add(&st.room, s, 1)
	return true
}

// used says whether a node with this much left is used enough to be opened.
func (m *model) used(sh *shape, free, load []int64) bool {
	for d := range load {
		load[d] = sh.alloc[d] - free[d]
	}
	return m.opens(sh, load)
}

// spare moves pods from a node to fresh until fresh is used enough, as long as the
// node stays so too and keeps a pod. It returns what the node keeps, nil if it gave
// nothing.
func (m *model) spare(from node, fresh *node, free, load []int64) (keeps []share) {
	rest := make([]int64, len(free))
	m.roomOf(&from, rest)
	for _, sh := range from.pods {
		if !m.usesGPU(sh.class) || !m.classes[sh.class].mask.has(fresh.shape) {
			continue
		}
		most := min(m.most(sh.class, free, sh.n), m.classes[sh.class].perNode-fresh.count(sh.class))
		if len(from.pods) == 1 {
			most = min(most, sh.n-1)
		}
		k := m.given(sh.class, max(most, 0), shapeRoom{&m.shapes[from.shape], rest}, shapeRoom{&m.shapes[fresh.shape], free}, load)
		if k == 0 {
			continue
		}
		m.subtract(rest, sh.class, -k)
		m.subtract(free, sh.class, k)
		from.pods, fresh.pods = withPods(from.pods, sh.class, -k), withPods(fresh.pods, sh.class, k)
		keeps = from.pods
	}
	return keeps
}

type shapeRoom struct {
	shape *shape
	free  []int64
}

// given is how many of at most k pods of class c move: no more than the giver can
// spare and the taker needs. Both only grow with the number, so that they are
// searched by halves.
func (m *model) given(c, k int, giver, taker shapeRoom, load []int64) int {
	after := make([]int64, len(load))
	used := func(r shapeRoom, n int) bool {
		copy(after, r.free)
		m.subtract(after, c, n)
		return m.used(r.shape, after, load)
	}
	k = max(0, sort.Search(k+1, func(n int) bool { return !used(giver, -n) })-1)
	return min(k, sort.Search(k+1, func(n int) bool { return used(taker, n) }))
}
