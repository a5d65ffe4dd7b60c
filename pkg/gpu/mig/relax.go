package mig

const (
	// priceScale turns prices into integers, so that the bound is proven and not
	// a matter of rounding.
	priceScale = 1e9
	// wasteTilt prefers patterns of less waste among equal relaxations. It is
	// small enough to shift no whole GPU before 10,000 GPUs.
	wasteTilt = 1e-7
	epsilon   = 1e-9
)

// relax solves the linear relaxation by the simplex method on its dual, which
// starts feasible: maximize the price of the demand such that no pattern is
// worth more than one GPU. It returns how often to use each pattern, and keeps
// the prices for bound.
func (p *problem) relax() []float64 {
	t := newTableau(p)
	for t.step() {
	}
	scale := float64(maxOf(p.demand))
	x := make([]float64, len(p.patterns))
	prices := make([]float64, len(p.dims))
	k := len(p.dims)
	for j, label := range t.nonbasic {
		if label >= k {
			x[label-k] = -t.rows[len(p.patterns)][j] * scale
		}
	}
	for r, label := range t.basic {
		if label < k {
			prices[label] = t.rows[r][k]
		}
	}
	p.prices = make([]int64, k)
	for i, y := range prices {
		p.prices[i] = max(0, int64(y*priceScale))
	}
	p.dearest = 0
	for _, pat := range p.patterns {
		p.dearest = max(p.dearest, dot(p.prices, pat.counts))
	}
	return x
}

// bound returns a proven lower bound on the patterns that cover rest. Whatever
// the prices, a pattern covers at most the dearest one's worth; and each profile
// alone needs its own.
func (p *problem) bound(rest []int) int {
	n := 0
	if p.dearest > 0 {
		n = int((dot(p.prices, rest) + p.dearest - 1) / p.dearest)
	}
	for d, want := range rest {
		if want > 0 {
			n = max(n, (want+p.most[d]-1)/p.most[d])
		}
	}
	return n
}

// tableau is a dictionary of the simplex method: one row per pattern and one
// for the objective, one column per nonbasic variable and one for the constant.
// Labels below the number of dimensions are prices, the others slacks.
// Products are rounded one by one (float64(…)), so that no machine fuses them
// into other results.
type tableau struct {
	rows            [][]float64
	basic, nonbasic []int
}

func newTableau(p *problem) *tableau {
	k := len(p.dims)
	t := &tableau{}
	for i, pat := range p.patterns {
		row := make([]float64, k+1)
		for d, c := range pat.counts {
			row[d] = float64(c)
		}
		waste := float64(pat.cost/memoryWeight) + float64(float64(pat.cost%memoryWeight)/64)
		row[k] = 1 + float64(wasteTilt*waste)
		t.rows = append(t.rows, row)
		t.basic = append(t.basic, k+i)
	}
	objective := make([]float64, k+1)
	for d, n := range p.demand {
		objective[d] = float64(n) / float64(maxOf(p.demand))
		t.nonbasic = append(t.nonbasic, d)
	}
	t.rows = append(t.rows, objective)
	return t
}

// step makes one pivot by Bland's rule, which never cycles; false at the
// optimum. The dual is bounded, because every dimension has a pattern.
func (t *tableau) step() bool {
	col := t.entering()
	if col < 0 {
		return false
	}
	row := t.leaving(col)
	if row < 0 {
		return false
	}
	t.pivot(row, col)
	return true
}

func (t *tableau) entering() int {
	objective := t.rows[len(t.basic)]
	col := -1
	for j, label := range t.nonbasic {
		if objective[j] > epsilon && (col < 0 || label < t.nonbasic[col]) {
			col = j
		}
	}
	return col
}

func (t *tableau) leaving(col int) int {
	row, constant := -1, len(t.nonbasic)
	var least float64
	for r, label := range t.basic {
		if t.rows[r][col] <= epsilon {
			continue
		}
		ratio := t.rows[r][constant] / t.rows[r][col]
		if row < 0 || ratio < least-epsilon || ratio <= least+epsilon && label < t.basic[row] {
			row, least = r, ratio
		}
	}
	return row
}

// pivot swaps the basic variable of row with the nonbasic one of col. Rows read
// basic = constant - Σ coefficient·nonbasic, the objective with plus signs.
func (t *tableau) pivot(row, col int) {
	lead := t.rows[row]
	d := lead[col]
	for j := range lead {
		lead[j] /= d
	}
	lead[col] = 1 / d
	for r, other := range t.rows {
		if r == row || other[col] == 0 {
			continue
		}
		f := other[col]
		for j := range other {
			if j != col {
				other[j] -= float64(f * lead[j])
			}
		}
		other[col] = -float64(f * lead[col])
	}
	t.basic[row], t.nonbasic[col] = t.nonbasic[col], t.basic[row]
}

func maxOf(v []int) int {
	n := 0
	for _, i := range v {
		n = max(n, i)
	}
	return n
}

func dot(prices []int64, n []int) int64 {
	var s int64
	for i, y := range prices {
		s += y * int64(n[i])
	}
	return s
}
