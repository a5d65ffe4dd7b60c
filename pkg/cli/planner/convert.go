package planner

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning/simulate"
)

// convert describes a decision; store has the pools in force in it.
func (r *run) convert(d simulate.Decision, store *pools.Store) Decision {
	out := Decision{Nodes: []Node{}, PricePerHour: money(d.Price), Unplaced: len(r.in.Pods)}
	for _, n := range d.Nodes {
		node := r.node(n, store)
		out.Nodes = append(out.Nodes, node)
		out.GPUs, out.UnusedGPUs = out.GPUs+node.GPUs, out.UnusedGPUs+node.UnusedGPUs
		out.Placed += len(node.Pods)
	}
	for _, p := range d.Existing {
		out.Existing = append(out.Existing, Existing{Pod: p.Pod, Node: p.Node})
		out.Placed++
	}
	out.Unplaced -= out.Placed
	slices.SortStableFunc(out.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(b.PricePerHour, a.PricePerHour), strings.Compare(a.InstanceType, b.InstanceType), strings.Compare(a.NodePool, b.NodePool),
			strings.Compare(a.Layout, b.Layout), comparePods(a.Pods, b.Pods))
	})
	return out
}

func comparePods(a, b []Pod) int {
	return slices.CompareFunc(a, b, func(x, y Pod) int { return strings.Compare(x.Name, y.Name) })
}

func (r *run) node(n simulate.Node, store *pools.Store) Node {
	out := Node{NodePool: n.NodePool, InstanceType: n.Type, CapacityType: n.CapacityType, PricePerHour: money(n.Price), Alternatives: n.Alternatives, Zone: r.zone(n)}
	if pool, ok := store.ForNodePool(n.NodePool); ok {
		out.GPUPool = pool.Name()
	}
	if t, ok := lo.Find(r.templates, func(t template) bool { return t.NodePoolName == n.NodePool }); ok && out.GPUPool != "" {
		out.Layout = layoutOf(t.types, n)
	}
	if shape, ok := r.Cloud.Catalog.Shape(n.Type); ok {
		out.GPUs = shape.GPUs
	}
	out.UnusedGPUs = out.GPUs - usedGPUs(out.GPUs, n)
	for _, name := range n.Pods {
		p := Pod{Name: name}
		if pod := r.pods[name]; pod != nil {
			p.Workload = pod.Annotations[manifest.WorkloadAnnotation]
		}
		out.Pods = append(out.Pods, p)
	}
	slices.SortFunc(out.Pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), strings.Compare(a.Name, b.Name))
	})
	return out
}

// zone is the zone of a launch where its pods leave no other; one price in all zones
// is no reason to name the first.
func (r *run) zone(n simulate.Node) string {
	zones := map[string]bool{}
	for _, name := range n.Pods {
		pod := r.pods[name]
		if pod == nil {
			continue
		}
		for _, term := range alternatives(pod) {
			for _, z := range term.Get(corev1.LabelTopologyZone).Values() {
				zones[z] = true
			}
		}
	}
	if len(zones) > 0 || len(r.Cloud.Zones) == 1 {
		return n.Zone
	}
	return ""
}

// layoutOf finds the layout by what the node has to give.
func layoutOf(types []*cloudprovider.InstanceType, n simulate.Node) string {
	it, ok := lo.Find(types, func(it *cloudprovider.InstanceType) bool { return it.Name == n.Type })
	if !ok {
		return ""
	}
	for _, group := range it.AllocatableOfferingsList() {
		if len(group.Offerings) == 0 || !resources.Fits(group.Allocatable, n.Allocatable) || !resources.Fits(n.Allocatable, group.Allocatable) {
			continue
		}
		if q := group.Offerings[0].Requirements[v1alpha1.LayoutLabelKey]; q != nil && q.Operator() == corev1.NodeSelectorOpIn {
			return q.Any()
		}
	}
	return ""
}

// usedGPUs is the fewest physical GPUs that hold the largest share of any one GPU
// resource of the node.
func usedGPUs(gpus int, n simulate.Node) int {
	used := 0
	for name, have := range n.Allocatable {
		want := n.Requests[name]
		if !strings.HasPrefix(string(name), "nvidia.com/") || have.Sign() <= 0 || want.Sign() <= 0 {
			continue
		}
		used = max(used, int(math.Ceil(float64(want.Value())*float64(gpus)/float64(have.Value())-1e-9)))
	}
	return min(used, gpus)
}
