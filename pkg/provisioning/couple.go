package provisioning

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// coupling is a constraint between pods, as far as the packing uses it: the label
// that it speaks of, and whom it counts.
type coupling struct {
	key       string
	name      string
	namespace string
	selector  labels.Selector
	// perNode is how many counted pods one new node may have; 0 is no bound.
	perNode int64
}

// couplings are the constraints of a pod with other pods. ignore drops preferences,
// as the scheduler does when it is told to.
func couplings(pod *corev1.Pod, ignore bool) []coupling {
	var out []coupling
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if ignore && c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		out = append(out, newCoupling(pod.Namespace, c.TopologyKey, c.LabelSelector, int64(c.MaxSkew)))
	}
	if pod.Spec.Affinity == nil {
		return out
	}
	if a := pod.Spec.Affinity.PodAffinity; a != nil {
		for _, term := range terms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, ignore) {
			out = append(out, newCoupling(pod.Namespace, term.TopologyKey, term.LabelSelector, 0))
		}
	}
	if a := pod.Spec.Affinity.PodAntiAffinity; a != nil {
		for _, term := range terms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, ignore) {
			out = append(out, newCoupling(pod.Namespace, term.TopologyKey, term.LabelSelector, 1))
		}
	}
	return out
}

func terms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, ignore bool) []corev1.PodAffinityTerm {
	out := slices.Clone(required)
	if !ignore {
		for _, p := range preferred {
			out = append(out, p.PodAffinityTerm)
		}
	}
	return out
}

func newCoupling(namespace, key string, selector *metav1.LabelSelector, perNode int64) coupling {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		s = labels.Nothing()
	}
	return coupling{key: key, namespace: namespace, selector: s, perNode: perNode, name: fmt.Sprintf("apart:%s/%s/%s/%d", namespace, key, s, perNode)}
}

func (c coupling) counts(pod *corev1.Pod) bool {
	return pod.Namespace == c.namespace && c.selector.Matches(labels.Set(pod.Labels))
}

// slots are the things of which a node has few and that a pod takes one of: its
// host ports, and its place among pods that have to keep apart on each node.
func slots(pod *corev1.Pod, apart []coupling) []string {
	var out []string
	for _, p := range scheduling.GetHostPorts(pod) {
		out = append(out, portKey(p))
	}
	for _, c := range apart {
		if c.perNode > 0 && c.counts(pod) {
			out = append(out, c.name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
