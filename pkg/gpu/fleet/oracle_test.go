package fleet_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
)

// oracle is the slow twin: the least price of placing every pod, by trying, pod
// after pod, every open node and every shape for a new one. Equal nodes are
// tried once. It returns +Inf if the pods cannot all be placed.
type oracle struct {
	p    fleet.Problem
	pods []int // class of each pod
	best float64

	nodes []oracleNode
}

type oracleNode struct {
	shape int
	free  []int64
	count map[int]int
}

func optimum(p fleet.Problem) float64 {
	o := &oracle{p: p, best: math.Inf(1)}
	for c := range p.Classes {
		for range p.Classes[c].Count {
			o.pods = append(o.pods, c)
		}
	}
	o.try(0, 0)
	return o.best
}

func (o *oracle) try(i int, price float64) {
	if price >= o.best {
		return
	}
	if i == len(o.pods) {
		if o.valid(price) {
			o.best = price
		}
		return
	}
	c := o.pods[i]
	seen := map[string]bool{}
	for n := range o.nodes {
		key := fmt.Sprint(o.nodes[n])
		if seen[key] || !o.put(n, c) {
			continue
		}
		seen[key] = true
		o.try(i+1, price)
		o.take(n, c)
	}
	for s, shape := range o.p.Shapes {
		o.nodes = append(o.nodes, oracleNode{shape: s, free: append([]int64(nil), shape.Allocatable...), count: map[int]int{}})
		n := len(o.nodes) - 1
		if o.put(n, c) {
			o.try(i+1, price+shape.Price)
			o.take(n, c)
		}
		o.nodes = o.nodes[:n]
	}
}

func (o *oracle) put(n, c int) bool {
	cl, node := o.p.Classes[c], o.nodes[n]
	allowed := cl.Shapes == nil
	for _, s := range cl.Shapes {
		allowed = allowed || s == node.shape
	}
	if !allowed || cl.MaxPerNode > 0 && node.count[c] >= cl.MaxPerNode {
		return false
	}
	for d, r := range cl.Requests {
		if r > node.free[d] {
			return false
		}
	}
	for d, r := range cl.Requests {
		node.free[d] -= r
	}
	node.count[c]++
	return true
}

func (o *oracle) take(n, c int) {
	for d, r := range o.p.Classes[c].Requests {
		o.nodes[n].free[d] += r
	}
	if o.nodes[n].count[c]--; o.nodes[n].count[c] == 0 {
		delete(o.nodes[n].count, c)
	}
}

// valid checks what only shows at the end, by the independent Verify.
func (o *oracle) valid(price float64) bool {
	plan := fleet.Plan{Price: price}
	for _, n := range o.nodes {
		node := fleet.Node{Shape: n.shape, Count: 1}
		for c := range o.p.Classes {
			if k := n.count[c]; k > 0 {
				node.Pods = append(node.Pods, fleet.Share{Class: c, Count: k})
			}
		}
		plan.Nodes = append(plan.Nodes, node)
		plan.GPUs += o.p.Shapes[n.shape].GPUs
	}
	return fleet.Verify(o.p, plan) == nil
}

// tiny draws a problem small enough for the oracle: up to 7 pods, 4 classes and
// 4 shapes, with masks, caps and, with limits, every kind of limit.
func tiny(rng *rand.Rand, limits bool) fleet.Problem {
	p := fleet.Problem{Resources: []string{"cpu", "memory", "nvidia.com/gpu"}, GPUResources: []string{"nvidia.com/gpu"}}
	for s := range 1 + rng.IntN(4) {
		gpus := []int{0, 1, 2, 4, 8}[rng.IntN(5)]
		p.Shapes = append(p.Shapes, fleet.Shape{Name: fmt.Sprintf("s%d", s), GPUs: gpus,
			Price:       math.Round((0.5+float64(gpus)*(0.5+rng.Float64())+rng.Float64())*100) / 100,
			Allocatable: []int64{2 + rng.Int64N(20), 2 + rng.Int64N(20), int64(gpus)}})
		if limits && rng.IntN(3) == 0 {
			p.Shapes[s].MaxNodes = 1 + rng.IntN(2)
		}
	}
	left := 7
	for c := range 1 + rng.IntN(4) {
		if left == 0 {
			break
		}
		n := 1 + rng.IntN(min(3, left))
		left -= n
		cl := fleet.Class{Name: fmt.Sprintf("c%d", c), Count: n,
			Requests: []int64{rng.Int64N(8), 1 + rng.Int64N(8), []int64{0, 1, 1, 2, 4}[rng.IntN(5)]}}
		if rng.IntN(4) == 0 {
			cl.Shapes = []int{rng.IntN(len(p.Shapes)), rng.IntN(len(p.Shapes))}
		}
		if rng.IntN(4) == 0 {
			cl.MaxPerNode = 1 + rng.IntN(2)
		}
		p.Classes = append(p.Classes, cl)
	}
	if limits {
		p.Limits = tinyLimits(rng)
	}
	return p
}

func tinyLimits(rng *rand.Rand) (l fleet.Limits) {
	if rng.IntN(2) == 0 {
		l.MaxUnusedGPUs = new(int)
		*l.MaxUnusedGPUs = rng.IntN(3)
	}
	if rng.IntN(3) == 0 {
		l.GPUs = new(int)
		*l.GPUs = rng.IntN(17)
	}
	if rng.IntN(3) == 0 {
		l.PricePerHour = new(float64)
		*l.PricePerHour = 12 * rng.Float64()
	}
	return l
}
