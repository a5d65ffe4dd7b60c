package fleet

import (
	"cmp"
	"math"
	"slices"
)

// Bound is a proven lower bound.
type Bound struct {
	// Price is the bound, in money per hour, rounded down.
	Price float64
	// Relaxation is the value of the linear program that the search for the
	// bound ended with. It is an estimate and never below Price by more than
	// rounding; the two agree when the pricing step was solved to the end.
	Relaxation float64
	// Uncovered counts the pods that no shape holds; the bound is for the rest.
	Uncovered int
}

// LowerBound returns a price that no plan can undercut that places every pod
// which some allowed shape holds. Limits and MaxNodes are left out: they only
// make plans dearer. A plan that leaves pods unplaced because of them may cost
// less than the bound.
//
// Proof. Let π_c ≥ 0 be any prices for the pods, and for shape s let z_s be at
// least the worth Σ π_c·a_c of every set of pods a that fits on one node of s.
// Let θ = min(1, min_s price_s/z_s). A plan that places n_c pods of class c on
// nodes j with shapes s(j) and sets a(j) costs Σ_j price_s(j) ≥ Σ_j θ·z_s(j) ≥
// θ·Σ_j Σ_c π_c·a(j)_c = θ·Σ_c π_c·n_c. So θ·Σ π_c·n_c is a bound for any π
// (Farley 1990), whatever made them. The prices come from the dual of the
// Gilmore-Gomory linear program, with which the bound tends to that program's
// optimum; z_s comes from a branch and bound that reports, when it gives up, the
// largest bound left open. All sums are of at most a few hundred positive terms
// and the result is lowered by one part in 10⁹, far above their rounding.
//
// The bound is then raised to the next price that integral numbers of nodes can
// have; see attainable.
func LowerBound(p Problem) (Bound, error) {
	if err := p.Validate(); err != nil {
		return Bound{}, err
	}
	m := newModel(p)
	r := m.relax(proofBudget, Options{}.stop())
	out := Bound{Price: r.bound, Relaxation: r.value}
	for _, c := range m.classes {
		if c.mask.empty() {
			out.Uncovered += c.n
		}
	}
	return out, nil
}

func (o Options) stop() func() bool {
	if o.Stop == nil {
		return func() bool { return false }
	}
	return o.Stop
}

// relaxation is the result of column generation.
type relaxation struct {
	bound  float64
	value  float64
	prices []float64 // by class; 0 for classes that no shape holds
	fills  []fill    // with a positive amount in the linear program
}

type fill struct {
	column
	amount float64
}

// rows maps the rows of the linear program, the classes that some shape holds,
// to classes and back.
type generator struct {
	m       *model
	rows    []int // class of each row
	row     []int // row of each class, -1 without
	lp      *master
	pricers []*pricer
	values  []float64
	proof   int // budget of branch and bound nodes for a proof
	spent   int // branch and bound nodes so far
	best    float64
	proofs  []proof
}

// proof is one certified set of prices: worth of all pods, and for each shape
// the most worth on one node.
type proof struct {
	bound float64
	total float64
	worth []float64
}

const (
	maxRounds    = 300
	quickBudget  = 400       // branch and bound nodes for a shape while columns still turn up
	solveBudget  = 50_000    // and for a shape to prove that none is left, in Solve
	proofBudget  = 1_000_000 // and in LowerBound
	proofsInAll  = 12        // budgets for a shape that may be spent on all shapes and rounds
	proofGap     = 1e-5      // relative distance of bound and program at which to end
	maxColumns   = 6_000
	maxLPPivots  = 5_000
	keptProofs   = 6
	quickTunings = 3
)

func (m *model) relax(proof int, stop func() bool) relaxation {
	g := m.newGenerator()
	g.proof = proof
	if len(g.rows) == 0 {
		return relaxation{prices: make([]float64, len(m.classes))}
	}
	g.run(stop)
	return g.result()
}

func (m *model) newGenerator() *generator {
	g := &generator{m: m, row: make([]int, len(m.classes)), values: make([]float64, len(m.classes))}
	var demand []float64
	var start []column
	for c := range m.classes {
		g.row[c] = -1
		if m.classes[c].mask.empty() {
			continue
		}
		g.row[c] = len(g.rows)
		start = append(start, m.single(c, len(g.rows)))
		g.rows = append(g.rows, c)
		demand = append(demand, float64(m.classes[c].n))
	}
	g.lp = newMaster(demand, start)
	for s := range m.shapes {
		g.pricers = append(g.pricers, newPricer(m, s))
	}
	return g
}

