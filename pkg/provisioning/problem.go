package provisioning

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
)

// packing is a group of NodeClaims stated as a problem for pkg/gpu/fleet, with the
// way back from its shapes and classes.
type packing struct {
	r         *round
	templates []*template
	apart     []coupling
	problem   fleet.Problem
	shapes    []shape
	classes   []class
	kinds     []kind
	reserved  map[string]int // reservation to nodes that other claims take of it
}

// shape is what one fleet.Shape stands for.
type shape struct {
	template *template
	it       *cloudprovider.InstanceType
	tier     string
}

// kind is a set of pods that may run in the same places.
type kind struct {
	key         string
	reqs        scheduling.Requirements
	tolerations *corev1.Pod
	// merged are, for each template, its requirements with those of the pods; nil
	// where the pods may not run.
	merged []scheduling.Requirements
}

// class is what one fleet.Class stands for.
type class struct {
	kind     int
	requests corev1.ResourceList
	slots    []string
	pods     []*corev1.Pod
}

// item is a pod to pack, with what stock's decision means for it.
type item struct {
	pod *corev1.Pod
	// pinned are the domains, zones mostly, in which stock balanced it.
	pinned scheduling.Requirements
}

// newPacking states the problem. The templates are those that the pods may use.
func (r *round) newPacking(templates []*template, items []item, apart []coupling, reserved map[string]int) *packing {
	p := &packing{r: r, templates: templates, apart: apart, reserved: reserved}
	p.classify(items)
	p.nameResources()
	p.addShapes()
	p.addClasses()
	return p
}

func (p *packing) classify(items []item) {
	kinds, classes := map[string]int{}, map[string]int{}
	for _, it := range items {
		d := p.r.data[it.pod.UID]
		reqs := scheduling.NewRequirements(d.Requirements.Values()...)
		if len(d.VolumeRequirements) == 1 {
			reqs.Add(d.VolumeRequirements[0].Values()...)
		}
		reqs.Add(it.pinned.Values()...)
		key := fingerprint(reqs) + tolerationsKey(it.pod)
		k, ok := kinds[key]
		if !ok {
			k = len(p.kinds)
			kinds[key] = k
			p.kinds = append(p.kinds, p.newKind(key, reqs, it.pod))
		}
		taken := slots(it.pod, p.apart)
		name := fmt.Sprintf("%s|%s|%s", key, resources.String(d.Requests), strings.Join(taken, ","))
		c, ok := classes[name]
		if !ok {
			c = len(p.classes)
			classes[name] = c
			p.classes = append(p.classes, class{kind: k, requests: d.Requests, slots: taken})
		}
		p.classes[c].pods = append(p.classes[c].pods, it.pod)
	}
	for _, c := range p.classes {
		slices.SortStableFunc(c.pods, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(string(a.UID), string(b.UID)))
		})
	}
}

func (p *packing) newKind(key string, reqs scheduling.Requirements, pod *corev1.Pod) kind {
	k := kind{key: key, reqs: reqs, tolerations: pod, merged: make([]scheduling.Requirements, len(p.templates))}
	for i, t := range p.templates {
		if scheduling.Taints(t.base.Spec.Taints).ToleratesPod(pod) != nil || !t.base.Requirements.IsCompatible(reqs, scheduling.AllowUndefinedWellKnownLabels) {
			continue
		}
		k.merged[i] = scheduling.NewRequirements(t.base.Requirements.Values()...)
		k.merged[i].Add(reqs.Values()...)
	}
	return k
}

func (p *packing) nameResources() {
	names, gpus := map[string]bool{}, []string{}
	for _, c := range p.classes {
		for name, q := range c.requests {
			if q.Sign() > 0 && !names[string(name)] {
				names[string(name)] = true
				if isGPU(name) {
					gpus = append(gpus, string(name))
				}
			}
		}
		for _, s := range c.slots {
			names[s] = true
		}
	}
	slices.Sort(gpus)
	p.problem.Resources, p.problem.GPUResources = slices.Sorted(maps.Keys(names)), gpus
}

// addShapes adds a shape for each type, group of offerings and capacity type, and
// within these for each set of kinds that an offering takes: of offerings that take
// the same pods only the cheapest counts.
func (p *packing) addShapes() {
	for i, t := range p.templates {
		for _, it := range t.types {
			compatible := lo.Map(p.kinds, func(k kind, _ int) bool {
				return k.merged[i] != nil && it.Requirements.Intersects(k.merged[i]) == nil
			})
			if slices.Contains(compatible, true) {
				p.addType(i, it, compatible)
			}
		}
	}
}

func (p *packing) addType(at int, it *cloudprovider.InstanceType, compatible []bool) {
	t := p.templates[at]
	for g, group := range it.AllocatableOfferingsList() {
		alloc := p.allocatable(t, it, group.Allocatable)
		if !lo.ContainsBy(p.classes, func(c class) bool { return compatible[c.kind] && p.holds(alloc, c) }) {
			continue
		}
		cheapest := map[string]*cloudprovider.Offering{}
		for _, o := range group.Offerings {
			key, ok := p.takes(at, o, compatible)
			if best := cheapest[key]; ok && (best == nil || o.Price < best.Price) {
				cheapest[key] = o
			}
		}
		for _, key := range slices.Sorted(maps.Keys(cheapest)) {
			p.addShape(t, it, g, key, alloc, cheapest[key])
		}
	}
}

