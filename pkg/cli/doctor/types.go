package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// instanceTypes looks at NodePools of pools, and at others that ask for GPUs, for those that
// no type satisfies.
func (e *examination) instanceTypes() {
	for _, np := range e.nodePools {
		pool, joined := e.store.ForNodePool(np.Name)
		if _, known := e.plain[np.Name]; !known || !joined && !asksForGPUs(np) {
			continue
		}
		reqs := demands(np)
		left := allowed(e.offered[np.Name], reqs)
		if !joined {
			if len(left) == 0 {
				e.noTypes(np, e.offered[np.Name], reqs)
			}
			continue
		}
		e.poolTypes(np, pool, left, reqs)
	}
}

// poolTypes tells apart that there is no type, no GPU, and no GPU that can be divided so.
func (e *examination) poolTypes(np *karpv1.NodePool, pool *pools.Pool, left []*corecloudprovider.InstanceType, reqs scheduling.Requirements) {
	hardware := scheduling.NewRequirements(lo.Filter(reqs.Values(), func(r *scheduling.Requirement, _ int) bool { return !slices.Contains(pooled(), r.Key) })...)
	shapes := e.gpuShapes(allowed(e.plain[np.Name], hardware))
	var excluded []string
	for _, s := range shapes {
		if err := pool.Supports(s); err != nil {
			excluded = append(excluded, fmt.Sprintf("%s (%s)", s.Name, err))
		}
	}
	switch {
	case len(shapes) > 0 && len(excluded) == len(shapes):
		e.add(Finding{Severity: Error, Reason: ReasonPartitioningUnsupported, Object: title("NodePool", np),
			Message: fmt.Sprintf("no instance type that it allows can be divided as GPUPool %s asks: %s", pool.Name(), listed(excluded)),
			Fix:     "allow other types in spec.template.spec.requirements, or change spec.partitioning of the pool", Command: "kubectl edit gpupool " + pool.Name()})
	case len(left) == 0:
		e.noTypes(np, e.offered[np.Name], reqs)
	case len(e.gpuShapes(left)) == 0:
		e.add(Finding{Severity: Error, Reason: ReasonNoInstanceTypes, Object: title("NodePool", np),
			Message: fmt.Sprintf("it is in GPUPool %s and allows no instance type with NVIDIA GPUs", pool.Name()),
			Fix:     "allow such types in spec.template.spec.requirements, or take it out of the pool", Command: fmt.Sprintf("kubectl label nodepool %s %s-", np.Name, v1alpha1.PoolLabelKey)})
	}
}

// pooled are the labels whose values depend on how a pool divides GPUs.
func pooled() []string {
	return append(cloudprovider.PredictedLabelKeys(), v1alpha1.PoolLabelKey, v1alpha1.LayoutLabelKey, v1alpha1.MIGConfigLabelKey, v1alpha1.DevicePluginConfigLabelKey)
}

func (e *examination) gpuShapes(types []*corecloudprovider.InstanceType) []catalog.Shape {
	return lo.FilterMap(types, func(it *corecloudprovider.InstanceType, _ int) (catalog.Shape, bool) {
		s, ok := e.Cloud.Catalog.Shape(it.Name)
		return s, ok && s.HasGPU()
	})
}

// asksForGPUs says whether requirements speak of NVIDIA GPUs. About other types the
// catalogue may be incomplete.
func asksForGPUs(np *karpv1.NodePool) bool {
	return lo.SomeBy(np.Spec.Template.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool {
		return aboutGPUs(r.Key) && r.Operator != corev1.NodeSelectorOpDoesNotExist
	})
}

func aboutGPUs(key string) bool {
	return strings.HasPrefix(key, "nvidia.com/") || strings.HasPrefix(key, "karpenter.k8s.aws/instance-gpu-")
}

// noTypes names the requirement without which there would be types, and the nearest value.
func (e *examination) noTypes(np *karpv1.NodePool, types []*corecloudprovider.InstanceType, reqs scheduling.Requirements) {
	f := Finding{Severity: Error, Reason: ReasonNoInstanceTypes, Object: title("NodePool", np), Fix: "widen spec.template.spec.requirements",
		Message: "no instance type satisfies all its requirements together, so that it launches nothing"}
	if i, left, ok := blame(np, types, reqs); ok {
		r := np.Spec.Template.Spec.Requirements[i]
		s := catalog.Selector{Key: r.Key, Operator: string(r.Operator), Values: r.Values}
		f.Message = fmt.Sprintf("no instance type satisfies %s, one of its requirements, and the others: it launches nothing", s)
		if nearest, ok := catalog.Nearest(s, labelsOf(left)); ok && nearest.Key == r.Key && nearest.Value != "" {
			f.Message += "; " + nearest.String()
			f.Fix = ""
			f.Command = steps("nodepool", np, operation{"replace", fmt.Sprintf("/spec/template/spec/requirements/%d/values", i), []string{reachable(s, nearest.Value)}})
		}
	}
	e.add(f)
}