// single is the cheapest way for each pod to fill nodes with class c alone.
func (m *model) single(c, row int) column {
	best, cost := column{}, math.Inf(1)
	for s := range m.shapes {
		if !m.classes[c].mask.has(s) {
			continue
		}
		k := m.most(c, m.shapes[s].alloc, m.classes[c].n)
		if v := m.shapes[s].price / float64(k); v < cost {
			best, cost = column{cost: m.shapes[s].price, shape: s, pods: []share{{row, k}}}, v
		}
	}
	return best
}

func (g *generator) run(stop func() bool) {
	budget := quickBudget
	for range maxRounds {
		if stop() || len(g.lp.cols) > maxColumns || g.spent > proofsInAll*g.proof {
			return
		}
		g.lp.optimize(maxLPPivots)
		found, bound := g.price(budget)
		g.best = max(g.best, bound)
		if g.best >= g.objective()*(1-proofGap) {
			return
		}
		switch {
		case found:
			budget = quickBudget
		case budget == g.proof:
			return
		default:
			budget = g.proof
		}
	}
}

// price looks for fills worth more than their shape and returns Farley's bound
// for the current prices.
func (g *generator) price(budget int) (found bool, bound float64) {
	clear(g.values)
	total := 0.0
	for r, c := range g.rows {
		if g.m.alone[c] > 0 { // else a free shape holds it, and only zero is feasible
			g.values[c] = max(g.lp.prices[r], 0)
		}
		total += g.values[c] * float64(g.m.classes[c].n)
	}
	theta, worth := 1.0, make([]float64, len(g.m.shapes))
	for s := range g.m.shapes {
		price := g.m.shapes[s].price
		steps := quickTunings
		if budget == g.proof {
			steps *= 8
		}
		most, pods := g.pricers[s].solve(g.values, price*(1+1e-9), steps, budget)
		worth[s] = most
		g.spent += budget - max(g.pricers[s].budget, 0)
		if most > price {
			theta = min(theta, price/most)
		}
		if len(pods) > 0 {
			found = g.addColumn(s, pods) || found
		}
	}
	bound = theta * total * (1 - 1e-9)
	g.remember(proof{total: total, worth: worth, bound: bound})
	return found, bound
}

func (g *generator) addColumn(s int, pods []share) bool {
	reduced := g.m.shapes[s].price
	rows := make([]share, len(pods))
	for i, sh := range pods {
		reduced -= g.values[sh.class] * float64(sh.n)
		rows[i] = share{g.row[sh.class], sh.n}
	}
	if reduced > -1e-8*(1+g.m.shapes[s].price) {
		return false
	}
	g.lp.cols = append(g.lp.cols, column{cost: g.m.shapes[s].price, shape: s, pods: rows})
	return true
}

// remember keeps the proofs of the best bounds, best first.
func (g *generator) remember(p proof) {
	at, _ := slices.BinarySearchFunc(g.proofs, p, func(a, b proof) int { return cmp.Compare(b.bound, a.bound) })
	g.proofs = slices.Insert(g.proofs, at, p)
	g.proofs = g.proofs[:min(len(g.proofs), keptProofs)]
}

func (g *generator) objective() float64 {
	sum := 0.0
	for r, c := range g.rows {
		sum += g.lp.prices[r] * float64(g.m.classes[c].n)
	}
	return sum
}

func (g *generator) result() relaxation {
	out := relaxation{value: g.objective(), prices: make([]float64, len(g.m.classes))}
	out.bound = g.attainable(g.best)
	for r, c := range g.rows {
		out.prices[c] = max(g.lp.prices[r], 0)
	}
	for i, j := range g.lp.basis {
		if j < 0 || g.lp.x[i] < 1e-6 {
			continue
		}
		col := g.lp.cols[j]
		pods := make([]share, len(col.pods))
		for k, s := range col.pods {
			pods[k] = share{g.rows[s.class], s.n}
		}
		col.pods = pods
		out.fills = append(out.fills, fill{column: col, amount: g.lp.x[i]})
	}
	return out
}
