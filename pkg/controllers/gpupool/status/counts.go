package status

import (
	"cmp"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
)

// maxLayouts bounds status.layouts, as its CRD rule does.
const maxLayouts = 64

// count fills the counts and publishes them; those of warm capacity stay as they are.
func count(p *v1alpha1.GPUPool, members []member) {
	gpus := v1alpha1.GPUCounts{Warm: p.Status.GPUs.Warm}
	var price v1alpha1.Price
	layouts := map[string]int32{}
	nodes := 0
	for _, m := range members {
		nodes += len(m.nodes)
		for _, n := range m.nodes {
			add(&gpus, n)
			price = price.Add(m.price(n))
			if layout := n.claim.Labels[v1alpha1.LayoutLabelKey]; layout != "" {
				layouts[layout]++
			}
		}
	}
	p.Status.NodePools, p.Status.Nodes = int32(len(members)), int32(nodes) //nolint:gosec // counts of objects
	p.Status.GPUs = gpus
	p.Status.PricePerHour = price.String()
	p.Status.Layouts = commonest(layouts)
	measure(p, price)
}

func add(gpus *v1alpha1.GPUCounts, n node) {
	count := int32(n.shape.GPUs) //nolint:gosec // at most a few dozen
	gpus.Total += count
	if n.node == nil {
		gpus.Provisioning += count
		return
	}
	switch readiness.StateOf(n.node) {
	case readiness.StateVerified, readiness.StateDegraded, readiness.StateUnverified:
		gpus.Ready += count
	case readiness.StateFaulty:
		gpus.Unhealthy += count
	default:
		gpus.Provisioning += count
	}
}

// commonest are the layouts by name, without the rarest where there are too many.
func commonest(layouts map[string]int32) []v1alpha1.LayoutStatus {
	all := lo.MapToSlice(layouts, func(name string, n int32) v1alpha1.LayoutStatus { return v1alpha1.LayoutStatus{Name: name, Nodes: n} })
	byName := func(a, b v1alpha1.LayoutStatus) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(all, func(a, b v1alpha1.LayoutStatus) int { return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), byName(a, b)) })
	all = all[:min(len(all), maxLayouts)]
	slices.SortFunc(all, byName)
	if len(all) == 0 {
		return nil
	}
	return all
}
