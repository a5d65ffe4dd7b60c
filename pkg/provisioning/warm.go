package provisioning

import (
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	stock "sigs.k8s.io/karpenter/pkg/controllers/provisioning"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// warmEntry is the entry of the pool that all of these pods hold space for; nil if one of
// them is work, or of another entry. The labels are those of the template that the entry
// was rendered to.
func (p *pool) warmEntry(pods ...*corev1.Pod) *v1alpha1.WarmCapacity {
	var name string
	for i, pod := range pods {
		entry := pod.Labels[v1alpha1.WarmLabelKey]
		if !stock.IsVirtualPod(pod) || entry == "" || pod.Labels[v1alpha1.PoolLabelKey] != p.Name || i > 0 && entry != name {
			return nil
		}
		name = entry
	}
	for i := range p.Spec.Warm {
		if len(pods) > 0 && p.Spec.Warm[i].Name == name {
			return &p.Spec.Warm[i]
		}
	}
	return nil
}

// order are the capacity types for these pods in the order in which they are tried, and
// whether a NodeClaim for them is held to one. A warm entry has an order of its own, within
// the capacity types of the pool; one that is bounded in price is held to one, since the
// next could cost more than is left.
func (p *pool) order(pods ...*corev1.Pod) (tiers []string, held bool) {
	entry := p.warmEntry(pods...)
	if entry == nil {
		return p.tiers, p.holds()
	}
	if len(entry.CapacityTypes) > 0 {
		return lo.Map(entry.CapacityTypes, func(t v1alpha1.CapacityType, _ int) string { return string(t) }), true
	}
	_, bounded := entry.MaxPrice()
	return p.tiers, bounded || p.holds()
}

// withinWarmPrices lets through the claims for which the maxPricePerHour of their warm
// entries has room beside what is held. A claim that carries work as well is launched in
// any case: the work needs it. The claims returned are copies where types had to be taken
// out to make them fit.
func (r *round) withinWarmPrices(p *pool, entries []*entry) (kept, refused []*entry) {
	if !lo.SomeBy(p.Spec.Warm, func(w v1alpha1.WarmCapacity) bool { return w.MaxPricePerHour != nil }) {
		return entries, nil
	}
	spent := r.heldByWarm(p)
	for _, e := range entries {
		warm := p.warmEntry(e.claim.Pods...)
		if warm == nil || warm.MaxPricePerHour == nil {
			kept = append(kept, e)
			continue
		}
		limit, ok := warm.MaxPrice()
		fit := &entry{claim: copyClaim(e.claim), template: e.template}
		if ok {
			r.holdCapacityType(fit)
			r.affordable(fit, limit.Sub(spent[warm.Name]))
		}
		if ok && len(fit.claim.InstanceTypeOptions) == 0 {
			e.refusal = r.overWarmPrice(p, warm, e, spent[warm.Name])
			refused = append(refused, e)
			continue
		}
		spent[warm.Name] = spent[warm.Name].Add(r.charge(fit).price)
		kept = append(kept, fit)
	}
	return kept, refused
}

// affordable leaves the types of a claim that cost at most so much; none if minValues
// cannot be kept with them.
func (r *round) affordable(e *entry, most v1alpha1.Price) {
	requests := r.requests(e.claim.Pods)
	types := lo.Filter(e.claim.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) bool {
		return e.template.chargeOf(it, e.claim.Requirements, requests).price <= most
	})
	if _, _, err := types.SatisfiesMinValues(e.claim.Requirements); err != nil {
		types = nil
	}
	e.claim.InstanceTypeOptions = types
}

// heldByWarm is what the entries of a pool pay for the nodes that hold their space, by name.
func (r *round) heldByWarm(p *pool) map[string]v1alpha1.Price {
	spent := map[string]v1alpha1.Price{}
	for _, n := range r.results.ExistingNodes {
		price := r.chargeOfNode(n, p).price
		for name, pods := range lo.GroupBy(n.Pods, func(pod *corev1.Pod) string {
			if entry := p.warmEntry(pod); entry != nil {
				return entry.Name
			}
			return ""
		}) {
			if name != "" {
				spent[name] = spent[name].Add(share(price, gpuUnits(pods), unitsInUse(n)))
			}
		}
	}
	return spent
}

// overWarmPrice says that the price of a warm entry holds a claim back.
func (r *round) overWarmPrice(p *pool, warm *v1alpha1.WarmCapacity, e *entry, spent v1alpha1.Price) *Refusal {
	out := &Refusal{Pool: p.Name, Kind: RefusedWarmPrice}
	what := "nothing can be launched for it now"
	if l, ok := e.template.cheapest(e.claim.InstanceTypeOptions, e.claim.Requirements, r.requests(e.claim.Pods)); ok {
		out.Type, out.Price = l.it.Name, l.price
		what = fmt.Sprintf("the cheapest launch for it, %s (%s), costs $%s", l.it.Name, l.tier, dollars(l.price))
	}
	out.Message = fmt.Sprintf("the warm entry %s spends $%s of maxPricePerHour=%s, and %s; raise maxPricePerHour, or hold less", warm.Name, spent, lo.FromPtr(warm.MaxPricePerHour), what)
	return out
}
