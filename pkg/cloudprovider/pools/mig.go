package pools

import (
	"slices"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// MIG is how the GPUs of a pool are partitioned. It is immutable.
type MIG struct {
	// Strategy is how the device plugin names partitions.
	Strategy mig.Strategy
	// Retired are the names of layouts that nodes still carry and new nodes do not
	// get, sorted. They stay in the catalogue so that those nodes do not drift.
	Retired []string

	layouts map[string][]mig.NodeLayout // by key of the geometry, sorted by name
}

// Layouts returns the layouts that new nodes of this shape may have, sorted by
// name. Equal names mean different partitions on different models. It is empty
// where the shape's GPUs have no MIG or no layout of the pool. The caller owns
// the slice.
func (m *MIG) Layouts(shape catalog.Shape) []mig.NodeLayout {
	if m == nil || !shape.MIGCapable() {
		return nil
	}
	var fitting []mig.NodeLayout
	for _, l := range m.layouts[shape.Model.MIG] {
		if _, err := l.Resources(m.Strategy, shape.GPUs); err == nil {
			fitting = append(fitting, l)
		}
	}
	return fitting
}

// All returns every layout of every model, by model and name, as mig-parted's
// configuration needs them. The caller owns the slice.
func (m *MIG) All() []mig.NodeLayout {
	if m == nil {
		return nil
	}
	var all []mig.NodeLayout
	for _, g := range mig.Geometries() {
		all = append(all, m.layouts[g.Key()]...)
	}
	return slices.Clone(all)
}
