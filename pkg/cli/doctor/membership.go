package doctor

import (
	"fmt"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// membership looks for NodePools and GPUPools that do not find each other.
func (e *examination) membership() {
	names := lo.Map(e.gpuPools, func(p *v1alpha1.GPUPool, _ int) string { return p.Name })
	for _, np := range e.nodePools {
		e.joined(np, names)
	}
	for _, p := range e.gpuPools {
		misplaced := lo.SomeBy(e.nodePools, func(np *karpv1.NodePool) bool {
			return np.Labels[v1alpha1.PoolLabelKey] == "" && np.Spec.Template.Labels[v1alpha1.PoolLabelKey] == p.Name
		})
		if misplaced || len(e.members(p.Name)) > 0 {
			continue
		}
		f := Finding{Severity: Warning, Reason: ReasonNoNodePools, Object: title("GPUPool", p), Message: "no NodePool has joined it, so that it does nothing",
			Fix: fmt.Sprintf("put the label %s: %s into metadata.labels of a NodePool", v1alpha1.PoolLabelKey, p.Name)}
		if free := lo.Filter(e.nodePools, func(np *karpv1.NodePool, _ int) bool {
			return np.Labels[v1alpha1.PoolLabelKey] == "" && np.Spec.Template.Labels[v1alpha1.PoolLabelKey] == ""
		}); len(free) == 1 {
			f.Command = fmt.Sprintf("kubectl label nodepool %s %s=%s", free[0].Name, v1alpha1.PoolLabelKey, p.Name)
		}
		e.add(f)
	}
}

func (e *examination) joined(np *karpv1.NodePool, names []string) {
	if wanted := np.Spec.Template.Labels[v1alpha1.PoolLabelKey]; wanted != "" && np.Labels[v1alpha1.PoolLabelKey] == "" {
		e.add(Finding{Severity: Error, Reason: ReasonPoolLabelMisplaced, Object: title("NodePool", np),
			Message: fmt.Sprintf("%s is in spec.template.metadata.labels and not in metadata.labels, so that the NodePool has joined no pool", v1alpha1.PoolLabelKey),
			Command: fmt.Sprintf("kubectl label nodepool %s %s=%s", np.Name, v1alpha1.PoolLabelKey, wanted)})
		return
	}
	wanted := np.Labels[v1alpha1.PoolLabelKey]
	if wanted == "" || lo.Contains(names, wanted) || !e.complete("GPUPool") && len(names) == 0 {
		return
	}
	f := Finding{Severity: Error, Reason: ReasonGPUPoolMissing, Object: title("NodePool", np),
		Message: fmt.Sprintf("there is no GPUPool %s, which it names: it behaves as plain Karpenter", wanted), Fix: fmt.Sprintf("create GPUPool %s, or name one that there is", wanted)}
	if !e.complete("GPUPool") {
		f.Severity = Warning
		f.Message = fmt.Sprintf("GPUPool %s, which it names, is not among the manifests: without it the NodePool behaves as plain Karpenter", wanted)
	}
	if nearest, ok := nearestName(wanted, names); ok {
		f.Command = fmt.Sprintf("kubectl label nodepool %s %s=%s --overwrite", np.Name, v1alpha1.PoolLabelKey, nearest)
	}
	e.add(f)
}

// nearestName finds the name that comes nearest to one that does not exist.
func nearestName(wanted string, names []string) (string, bool) {
	const key = "name"
	have := lo.Map(names, func(n string, _ int) map[string]string { return map[string]string{key: n} })
	s, ok := catalog.Nearest(catalog.Selector{Key: key, Operator: catalog.OpIn, Values: []string{wanted}}, have)
	return s.Value, ok && s.Value != ""
}
