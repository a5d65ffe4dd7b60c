package fleet

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// Verify checks a plan against its problem from first principles: every pod on
// one node or unplaced, requests within what the shape allocates, shapes
// allowed, caps and limits held, price and GPUs added up. It returns every
// fault, joined, or nil. It shares no code with the search.
func Verify(p Problem, plan Plan) error {
	if err := p.Validate(); err != nil {
		return err
	}
	v := verifier{p: p, placed: make([]int, len(p.Classes)), nodes: make([]int, len(p.Shapes))}
	for i, n := range plan.Nodes {
		v.node(i, n)
	}
	for _, u := range plan.Unplaced {
		if u.Class < 0 || u.Class >= len(p.Classes) || u.Count < 1 {
			v.fault("unplaced names %d pods of class %d", u.Count, u.Class)
			continue
		}
		v.placed[u.Class] += u.Count
	}
	for c, k := range v.placed {
		if k != p.Classes[c].Count {
			v.fault("class %s has %d pods and the plan accounts for %d", p.Classes[c].Name, p.Classes[c].Count, k)
		}
	}
	v.totals(plan)
	return errors.Join(v.errs...)
}

type verifier struct {
	p      Problem
	placed []int
	nodes  []int
	price  float64
	gpus   int
	errs   []error
}

func (v *verifier) fault(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(format, args...))
}

func (v *verifier) node(i int, n Node) {
	if n.Shape < 0 || n.Shape >= len(v.p.Shapes) || n.Count < 1 || len(n.Pods) == 0 {
		v.fault("nodes[%d] has shape %d, count %d and %d classes", i, n.Shape, n.Count, len(n.Pods))
		return
	}
	s := v.p.Shapes[n.Shape]
	free := append([]int64(nil), s.Allocatable...)
	for _, share := range n.Pods {
		v.share(i, n, share, free)
	}
	for d, f := range free {
		if f < 0 {
			v.fault("nodes[%d] is over its %s by %d", i, v.p.Resources[d], -f)
		}
	}
	if l := v.p.Limits.MaxUnusedGPUs; l != nil {
		if u := v.unused(s, free); u > *l {
			v.fault("nodes[%d] leaves %d GPUs unused of at most %d", i, u, *l)
		}
	}
	v.nodes[n.Shape] += n.Count
	v.price += float64(n.Count) * s.Price
	v.gpus += n.Count * s.GPUs
}

func (v *verifier) share(i int, n Node, share Share, free []int64) {
	if share.Class < 0 || share.Class >= len(v.p.Classes) || share.Count < 1 {
		v.fault("nodes[%d] names %d pods of class %d", i, share.Count, share.Class)
		return
	}
	c := v.p.Classes[share.Class]
	allowed := c.Shapes == nil
	for _, s := range c.Shapes {
		allowed = allowed || s == n.Shape
	}
	if !allowed {
		v.fault("nodes[%d] is of shape %s, which class %s may not run on", i, v.p.Shapes[n.Shape].Name, c.Name)
	}
	if c.MaxPerNode > 0 && share.Count > c.MaxPerNode {
		v.fault("nodes[%d] has %d pods of class %s, over its cap of %d", i, share.Count, c.Name, c.MaxPerNode)
	}
	for range share.Count {
		subtract(free, c.Requests)
	}
	v.placed[share.Class] += n.Count * share.Count
}

// subtract leaves alone what is over already, since it could wrap around.
func subtract(free, requests []int64) {
	for d, r := range requests {
		if free[d] >= 0 {
			free[d] -= r
		}
	}
}

// unused counts the GPUs left when the pods' parts are packed onto as few as
// can hold the most used GPU resource, each GPU having an equal part of it.
func (v *verifier) unused(s Shape, free []int64) int {
	used := 0
	for d, name := range v.p.Resources {
		if s.Allocatable[d] == 0 || !slices.Contains(v.p.GPUResources, name) {
			continue
		}
		have := new(big.Int).Mul(big.NewInt(s.Allocatable[d]-free[d]), big.NewInt(int64(s.GPUs)))
		for k := new(big.Int); k.Cmp(have) < 0; k.Add(k, big.NewInt(s.Allocatable[d])) {
			used = max(used, 1+int(new(big.Int).Div(k, big.NewInt(s.Allocatable[d])).Int64()))
		}
	}
	return s.GPUs - min(used, s.GPUs)
}

func (v *verifier) totals(plan Plan) {
	for s, k := range v.nodes {
		if most := v.p.Shapes[s].MaxNodes; most > 0 && k > most {
			v.fault("the plan has %d nodes of shape %s, over its cap of %d", k, v.p.Shapes[s].Name, most)
		}
	}
	if v.gpus != plan.GPUs {
		v.fault("the plan says %d GPUs and has %d", plan.GPUs, v.gpus)
	}
	if d := v.price - plan.Price; d > tolerance(v.price) || d < -tolerance(v.price) {
		v.fault("the plan says a price of %v and costs %v", plan.Price, v.price)
	}
	if l := v.p.Limits.GPUs; l != nil && v.gpus > *l {
		v.fault("the plan has %d GPUs of at most %d", v.gpus, *l)
	}
	if l := v.p.Limits.PricePerHour; l != nil && v.price > *l+2*tolerance(*l) {
		v.fault("the plan costs %v of at most %v", v.price, *l)
	}
}
