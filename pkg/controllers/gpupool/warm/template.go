package warm

import (
	"cmp"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// pauseImage stands in the templates because one must. Nobody runs it.
const pauseImage = "registry.k8s.io/pause:3.10"

// holding is a pod that asks for an amount of a resource and nothing else, so that work,
// which asks for CPU and memory as well, goes first where the scheduler has to choose.
func holding(name corev1.ResourceName, amount int64) corev1.PodTemplateSpec {
	list := corev1.ResourceList{name: *resource.NewQuantity(amount, resource.DecimalSI)}
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "hold", Image: pauseImage, Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}},
	}}
}

// aim turns a template to the nodes of the pool: their label is required, and the taints of
// its NodePools are tolerated.
func aim(t *corev1.PodTemplateSpec, p *v1alpha1.GPUPool, entry *v1alpha1.WarmCapacity, members []*karpv1.NodePool) {
	t.Labels = lo.Assign(t.Labels, labelsOf(p, entry))
	t.Name, t.GenerateName, t.Namespace = "", "", ""
	t.Spec.NodeName = ""
	explicit(&t.Spec)
	require(&t.Spec, corev1.NodeSelectorRequirement{Key: v1alpha1.PoolLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{p.Name}})
	if len(entry.CapacityTypes) > 0 {
		require(&t.Spec, corev1.NodeSelectorRequirement{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn,
			Values: lo.Map(entry.CapacityTypes, func(c v1alpha1.CapacityType, _ int) string { return string(c) })})
	}
	for _, taint := range taintsOf(members) {
		if !lo.ContainsBy(t.Spec.Tolerations, func(have corev1.Toleration) bool { return tolerates(have, taint) }) {
			t.Spec.Tolerations = append(t.Spec.Tolerations, tolerationOf(taint))
		}
	}
}

// explicit asks for what is only limited. The API server does so for pods and not for their
// templates, and extended resources are usually written as limits alone.
func explicit(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			r.Requests = lo.Assign(r.Limits, r.Requests)
		}
	}
}

// tolerates compares by what scheduling asks for, without the comparisons of numbers that
// no taint of a NodePool needs.
func tolerates(have corev1.Toleration, taint corev1.Taint) bool {
	if have.Effect != "" && have.Effect != taint.Effect || have.Key != "" && have.Key != taint.Key {
		return false
	}
	if have.Operator == corev1.TolerationOpExists {
		return true
	}
	return have.Key != "" && (have.Operator == "" || have.Operator == corev1.TolerationOpEqual) && have.Value == taint.Value
}

func tolerationOf(taint corev1.Taint) corev1.Toleration {
	if taint.Value == "" {
		return corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpExists, Effect: taint.Effect}
	}
	return corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect}
}

// taintsOf are the taints of the NodePools, each once, in order.
func taintsOf(members []*karpv1.NodePool) []corev1.Taint {
	all := lo.FlatMap(members, func(n *karpv1.NodePool, _ int) []corev1.Taint {
		return lo.Map(n.Spec.Template.Spec.Taints, func(t corev1.Taint, _ int) corev1.Taint {
			return corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
		})
	})
	slices.SortFunc(all, func(a, b corev1.Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
	})
	return slices.Compact(all)
}

// require adds to every way in which the pod may choose its node.
func require(spec *corev1.PodSpec, requirement corev1.NodeSelectorRequirement) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	node := spec.Affinity.NodeAffinity
	if node.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	selector := node.RequiredDuringSchedulingIgnoredDuringExecution
	if len(selector.NodeSelectorTerms) == 0 {
		selector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
	}
	for i := range selector.NodeSelectorTerms {
		term := &selector.NodeSelectorTerms[i]
		term.MatchExpressions = append(term.MatchExpressions, requirement)
	}
}
