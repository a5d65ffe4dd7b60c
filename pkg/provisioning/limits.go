package provisioning

import (
	"errors"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
)

// admit lets through the claims of a pool, in their order, for which its limits have
// room beside the nodes that it has and the claims that stay. Each claim is charged
// with the most that it can take. The claims returned are copies where types had to
// be taken out to make them fit.
func (r *round) admit(p *pool, entries, stay []*entry) (kept, refused []*entry) {
	if !p.bounded() {
		return lo.FilterReject(entries, func(e *entry, _ int) bool { return e.refusal == nil })
	}
	used := r.usage[p.Name]
	for _, e := range stay {
		if e.template != nil && e.template.pool == p && e.refusal == nil {
			used = used.add(r.charge(e))
		}
	}
	if total := lo.Reduce(launchableEntries(entries), func(sum charge, e *entry, _ int) charge { return sum.add(r.charge(e)) }, used); over(p, total) != nil {
		entries = lo.Map(entries, func(e *entry, _ int) *entry { return r.trimmed(e) })
	}
	for _, e := range entries {
		if e.refusal == nil {
			if e = r.fitted(e, used); e.refusal == nil {
				kept, used = append(kept, e), used.add(r.charge(e))
				continue
			}
		}
		refused = append(refused, e)
	}
	return kept, refused
}

func (r *round) trimmed(e *entry) *entry {
	if e.refusal != nil {
		return e
	}
	out := &entry{claim: copyClaim(e.claim), template: e.template}
	r.trim(out, 1)
	return out
}

// fitted leaves the types of a claim for which the limits have room; with none, the
// claim is refused.
func (r *round) fitted(e *entry, used charge) *entry {
	p := e.template.pool
	if over(p, used.add(r.charge(e))) == nil {
		return e
	}
	requests := r.requests(e.claim.Pods)
	out := &entry{claim: copyClaim(e.claim), template: e.template}
	out.claim.InstanceTypeOptions = lo.Filter(e.claim.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) bool {
		return over(p, used.add(e.template.chargeOf(it, e.claim.Requirements, requests))) == nil
	})
	if _, _, err := out.claim.InstanceTypeOptions.SatisfiesMinValues(out.claim.Requirements); err == nil && len(out.claim.InstanceTypeOptions) > 0 {
		return out
	}
	out.claim.InstanceTypeOptions = e.claim.InstanceTypeOptions
	out.refusal = r.overLimit(e, used)
	return out
}

// over names the limit that an amount passes; nil if it passes none.
func over(p *pool, c charge) *Refusal {
	if limit := p.Spec.Limits.GPUs; limit != nil && c.gpus > int(*limit) {
		return &Refusal{Pool: p.Name, Kind: RefusedGPULimit}
	}
	if limit, ok := p.Spec.Limits.Price(); ok && c.price > limit {
		return &Refusal{Pool: p.Name, Kind: RefusedPriceLimit}
	}
	return nil
}

// overLimit says which limit holds a claim back and how far it is used up. What to
// launch is added for each pod, by alone.
func (r *round) overLimit(e *entry, used charge) *Refusal {
	p := e.template.pool
	out := over(p, used.add(r.charge(e)))
	if out.Kind == RefusedGPULimit {
		out.Message = fmt.Sprintf("waiting: GPUPool %s has or is launching %d of spec.limits.gpus=%d GPUs", p.Name, used.gpus, *p.Spec.Limits.GPUs)
		return out
	}
	out.Message = fmt.Sprintf("waiting: GPUPool %s spends or is about to spend $%s of spec.limits.pricePerHour=%s per hour", p.Name, used.price, lo.FromPtr(p.Spec.Limits.PricePerHour))
	return out
}

// alone completes a refusal by a limit with the cheapest launch for one pod.
func (r *round) alone(e *entry, pod *corev1.Pod) Refusal {
	out := *e.refusal
	if out.Kind == RefusedOversize || out.Kind == RefusedWarmPrice {
		return out
	}
	reqs := scheduling.NewRequirements(e.template.base.Requirements.Values()...)
	reqs.Add(r.data[pod.UID].Requirements.Values()...)
	types := lo.Filter(e.template.types, func(it *cloudprovider.InstanceType, _ int) bool { return it.Requirements.Intersects(reqs) == nil })
	what := "no type can be launched for the pod now"
	if l, ok := e.template.cheapest(types, reqs, r.data[pod.UID].Requests); ok {
		out.Type, out.Price = l.it.Name, l.price
		what = fmt.Sprintf("the cheapest launch for the pod, %s (%s), has %d GPUs at $%s per hour", l.it.Name, l.tier, e.template.physicalGPUs(l.it), dollars(l.price))
	}
	out.Message = fmt.Sprintf("%s, and %s; raise the limit, or wait for nodes to go", out.Message, what)
	return out
}