// blame finds the requirement without which types are left, and these. One that no type
// satisfies even alone comes before one on GPUs, and that before any other: who asks for a
// family and for a GPU most likely erred about the GPU.
func blame(np *karpv1.NodePool, types []*corecloudprovider.InstanceType, reqs scheduling.Requirements) (index int, left []*corecloudprovider.InstanceType, ok bool) {
	rank := 3
	for i, r := range np.Spec.Template.Spec.Requirements {
		if !reqs.Has(r.Key) {
			continue
		}
		without := allowed(types, scheduling.NewRequirements(lo.Filter(reqs.Values(), func(o *scheduling.Requirement, _ int) bool { return o.Key != r.Key })...))
		if len(without) == 0 {
			continue
		}
		own := 2
		switch {
		case len(allowed(types, scheduling.NewRequirements(reqs.Get(r.Key)))) == 0:
			own = 0
		case aboutGPUs(r.Key):
			own = 1
		}
		if own < rank {
			rank, index, left, ok = own, i, without, true
		}
	}
	return index, left, ok
}

// reachable is the value for the selector by which nearest satisfies it: Gt 40 for 41.
func reachable(s catalog.Selector, nearest string) string {
	var n int64
	if _, err := fmt.Sscan(nearest, &n); err != nil {
		return nearest
	}
	switch s.Operator {
	case catalog.OpGt:
		return fmt.Sprint(n - 1)
	case catalog.OpLt:
		return fmt.Sprint(n + 1)
	}
	return nearest
}

// labelsOf are the labels of types that have one value, offering by offering.
func labelsOf(types []*corecloudprovider.InstanceType) []map[string]string {
	single := func(reqs scheduling.Requirements) map[string]string {
		out := map[string]string{}
		for key, r := range reqs {
			if r.Operator() == corev1.NodeSelectorOpIn && r.Len() == 1 {
				out[key] = r.Any()
			}
		}
		return out
	}
	var out []map[string]string
	for _, it := range types {
		common := single(it.Requirements)
		for _, o := range it.Offerings {
			out = append(out, lo.Assign(common, single(o.Requirements)))
		}
	}
	return out
}

// budgets looks for disruption budgets that never let a node go. Those of NodePools that
// ask for no GPUPool are their owner's own affair.
func (e *examination) budgets() {
	for _, np := range e.nodePools {
		if np.Labels[v1alpha1.PoolLabelKey] == "" {
			continue
		}
		for i, b := range np.Spec.Disruption.Budgets {
			if b.Nodes != "0" && b.Nodes != "0%" || b.Schedule != nil {
				continue
			}
			e.add(Finding{Severity: Warning, Reason: ReasonBudgetBlocks, Object: title("NodePool", np),
				Message: fmt.Sprintf("spec.disruption.budgets[%d] lets no node go at any time: %s", i, e.blocked(np, b)),
				Fix:     "give it a schedule and a duration, or remove it",
				Command: steps("nodepool", np, operation{"replace", fmt.Sprintf("/spec/disruption/budgets/%d/nodes", i), "10%"})})
		}
	}
}

// blocked says what a budget of zero forbids.
func (e *examination) blocked(np *karpv1.NodePool, b karpv1.Budget) string {
	has := func(r karpv1.DisruptionReason) bool { return len(b.Reasons) == 0 || slices.Contains(b.Reasons, r) }
	var out []string
	if has(karpv1.DisruptionReasonEmpty) {
		text := "empty nodes stay"
		if pool, ok := e.store.ForNodePool(np.Name); ok {
			if after, set := pool.GPUPool.Spec.Reclaim.GetEmptyAfter(); set {
				text += fmt.Sprintf(", whatever reclaim.emptyAfter (%s) of GPUPool %s says", after, pool.Name())
			}
		}
		out = append(out, text)
	}
	if has(karpv1.DisruptionReasonUnderutilized) {
		out = append(out, "nothing is consolidated")
	}
	if has(karpv1.DisruptionReasonDrifted) {
		out = append(out, "drifted nodes are not replaced")
	}
	if has(karpv1.DisruptionReasonUnhealthy) {
		out = append(out, "nodes with broken GPUs are not repaired")
	}
	return strings.Join(out, ", ")
}
