package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning/simulate"
)

// obstacle is what keeps a pod from a NodePool.
type obstacle struct {
	// passed is how many checks the pod passed; the NodePool where it is greatest is
	// the nearest to taking the pod.
	passed      int
	reason, fix string
}

// explain says for each pod without a node why, and what would help.
func (r *run) explain(d simulate.Decision) []Unplaced {
	placed := map[string]bool{}
	for _, n := range d.Nodes {
		for _, p := range n.Pods {
			placed[p] = true
		}
	}
	for _, p := range d.Existing {
		placed[p.Pod] = true
	}
	out := []Unplaced{}
	index := map[string]int{}
	for _, p := range r.in.Pods {
		name := p.Namespace + "/" + p.Name
		if placed[name] {
			continue
		}
		o := r.obstacleOf(p, d.Unplaced[name])
		workload := p.Annotations[manifest.WorkloadAnnotation]
		key := workload + "\n" + o.reason + "\n" + o.fix
		i, ok := index[key]
		if !ok {
			i = len(out)
			index[key] = i
			out = append(out, Unplaced{Workload: workload, Reason: o.reason, Fix: o.fix})
		}
		out[i].Pods = append(out[i].Pods, name)
	}
	return out
}

// obstacleOf is the obstacle at the NodePool that comes nearest. Where a pod alone
// would fit, what the scheduler said stands.
func (r *run) obstacleOf(p *corev1.Pod, said string) obstacle {
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && !r.hasClaim(p.Namespace, c.ClaimName) {
			return obstacle{reason: fmt.Sprintf("its PersistentVolumeClaim %s/%s is not among the input", p.Namespace, c.ClaimName), fix: "give the file that has it"}
		}
	}
	best := obstacle{passed: -1}
	for i := range r.templates {
		if o := r.inspect(p, &r.templates[i]); o.passed > best.passed {
			best = o
		}
	}
	if best.passed == passedAll {
		best.reason = cmp.Or(said, "Karpenter leaves the pod to others")
	}
	return best
}

func (r *run) hasClaim(namespace, name string) bool {
	return lo.SomeBy(r.in.Objects, func(o client.Object) bool {
		_, ok := o.(*corev1.PersistentVolumeClaim)
		return ok && o.GetNamespace() == namespace && o.GetName() == name
	})
}

// Checks in their order.
const (
	passedNone = iota
	passedTaints
	passedNodePool
	passedLabels
	passedResources
	passedAll
)

func (r *run) inspect(p *corev1.Pod, t *template) obstacle {
	for _, taint := range t.Spec.Taints {
		if scheduling.Taints([]corev1.Taint{taint}).ToleratesPod(p) != nil {
			return obstacle{passedNone, fmt.Sprintf("it does not tolerate the taint %s of NodePool %s", taintText(taint), t.NodePoolName),
				fmt.Sprintf("add a toleration for %s to the pod", taintText(taint))}
		}
	}
	best := obstacle{passed: -1}
	for _, term := range alternatives(p) {
		if o := r.inspectTerm(p, t, term); o.passed > best.passed {
			best = o
		}
	}
	return best
}

func taintText(t corev1.Taint) string {
	if t.Value == "" {
		return fmt.Sprintf("%s:%s", t.Key, t.Effect)
	}
	return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
}

func (r *run) inspectTerm(p *corev1.Pod, t *template, term scheduling.Requirements) obstacle {
	for _, q := range sortedRequirements(term) {
		if !t.Requirements.IsCompatible(scheduling.NewRequirements(q), scheduling.AllowUndefinedWellKnownLabels) {
			return r.nodePoolForbids(t, q)
		}
	}
	types := lo.Filter(t.types, func(it *cloudprovider.InstanceType, _ int) bool { return carries(it, t, term) })
	if len(types) == 0 {
		return r.noLabels(p, t, term)
	}
	requests := resources.RequestsForPods(p)
	if !lo.SomeBy(types, func(it *cloudprovider.InstanceType) bool { return holds(it, requests) }) {
		return r.noRoom(p, t, term, types, requests)
	}
	if k := (podKind{terms: []scheduling.Requirements{term}, pod: p}); !lo.SomeBy(types, func(it *cloudprovider.InstanceType) bool {
		return lo.SomeBy(it.Offerings, func(o *cloudprovider.Offering) bool { return o.Launchable() && k.runsOn(t, it, o) })
	}) {
		return obstacle{passedResources, fmt.Sprintf("no instance type of NodePool %s that holds it has a price in the zones and capacity types that are allowed", t.NodePoolName),
			"allow more zones or capacity types"}
	}
	return obstacle{passed: passedAll}
}