// takes names the pods that an offering takes; ok is false if there are none, or it
// cannot be launched.
func (p *packing) takes(at int, o *cloudprovider.Offering, compatible []bool) (key string, ok bool) {
	if !o.Launchable() || !p.templates[at].pool.uses(o.CapacityType()) {
		return "", false
	}
	var b strings.Builder
	b.WriteString(o.CapacityType())
	if o.CapacityType() == karpv1.CapacityTypeReserved {
		if o.ReservationCapacity <= p.reserved[o.ReservationID()] {
			return "", false
		}
		b.WriteString("/" + o.ReservationID())
	}
	for i, k := range p.kinds {
		if compatible[i] && k.merged[at].IsCompatible(o.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
			ok = true
			fmt.Fprintf(&b, ",%d", i)
		}
	}
	return b.String(), ok
}

func (p *packing) addShape(t *template, it *cloudprovider.InstanceType, group int, key string, alloc []int64, o *cloudprovider.Offering) {
	s := fleet.Shape{Name: fmt.Sprintf("%s/%s/%d/%s", t.nodePool.Name, it.Name, group, key), Allocatable: alloc, Price: max(0, o.Price),
		GPUs: t.physicalGPUs(it)}
	if o.CapacityType() == karpv1.CapacityTypeReserved {
		s.MaxNodes = o.ReservationCapacity - p.reserved[o.ReservationID()]
	}
	index := len(p.shapes)
	p.shapes = append(p.shapes, shape{template: t, it: it, tier: o.CapacityType()})
	p.problem.Shapes = append(p.problem.Shapes, s)
	_, kinds, _ := strings.Cut(key, ",")
	for _, k := range strings.Split(kinds, ",") {
		var n int
		if _, err := fmt.Sscan(k, &n); err == nil {
			p.accepts(index, n)
		}
	}
}

// accepts notes that a shape takes a kind, with all classes of it.
func (p *packing) accepts(index, kind int) {
	if len(p.problem.Classes) == 0 {
		p.problem.Classes = lo.Map(p.classes, func(c class, i int) fleet.Class {
			return fleet.Class{Name: fmt.Sprintf("%04d", i), Count: len(c.pods), Requests: p.amounts(c), Shapes: []int{}}
		})
	}
	for i, c := range p.classes {
		if c.kind == kind && p.holds(p.problem.Shapes[index].Allocatable, c) {
			p.problem.Classes[i].Shapes = append(p.problem.Classes[i].Shapes, index)
		}
	}
}

// addClasses narrows each class to the first capacity type of the pool's order that
// has a shape for it. A reservation has few places, so that the type after it is
// left as well.
func (p *packing) addClasses() {
	for i := range p.problem.Classes {
		c := &p.problem.Classes[i]
		var kept []int
		tiers, _ := p.templates[0].pool.order(p.kinds[p.classes[i].kind].tolerations)
		for _, tier := range tiers {
			of := lo.Filter(c.Shapes, func(s, _ int) bool { return p.shapes[s].tier == tier })
			kept = append(kept, of...)
			if len(of) > 0 && tier != karpv1.CapacityTypeReserved {
				break
			}
		}
		slices.Sort(kept)
		c.Shapes = append([]int{}, kept...)
	}
}

// leaveGPUs keeps pods that ask for no GPU off accelerated types wherever another
// type can be launched for them.
func (p *packing) leaveGPUs() {
	for i := range p.problem.Classes {
		if asksGPU(p.classes[i].requests) {
			continue
		}
		c := &p.problem.Classes[i]
		if plain := lo.Filter(c.Shapes, func(s, _ int) bool { return !p.r.gpus().accelerated(p.shapes[s].it) }); len(plain) > 0 {
			c.Shapes = plain
		}
	}
}

func (p *packing) allocatable(t *template, it *cloudprovider.InstanceType, list corev1.ResourceList) []int64 {
	o := t.overhead[it]
	return lo.Map(p.problem.Resources, func(name string, _ int) int64 {
		if strings.HasPrefix(name, "port:") {
			return lo.Ternary[int64](o.held[name], 0, 1)
		}
		if i := slices.IndexFunc(p.apart, func(c coupling) bool { return c.name == name }); i >= 0 {
			return p.apart[i].perNode
		}
		have := list[corev1.ResourceName(name)].DeepCopy()
		have.Sub(o.requests[corev1.ResourceName(name)])
		if corev1.ResourceName(name) == corev1.ResourceCPU {
			return max(0, have.MilliValue())
		}
		v := have.Value() // rounded up
		if have.CmpInt64(v) < 0 {
			v--
		}
		return max(0, v)
	})
}

func (p *packing) amounts(c class) []int64 {
	return lo.Map(p.problem.Resources, func(name string, _ int) int64 {
		if slices.Contains(c.slots, name) {
			return 1
		}
		q := c.requests[corev1.ResourceName(name)]
		if corev1.ResourceName(name) == corev1.ResourceCPU {
			return max(0, q.MilliValue())
		}
		return max(0, q.Value())
	})
}

func (p *packing) holds(alloc []int64, c class) bool {
	for i, a := range p.amounts(c) {
		if a > alloc[i] {
			return false
		}
	}
	return true
}

// fingerprint says all of a set of requirements, in a fixed order.
func fingerprint(reqs scheduling.Requirements) string {
	parts := lo.Map(reqs.Values(), func(q *scheduling.Requirement, _ int) string { return q.String() })
	slices.Sort(parts)
	return strings.Join(parts, ";")
}

func tolerationsKey(pod *corev1.Pod) string {
	parts := lo.Map(pod.Spec.Tolerations, func(t corev1.Toleration, _ int) string {
		return fmt.Sprintf("%s/%s/%s/%s", t.Key, t.Operator, t.Value, t.Effect)
	})
	slices.Sort(parts)
	return "|" + strings.Join(lo.Uniq(parts), ";")
}
