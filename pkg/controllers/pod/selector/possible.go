package selector

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// possible is what nodes have or could have.
type possible struct {
	keys       map[string]bool
	labels     []map[string]string
	seen       map[string]bool
	partitions map[string]bool
}

func newPossible() possible {
	return possible{
		keys: lo.SliceToMap(cloudprovider.PredictedLabelKeys(), func(k string) (string, bool) { return k, true }),
		seen: map[string]bool{}, partitions: map[string]bool{},
	}
}

// add adds a set of labels once.
func (p *possible) add(labels map[string]string) {
	own := lo.PickBy(labels, func(key, _ string) bool { return p.keys[key] })
	if id := fmt.Sprint(own); len(own) > 0 && !p.seen[id] {
		p.seen[id] = true
		p.labels = append(p.labels, own)
	}
}

// addNode adds what a node has, whoever manages it.
func (p *possible) addNode(node *corev1.Node) {
	p.add(node.Labels)
	p.addPartitions(node.Status.Capacity)
}

func (p *possible) addPartitions(list corev1.ResourceList) {
	for name, q := range list {
		if strings.HasPrefix(string(name), v1alpha1.ResourceMIGPrefix) && !q.IsZero() {
			p.partitions[string(name)] = true
		}
	}
}

// addTypes adds what new nodes of a NodePool could have. Offerings that are not
// available now count: what is sold out today is not impossible.
func (p *possible) addTypes(n *karpv1.NodePool, its []*corecloudprovider.InstanceType) {
	reqs := scheduling.NewNodeSelectorRequirementsWithMinValues(n.Spec.Template.Spec.Requirements...)
	reqs.Add(scheduling.NewLabelRequirements(n.Spec.Template.Labels).Values()...)
	for _, it := range its {
		if !reqs.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
			continue
		}
		common := p.valuesOf(it.Requirements)
		for _, o := range it.Offerings {
			p.add(lo.Assign(n.Spec.Template.Labels, common, p.valuesOf(o.Requirements)))
			p.addPartitions(o.CapacityOverride)
		}
	}
}

// valuesOf are the predicted labels that have one value.
func (p *possible) valuesOf(reqs scheduling.Requirements) map[string]string {
	values := map[string]string{}
	for key, r := range reqs {
		if p.keys[key] && r.Operator() == corev1.NodeSelectorOpIn && r.Len() == 1 {
			values[key] = r.Any()
		}
	}
	return values
}

// term are the selectors of predicted labels that must hold together.
type term []catalog.Selector

// termsOf are the alternatives of a pod: its node selector with each term of its
// required node affinity.
func termsOf(pod *corev1.Pod) []term {
	keys := lo.SliceToMap(cloudprovider.PredictedLabelKeys(), func(k string) (string, bool) { return k, true })
	var base term
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		if keys[key] {
			base = append(base, catalog.Selector{Key: key, Operator: catalog.OpIn, Values: []string{pod.Spec.NodeSelector[key]}})
		}
	}
	required := requiredTerms(pod)
	if len(required) == 0 {
		return []term{base}
	}
	return lo.Map(required, func(t corev1.NodeSelectorTerm, _ int) term {
		all := slices.Clone(base)
		for _, e := range t.MatchExpressions {
			if keys[e.Key] {
				all = append(all, catalog.Selector{Key: e.Key, Operator: string(e.Operator), Values: e.Values})
			}
		}
		return all
	})
}

func requiredTerms(pod *corev1.Pod) []corev1.NodeSelectorTerm {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return nil
}

// partitionsOf are the MIG resources that a pod asks for, sorted.
func partitionsOf(pod *corev1.Pod) []string {
	var names []string
	for name, q := range resources.RequestsForPods(pod) {
		if strings.HasPrefix(string(name), v1alpha1.ResourceMIGPrefix) && !q.IsZero() {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names
}

// problem says what the pod asks for that nothing can have; empty if all can be.
func (p *possible) problem(pod *corev1.Pod) string {
	for _, name := range partitionsOf(pod) {
		if !p.partitions[name] {
			return fmt.Sprintf("No GPUPool offers %s; %s", name, p.offered())
		}
	}
	terms := termsOf(pod)
	if lo.SomeBy(terms, p.satisfies) {
		return ""
	}
	return p.explain(terms[0])
}

func (p *possible) offered() string {
	if len(p.partitions) == 0 {
		return "none has MIG partitions: set spec.partitioning.mig on one"
	}
	return "offered are " + strings.Join(slices.Sorted(maps.Keys(p.partitions)), ", ")
}

func (p *possible) satisfies(t term) bool {
	if len(t) == 0 {
		return true
	}
	return lo.SomeBy(append(slices.Clone(p.labels), map[string]string{}), func(labels map[string]string) bool {
		return lo.EveryBy(t, func(s catalog.Selector) bool { return s.Matches(labels) })
	})
}

// blame finds the first selector that nothing satisfies by itself, and what comes nearest.
func (p *possible) blame(t term) (catalog.Selector, catalog.Suggestion, bool) {
	for _, s := range t {
		if nearest, ok := catalog.Nearest(s, p.labels); ok {
			return s, nearest, true
		}
	}
	return catalog.Selector{}, catalog.Suggestion{}, false
}

// explain names the first selector that nothing satisfies by itself, or all of them.
func (p *possible) explain(t term) string {
	if s, nearest, ok := p.blame(t); ok {
		return fmt.Sprintf("No node of any NodePool can have %s; %s", s, nearest)
	}
	return "No node of any NodePool can have all of " + strings.Join(lo.Map(t, func(s catalog.Selector, _ int) string { return s.String() }), ", ") + " together"
}
