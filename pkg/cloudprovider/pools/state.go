package pools

import (
	"fmt"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// Supports tells whether nodes of this shape can do what the pool asks of them.
// The error says why not.
func (p *Pool) Supports(shape catalog.Shape) error {
	if p.MIG == nil {
		return p.Sharing.Validate(shape.Model, catalog.MIGState{})
	}
	if !shape.MIGCapable() {
		return fmt.Errorf("%s has no MIG", product(shape))
	}
	if len(p.MIG.Layouts(shape)) == 0 {
		return fmt.Errorf("%s has none of the pool's layouts or profiles", product(shape))
	}
	return nil
}

func product(shape catalog.Shape) string {
	if shape.Fractional() {
		return "a part of an " + shape.Model.Product
	}
	return shape.Model.Product
}

// State is how the GPUs of a node of this shape are set up, for the prediction of
// labels. layout is the zero NodeLayout on nodes without one.
func (p *Pool) State(shape catalog.Shape, layout mig.NodeLayout) catalog.State {
	state := catalog.State{Operator: true, Sharing: p.Sharing.State()}
	if p.MIG == nil {
		return state
	}
	state.MIG.Strategy = catalog.MIGStrategy(p.MIG.Strategy)
	state.MIG.Devices, state.MIG.WholeGPUs = catalog.PartitionsOf(layout, shape.GPUs)
	return state
}