// fleetLimits are what a plan may open beside the claims that stay.
func (r *round) fleetLimits(p *pool, stay []*entry) fleet.Limits {
	out := fleet.Limits{MaxUnusedGPUs: p.maxUnused()}
	if !p.bounded() {
		return out
	}
	used := r.usage[p.Name]
	for _, e := range stay {
		if e.template != nil && e.template.pool == p && e.refusal == nil {
			used = used.add(r.charge(e))
		}
	}
	if limit := p.Spec.Limits.GPUs; limit != nil {
		out.GPUs = lo.ToPtr(max(0, int(*limit)-used.gpus))
	}
	if limit, ok := p.Spec.Limits.Price(); ok {
		out.PricePerHour = lo.ToPtr(limit.Sub(used.price).Float())
	}
	return out
}

var errNodePoolLimit = errors.New("checking NodePool limits, the plan passes them")

// withinNodePoolLimits narrows formed claims to what the limits of their NodePools
// leave, counting as the scheduler does: nodes that are not being deleted, and for
// each new claim the largest of its types.
func (r *round) withinNodePoolLimits(formed, stay []*entry) error {
	left := r.leftInNodePools(stay)
	for _, e := range formed {
		rest, ok := left[e.claim.NodePoolName]
		if !ok {
			continue
		}
		e.claim.InstanceTypeOptions = lo.Filter(e.claim.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) bool { return holdsType(rest, it) })
		if _, _, err := e.claim.InstanceTypeOptions.SatisfiesMinValues(e.claim.Requirements); err != nil || len(e.claim.InstanceTypeOptions) == 0 {
			return errNodePoolLimit
		}
		left[e.claim.NodePoolName] = take(rest, e.claim.InstanceTypeOptions)
	}
	return nil
}

// leftInNodePools is what the limits of NodePools leave beside their nodes and the
// claims that stay, by NodePool; one without limits is not in it.
func (r *round) leftInNodePools(stay []*entry) map[string]corev1.ResourceList {
	left := map[string]corev1.ResourceList{}
	for _, t := range r.templates {
		if len(t.nodePool.Spec.Limits) > 0 {
			left[t.nodePool.Name] = corev1.ResourceList(t.nodePool.Spec.Limits).DeepCopy()
		}
	}
	if len(left) == 0 {
		return left
	}
	for n := range r.Cluster.Nodes() {
		if rest, ok := left[n.Labels()[karpv1.NodePoolLabelKey]]; ok && !n.MarkedForDeletion() {
			left[n.Labels()[karpv1.NodePoolLabelKey]] = resources.Subtract(rest, n.Capacity())
		}
	}
	for _, e := range stay {
		if rest, ok := left[e.claim.NodePoolName]; ok && e.refusal == nil {
			left[e.claim.NodePoolName] = take(rest, e.claim.InstanceTypeOptions)
		}
	}
	return left
}

func holdsType(rest corev1.ResourceList, it *cloudprovider.InstanceType) bool {
	return lo.EveryBy(lo.Entries(rest), func(e lo.Entry[corev1.ResourceName, resource.Quantity]) bool {
		if e.Key == resources.Node {
			return e.Value.Sign() > 0
		}
		return resources.Cmp(it.Capacity[e.Key], e.Value) <= 0
	})
}

func take(rest corev1.ResourceList, types []*cloudprovider.InstanceType) corev1.ResourceList {
	most := resources.MaxResources(lo.Map(types, func(it *cloudprovider.InstanceType, _ int) corev1.ResourceList { return it.Capacity })...)
	most[resources.Node] = resource.MustParse("1")
	out := corev1.ResourceList{}
	for name, q := range rest {
		q = q.DeepCopy()
		q.Sub(most[name])
		out[name] = q
	}
	return out
}

func dollars(price float64) string { return v1alpha1.PriceFromFloat(price).String() }
