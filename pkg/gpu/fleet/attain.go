package fleet

import "math"

// attainable raises a bound to the least price that whole numbers of nodes can
// have. Let y_s be the nodes of shape s in any plan. Every proof of the column
// generation, and every resource on its own, says that Σ_s y_s·worth_s is at
// least the worth of all pods, worth_s being the most that fits on one node. The
// cheapest integral y that meets all of these is at most the price of any plan.
// It is searched depth first; when the budget ends, the least bound of the parts
// not searched stands in. With many shapes nearly every price is attainable and
// nothing is won; with few, as p4d and p5, it closes most of the gap.
func (g *generator) attainable(bound float64) float64 {
	a := &attain{bound: bound, best: math.Inf(1), open: math.Inf(1), budget: attainBudget}
	for s := range g.m.shapes {
		a.price = append([]float64{g.m.shapes[s].price}, a.price...) // dearest first
	}
	for _, p := range append(g.resourceProofs(), g.proofs...) {
		a.addCut(p)
	}
	a.search(0, 0)
	found := min(a.best, a.open) * (1 - 1e-9)
	if math.IsInf(found, 1) || math.IsNaN(found) {
		return bound
	}
	return max(bound, found)
}

const attainBudget = 30_000

func (g *generator) resourceProofs() []proof {
	var out []proof
	for d := range g.m.shapes[0].alloc {
		p := proof{worth: make([]float64, len(g.m.shapes))}
		for _, c := range g.rows {
			p.total += float64(g.m.classes[c].req[d]) * float64(g.m.classes[c].n)
		}
		for s := range g.m.shapes {
			p.worth[s] = float64(g.m.shapes[s].alloc[d])
		}
		if p.total > 0 {
			out = append(out, p)
		}
	}
	return out
}

type attain struct {
	bound, best, open float64
	budget            int
	price             []float64 // by place, dearest first
	cuts              []cut
}

// cut is a proof scaled to a total of 1.
type cut struct {
	worth []float64 // by place
	rate  []float64 // by place: least price per worth of that place and later ones
	left  float64
}

func (a *attain) addCut(p proof) {
	n := len(p.worth)
	c := cut{worth: make([]float64, n), rate: make([]float64, n+1), left: 1 - 1e-9}
	c.rate[n] = math.Inf(1)
	for i := n - 1; i >= 0; i-- {
		c.worth[i] = p.worth[n-1-i] / p.total
		c.rate[i] = c.rate[i+1]
		if c.worth[i] > 0 {
			c.rate[i] = min(c.rate[i], a.price[i]/c.worth[i])
		}
	}
	if p.total > 0 {
		a.cuts = append(a.cuts, c)
	}
}

// need is the least price that places i and later must still spend.
func (a *attain) need(i int) (price float64, done bool) {
	done = true
	for k := range a.cuts {
		if c := &a.cuts[k]; c.left > 0 {
			price, done = max(price, c.left*c.rate[i]), false
		}
	}
	return price, done
}

func (a *attain) search(i int, spent float64) {
	a.budget--
	need, done := a.need(i)
	if done {
		a.best = min(a.best, spent)
		return
	}
	if spent+need >= min(a.best, a.open) || a.best <= a.bound*(1+1e-7) || i == len(a.price) {
		return
	}
	if a.budget < 0 {
		a.open = min(a.open, spent+need)
		return
	}
	most := a.most(i)
	a.take(i, most)
	for y := most; y >= 0; y-- {
		a.search(i+1, spent+float64(y)*a.price[i])
		if y > 0 {
			a.take(i, -1)
		}
	}
}

// most is the number of nodes of place i that meets all cuts which it can.
func (a *attain) most(i int) int {
	y := 0.0
	for k := range a.cuts {
		if c := &a.cuts[k]; c.left > 0 && c.worth[i] > 0 {
			y = max(y, math.Ceil(c.left/c.worth[i]))
		}
	}
	return int(min(y, maxCount))
}

func (a *attain) take(i, y int) {
	for k := range a.cuts {
		a.cuts[k].left -= float64(y) * a.cuts[k].worth[i]
	}
}
