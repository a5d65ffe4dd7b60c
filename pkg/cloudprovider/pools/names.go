package pools

import (
	"slices"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

var _ v1alpha1.MIGNames = Names{}

// Names answers for the names of MIG layouts and profiles from the built-in
// geometries, each with its namings.
type Names struct{}

// Layout reports whether any GPU has a layout of this name and, if so, whether
// its partitions are alike on every GPU that has it.
func (Names) Layout(name string) (known, homogeneous bool) {
	homogeneous = true
	for _, g := range mig.Geometries() {
		l, err := g.Layout(name)
		if err != nil {
			continue
		}
		known = true
		homogeneous = homogeneous && len(l.Counts()) <= 1
	}
	return known, known && homogeneous
}

// Profile reports whether any GPU has a profile of this name.
func (Names) Profile(name string) bool {
	return slices.ContainsFunc(mig.Geometries(), func(g *mig.Geometry) bool { return hasProfile(g, name) })
}

func hasProfile(g *mig.Geometry, name string) bool {
	return slices.ContainsFunc(append([]*mig.Geometry{g}, g.Namings()...), func(n *mig.Geometry) bool {
		_, err := n.Profile(name)
		return err == nil
	})
}
