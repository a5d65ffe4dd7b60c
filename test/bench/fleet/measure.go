package main

import (
	"fmt"
	"time"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
)

// Stock packs a cell's pods as stock Karpenter does and returns the price per
// hour of the nodes and the seconds that the solving took.
type Stock func(c Cell) (price, seconds float64, err error)

// stock and controller are the packers of these columns; nil leaves a column empty.
var stock, controller Stock = packAsStock, packAsController

// Report is fleet.json.
type Report struct {
	// Rows are in the order of the cells.
	Rows []Row `json:"rows"`
}

// Row is one cell's result. Prices are in $/h, on demand in us-east-1.
type Row struct {
	// List is the openb list.
	List string `json:"list"`
	// Families are joined by a plus.
	Families string `json:"families"`
	// Pods is how many were packed.
	Pods int `json:"pods"`
	// Batch is how many arrived at once; 0 means all.
	Batch int `json:"batch,omitempty"`
	// LeftOut counts pods passed over because the families cannot run them.
	LeftOut int `json:"leftOut,omitempty"`
	// Stock is null while no stock packer is plugged in.
	Stock *float64 `json:"stock"`
	// Ours and Greedy are prices of plans; Bound is the proven lower bound for
	// all pods known at once.
	Ours   float64 `json:"ours"`
	Greedy float64 `json:"greedy"`
	Bound  float64 `json:"bound"`
	// Controller is what the nodes of the controller's decisions cost: Karpenter's
	// scheduler and the repacking after it, with stock's decision where that is as cheap.
	Controller *float64 `json:"controller"`
	// ControllerSeconds is wall time of these decisions.
	ControllerSeconds *float64 `json:"controllerSeconds"`
	// StockSeconds and OursSeconds are wall time of the solving alone.
	StockSeconds *float64 `json:"stockSeconds"`
	OursSeconds  float64  `json:"oursSeconds"`
}

func measure(c Cell, stock, controller Stock, now func() time.Time) (Row, error) {
	row := Row{List: c.List, Families: c.Families, Pods: len(c.Pods), Batch: c.Batch, LeftOut: c.LeftOut}
	bound, err := fleet.LowerBound(c.Problem(c.Pods))
	if err != nil {
		return row, fmt.Errorf("bounding, %w", err)
	}
	row.Bound = bound.Price
	if row.Greedy, err = arrive(c, fleet.Greedy); err != nil {
		return row, fmt.Errorf("packing greedily, %w", err)
	}
	start := now()
	if row.Ours, err = arrive(c, func(p fleet.Problem) (fleet.Plan, error) { return fleet.Solve(p, fleet.Options{}) }); err != nil {
		return row, fmt.Errorf("solving, %w", err)
	}
	row.OursSeconds = now().Sub(start).Seconds()
	if stock != nil {
		price, seconds, err := stock(c)
		if err != nil {
			return row, fmt.Errorf("packing as stock, %w", err)
		}
		row.Stock, row.StockSeconds = &price, &seconds
	}
	if controller != nil {
		price, seconds, err := controller(c)
		if err != nil {
			return row, fmt.Errorf("packing as the controller, %w", err)
		}
		row.Controller, row.ControllerSeconds = &price, &seconds
	}
	return row, nil
}

// arrive packs batch after batch and returns the price of all nodes. A batch
// first fills what is free on the nodes so far, in the order in which they were
// opened, as the scheduler would before any node is launched.
func arrive(c Cell, solve func(fleet.Problem) (fleet.Plan, error)) (float64, error) {
	batch := c.Batch
	if batch == 0 {
		batch = len(c.Pods)
	}
	var open []openNode
	price := 0.0
	for at := 0; at < len(c.Pods); at += batch {
		p := c.Problem(c.Pods[at:min(at+batch, len(c.Pods))])
		for i := range p.Classes {
			p.Classes[i].Count -= fillOpen(open, p.Classes[i])
		}
		plan, err := solve(p)
		if err != nil {
			return 0, err
		}
		if err := fleet.Verify(p, plan); err != nil {
			return 0, fmt.Errorf("checking the plan, %w", err)
		}
		if len(plan.Unplaced) > 0 {
			return 0, fmt.Errorf("the plan leaves %d classes unplaced, the first for %s", len(plan.Unplaced), plan.Unplaced[0].Reason)
		}
		price += plan.Price
		open = append(open, opened(p, plan)...)
	}
	return price, nil
}

type openNode struct {
	shape int
	free  []int64
}

func opened(p fleet.Problem, plan fleet.Plan) []openNode {
	var out []openNode
	for _, n := range plan.Nodes {
		for range n.Count {
			free := append([]int64(nil), p.Shapes[n.Shape].Allocatable...)
			for _, s := range n.Pods {
				for d, r := range p.Classes[s.Class].Requests {
					free[d] -= r * int64(s.Count)
				}
			}
			out = append(out, openNode{shape: n.Shape, free: free})
		}
	}
	return out
}

func fillOpen(open []openNode, c fleet.Class) int {
	placed := 0
	for _, n := range open {
		for placed < c.Count && takes(n, c) {
			for d, r := range c.Requests {
				n.free[d] -= r
			}
			placed++
		}
	}
	return placed
}

func takes(n openNode, c fleet.Class) bool {
	ok := c.Shapes == nil
	for _, s := range c.Shapes {
		ok = ok || s == n.shape
	}
	for d, r := range c.Requests {
		ok = ok && r <= n.free[d]
	}
	return ok
}