func sortedRequirements(reqs scheduling.Requirements) []*scheduling.Requirement {
	out := reqs.Values()
	slices.SortFunc(out, func(a, b *scheduling.Requirement) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// carries says whether a node of the type can have the labels, in some group of
// offerings.
func carries(it *cloudprovider.InstanceType, t *template, term scheduling.Requirements) bool {
	both := scheduling.NewRequirements(t.Requirements.Values()...)
	both.Add(term.Values()...)
	return it.Requirements.Intersects(both) == nil && it.Offerings.HasCompatible(both)
}

func holds(it *cloudprovider.InstanceType, requests corev1.ResourceList) bool {
	return lo.SomeBy(it.AllocatableOfferingsList(), func(g cloudprovider.AllocatableOfferings) bool {
		return len(g.Offerings) > 0 && resources.Fits(requests, g.Allocatable)
	})
}

func selector(q *scheduling.Requirement) catalog.Selector {
	n := q.NodeSelectorRequirement()
	return catalog.Selector{Key: q.Key, Operator: string(n.Operator), Values: n.Values}
}

// nodePoolForbids is a label that contradicts the NodePool.
func (r *run) nodePoolForbids(t *template, q *scheduling.Requirement) obstacle {
	o := obstacle{passed: passedTaints}
	if !t.Requirements.Has(q.Key) {
		o.reason = fmt.Sprintf("it selects %s, a label that nodes of NodePool %s do not have", selector(q), t.NodePoolName)
		labels := r.labels(t.types)
		labels = append(labels, lo.MapValues(t.Requirements, func(q *scheduling.Requirement, _ string) string { return q.Any() }))
		o.fix = fmt.Sprintf("add %s to spec.template.metadata.labels of NodePool %s", q.Key, t.NodePoolName)
		if s, ok := catalog.Nearest(selector(q), labels); ok && s.Key != q.Key {
			o.fix = "perhaps " + suggestion(s) + " was meant; or " + o.fix
		}
		return o
	}
	own := t.Requirements.Get(q.Key)
	o.reason = fmt.Sprintf("it selects %s, and NodePool %s allows only %s", selector(q), t.NodePoolName, selector(own))
	o.fix = fmt.Sprintf("allow it in spec.template.spec.requirements of NodePool %s", t.NodePoolName)
	if own.Operator() == corev1.NodeSelectorOpIn {
		values := lo.Map(own.Values(), func(v string, _ int) map[string]string { return map[string]string{q.Key: v} })
		if s, ok := catalog.Nearest(selector(q), values); ok {
			o.fix = "select " + suggestion(s) + ", or " + o.fix
		}
	}
	return o
}

func suggestion(s catalog.Suggestion) string {
	if s.Value == "" {
		return s.Key
	}
	return s.Key + ": " + s.Value
}

// noLabels is a set of labels that no type of the NodePool has.
func (r *run) noLabels(p *corev1.Pod, t *template, term scheduling.Requirements) obstacle {
	o := obstacle{passed: passedNodePool}
	for _, q := range sortedRequirements(term) {
		one := scheduling.NewRequirements(q)
		if lo.SomeBy(t.types, func(it *cloudprovider.InstanceType) bool { return carries(it, t, one) }) {
			continue
		}
		o.reason = fmt.Sprintf("it selects %s, which no instance type of NodePool %s satisfies", selector(q), t.NodePoolName)
		if s, ok := catalog.Nearest(selector(q), r.labels(t.types)); ok {
			o.fix = "nearest that there is: " + suggestion(s)
		}
		o.fix = join(o.fix, r.allowing(p, t, term))
		return o
	}
	o.reason = fmt.Sprintf("no single instance type of NodePool %s satisfies all of its selectors: %s", t.NodePoolName,
		strings.Join(lo.Map(sortedRequirements(term), func(q *scheduling.Requirement, _ int) string { return selector(q).String() }), "; "))
	for _, q := range sortedRequirements(term) {
		rest := scheduling.NewRequirements(lo.Filter(term.Values(), func(o *scheduling.Requirement, _ int) bool { return o.Key != q.Key })...)
		if lo.SomeBy(t.types, func(it *cloudprovider.InstanceType) bool { return carries(it, t, rest) }) {
			o.fix = "leave out the selector on " + q.Key
			break
		}
	}
	o.fix = join(o.fix, r.allowing(p, t, term))
	return o
}

func join(parts ...string) string {
	return strings.Join(lo.Compact(parts), "; or ")
}

// labels are what nodes of the types will have, as far as it is one value.
func (r *run) labels(types []*cloudprovider.InstanceType) []map[string]string {
	return lo.Map(types, func(it *cloudprovider.InstanceType, _ int) map[string]string {
		out := map[string]string{}
		for key, q := range it.Requirements {
			if q.Operator() == corev1.NodeSelectorOpIn && q.Len() == 1 {
				out[key] = q.Any()
			}
		}
		return out
	})
}

// noRoom is a request that no type with the right labels holds.
func (r *run) noRoom(p *corev1.Pod, t *template, term scheduling.Requirements, types []*cloudprovider.InstanceType, requests corev1.ResourceList) obstacle {
	o := obstacle{passed: passedLabels}
	for _, name := range sortedNames(requests) {
		want := requests[name]
		most, on := greatest(types, name)
		if want.Sign() <= 0 || want.Cmp(most) <= 0 {
			continue
		}
		if most.Sign() <= 0 {
			o.reason = fmt.Sprintf("it asks for %s, which no node of NodePool %s has", name, t.NodePoolName)
			o.fix = join(r.allowing(p, t, term), r.offering(string(name)))
			return o
		}
		o.reason = fmt.Sprintf("it asks for %s %s, and the most that a node of NodePool %s has left for pods is %s (%s)", want.String(), name, t.NodePoolName, readable(most), on)
		o.fix = join(fmt.Sprintf("ask for at most %s", readable(most)), r.allowing(p, t, term))
		return o
	}
	o.reason = fmt.Sprintf("no single instance type of NodePool %s has all that it asks for: %s", t.NodePoolName,
		strings.Join(lo.FilterMap(sortedNames(requests), func(n corev1.ResourceName, _ int) (string, bool) {
			q := requests[n]
			return fmt.Sprintf("%s %s", q.String(), n), n != corev1.ResourcePods && q.Sign() > 0
		}), ", "))
	o.fix = r.allowing(p, t, term)
	return o
}

func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	names := lo.Keys(list)
	slices.Sort(names)
	return names
}
