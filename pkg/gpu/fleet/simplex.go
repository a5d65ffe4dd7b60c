package fleet

import "math"

// master is the covering linear program of column generation: minimize Σ cost·x
// over x ≥ 0 such that every row gets at least its demand. It is solved by the
// revised simplex method with a dense inverse. A bound never rests on its
// arithmetic: its prices are only candidates that the pricing step certifies.
type master struct {
	m      int
	demand []float64 // of each row, perturbed against degenerate steps
	inv    []float64 // m×m inverse of the basis
	basis  []int     // column of each basic place; -1-r is the surplus of row r
	x      []float64 // value of each basic place
	prices []float64 // dual of each row
	cols   []column
	alpha  []float64
}

// column is a way to fill one node: k pods of each of some rows.
type column struct {
	cost  float64
	shape int
	pods  []share // class is the row
}

// newMaster starts from one column for each row that covers that row alone.
func newMaster(demand []float64, start []column) *master {
	m := len(demand)
	out := &master{m: m, demand: make([]float64, m), inv: make([]float64, m*m), basis: make([]int, m),
		x: make([]float64, m), prices: make([]float64, m), cols: start, alpha: make([]float64, m)}
	for r, d := range demand {
		// Different small amounts for each row, so that ties in the ratio test are
		// rare; the bound is taken with the true demand.
		out.demand[r] = d + 1e-7*d*(1+float64(r%97)/97)
		k := float64(start[r].pods[0].n)
		out.inv[r*m+r] = 1 / k
		out.basis[r] = r
		out.x[r] = out.demand[r] / k
		out.prices[r] = start[r].cost / k
	}
	return out
}

// optimize pivots until no column in the pool improves, or limit pivots.
func (lp *master) optimize(limit int) {
	for range limit {
		enter, reduced := lp.entering()
		if reduced > -1e-9 {
			return
		}
		if !lp.pivot(enter, reduced) {
			return
		}
	}
}

// entering is the column of the most negative reduced cost, relative to cost so
// that large nodes do not always come first.
func (lp *master) entering() (int, float64) {
	best, reduced, score := 0, 0.0, -1e-10
	for j := range lp.cols {
		c := &lp.cols[j]
		r := c.cost
		for _, s := range c.pods {
			r -= lp.prices[s.class] * float64(s.n)
		}
		if v := r / (c.cost + 1e-9); v < score {
			best, reduced, score = j, r, v
		}
	}
	for r, p := range lp.prices {
		if p < -1e-9 && p < reduced {
			best, reduced = -1-r, p
		}
	}
	return best, reduced
}

func (lp *master) direction(enter int) {
	m := lp.m
	if enter < 0 {
		for i := range m {
			lp.alpha[i] = -lp.inv[i*m+(-1-enter)]
		}
		return
	}
	clear(lp.alpha)
	for _, s := range lp.cols[enter].pods {
		for i := range m {
			lp.alpha[i] += lp.inv[i*m+s.class] * float64(s.n)
		}
	}
}

// leaving is the basic place that reaches zero first in the direction, of equal
// ones the one with the largest step, which is the safest to divide by.
func (lp *master) leaving() (leave int, ratio float64) {
	leave, ratio = -1, math.Inf(1)
	for i, a := range lp.alpha {
		if a <= 1e-9 {
			continue
		}
		if q := max(lp.x[i], 0) / a; q < ratio || q == ratio && a > lp.alpha[leave] {
			leave, ratio = i, q
		}
	}
	return leave, ratio
}

func (lp *master) pivot(enter int, reduced float64) bool {
	lp.direction(enter)
	m := lp.m
	leave, ratio := lp.leaving()
	if leave < 0 {
		return false
	}
	row := lp.inv[leave*m : leave*m+m]
	for k := range row {
		row[k] /= lp.alpha[leave]
	}
	for i := range m {
		a := lp.alpha[i]
		if i == leave || a == 0 {
			continue
		}
		other := lp.inv[i*m : i*m+m]
		for k, v := range row {
			other[k] -= a * v
		}
		lp.x[i] = max(lp.x[i]-a*ratio, 0)
	}
	for k, v := range row {
		lp.prices[k] += reduced * v
	}
	lp.x[leave], lp.basis[leave] = ratio, enter
	return true
}
