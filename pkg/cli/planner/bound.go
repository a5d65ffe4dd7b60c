package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
)

// template is a NodePool with its instance types, as the controller sees them.
type template struct {
	*scheduler.NodeClaimTemplate
	types []*cloudprovider.InstanceType
}

// lowerBound states the pods and everything that may be launched for them as a problem
// of pkg/gpu/fleet, each time in the way that makes plans cheaper: daemons take
// nothing, constraints between pods do not hold, every offering that a pod tolerates
// may be used. A bound for that is a bound for any real plan.
func lowerBound(templates []template, pods []*corev1.Pod) (float64, error) {
	p := newBoundProblem(templates, pods)
	b, err := fleet.LowerBound(p.Problem)
	if err != nil {
		return 0, fmt.Errorf("computing the lower bound, %w", err)
	}
	return b.Price, nil
}

type boundProblem struct {
	fleet.Problem
	kinds    []podKind
	requests []corev1.ResourceList
}

// podKind is what decides where a pod may run: its requirements, in alternatives, and
// its tolerations.
type podKind struct {
	terms []scheduling.Requirements
	pod   *corev1.Pod
}

func newBoundProblem(templates []template, pods []*corev1.Pod) *boundProblem {
	p := &boundProblem{}
	classes, names := map[string]int{}, map[string]bool{}
	for _, pod := range pods {
		requests := resources.RequestsForPods(pod)
		k := podKind{terms: alternatives(pod), pod: pod}
		key := k.key() + resources.String(requests)
		i, ok := classes[key]
		if !ok {
			i = len(p.Classes)
			classes[key] = i
			p.Classes = append(p.Classes, fleet.Class{Name: fmt.Sprintf("%05d", i), Shapes: []int{}})
			p.kinds, p.requests = append(p.kinds, k), append(p.requests, requests)
			for name, q := range requests {
				names[string(name)] = names[string(name)] || q.Sign() > 0
			}
		}
		p.Classes[i].Count++
	}
	p.Resources = slices.Sorted(maps.Keys(lo.PickBy(names, func(_ string, asked bool) bool { return asked })))
	for i, requests := range p.requests {
		p.Classes[i].Requests = p.vector(requests, ceiling)
	}
	for i := range templates {
		for _, it := range templates[i].types {
			p.addType(&templates[i], it)
		}
	}
	return p
}

func (k podKind) key() string {
	var parts []string
	for _, term := range k.terms {
		for _, r := range term.Values() {
			parts = append(parts, r.String())
		}
		slices.Sort(parts)
		parts = append(parts, ";")
	}
	for _, t := range k.pod.Spec.Tolerations {
		parts = append(parts, t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
	return strings.Join(parts, "|")
}

// addType adds a shape for each group of offerings and each set of kinds that takes an
// offering, with the least price of these.
func (p *boundProblem) addType(t *template, it *cloudprovider.InstanceType) {
	for g, group := range it.AllocatableOfferingsList() {
		alloc := p.vector(group.Allocatable, floor)
		type shape struct {
			price   float64
			classes []int
		}
		shapes := map[string]shape{}
		for _, o := range group.Offerings {
			if !o.Launchable() || !t.Requirements.IsCompatible(o.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
				continue
			}
			classes := p.takers(t, it, o, alloc)
			key := fmt.Sprint(classes)
			if s, ok := shapes[key]; len(classes) > 0 && (!ok || o.Price < s.price) {
				shapes[key] = shape{price: o.Price, classes: classes}
			}
		}
		for _, key := range slices.Sorted(maps.Keys(shapes)) {
			index := len(p.Shapes)
			p.Shapes = append(p.Shapes, fleet.Shape{Name: fmt.Sprintf("%s/%s/%d/%s", t.NodePoolName, it.Name, g, key), Allocatable: alloc, Price: max(0, shapes[key].price)})
			for _, c := range shapes[key].classes {
				p.Classes[c].Shapes = append(p.Classes[c].Shapes, index)
			}
		}
	}
}

// takers are the classes of which a pod may run alone on the offering.
func (p *boundProblem) takers(t *template, it *cloudprovider.InstanceType, o *cloudprovider.Offering, alloc []int64) []int {
	var out []int
	for i, k := range p.kinds {
		fits := !lo.SomeBy(lo.Zip2(p.Classes[i].Requests, alloc), func(v lo.Tuple2[int64, int64]) bool { return v.A > v.B })
		if fits && k.runsOn(t, it, o) {
			out = append(out, i)
		}
	}
	return out
}

func (k podKind) runsOn(t *template, it *cloudprovider.InstanceType, o *cloudprovider.Offering) bool {
	if scheduling.Taints(t.Spec.Taints).ToleratesPod(k.pod) != nil {
		return false
	}
	return slices.ContainsFunc(k.terms, func(term scheduling.Requirements) bool {
		if !t.Requirements.IsCompatible(term, scheduling.AllowUndefinedWellKnownLabels) {
			return false
		}
		both := scheduling.NewRequirements(t.Requirements.Values()...)
		both.Add(term.Values()...)
		return it.Requirements.Intersects(both) == nil && both.IsCompatible(o.Requirements, scheduling.AllowUndefinedWellKnownLabels)
	})
}

// alternatives are the requirements of a pod for each term of its required node
// affinity; preferences do not count.
func alternatives(pod *corev1.Pod) []scheduling.Requirements {
	out := []scheduling.Requirements{scheduling.NewStrictPodRequirements(pod)}
	if a := pod.Spec.Affinity; a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return out
	}
	pod = pod.DeepCopy()
	selector := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for len(selector.NodeSelectorTerms) > 1 {
		selector.NodeSelectorTerms = selector.NodeSelectorTerms[1:]
		out = append(out, scheduling.NewStrictPodRequirements(pod))
	}
	return out
}

type rounding int

const (
	floor rounding = iota
	ceiling
)

// vector has CPU in millicores and everything else in its unit. Requests round up
// where allocatable rounds down, as whole units are what is compared; both by less
// than one byte or device, which Kubernetes does not hand out.
func (p *boundProblem) vector(list corev1.ResourceList, r rounding) []int64 {
	return lo.Map(p.Resources, func(name string, _ int) int64 {
		q := list[corev1.ResourceName(name)]
		if name == string(corev1.ResourceCPU) {
			return max(0, q.MilliValue())
		}
		v := q.Value()
		if r == floor && q.CmpInt64(v) < 0 {
			v--
		}
		return max(0, v)
	})
}

// sortTemplates orders by NodePool, so that the problem does not depend on the order
// of the input.
func sortTemplates(templates []template) {
	slices.SortFunc(templates, func(a, b template) int { return cmp.Compare(a.NodePoolName, b.NodePoolName) })
}
