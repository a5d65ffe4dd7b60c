package provisioning

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// launch is the cheapest way to launch a NodeClaim.
type launch struct {
	it    *cloudprovider.InstanceType
	tier  string
	price float64
}

// cheapest is what a claim costs: the cheapest launchable offering of the first
// capacity type, in the pool's order, that has any. ok is false if none has.
func (t *template) cheapest(types []*cloudprovider.InstanceType, reqs scheduling.Requirements, requests corev1.ResourceList) (launch, bool) {
	best := map[string]launch{}
	for _, it := range types {
		for _, o := range t.launchable(it, reqs, requests) {
			tier := o.CapacityType()
			if b, ok := best[tier]; !ok || o.Price < b.price || o.Price == b.price && it.Name < b.it.Name {
				best[tier] = launch{it: it, tier: tier, price: o.Price}
			}
		}
	}
	for _, tier := range t.pool.tiers {
		if b, ok := best[tier]; ok {
			return b, true
		}
	}
	return launch{}, false
}

// launchable are the offerings of a type that a node with these pods can be
// launched into: in a group whose allocatable holds them, compatible, with capacity.
func (t *template) launchable(it *cloudprovider.InstanceType, reqs scheduling.Requirements, requests corev1.ResourceList) cloudprovider.Offerings {
	load := t.load(it, requests)
	var out cloudprovider.Offerings
	for _, group := range it.AllocatableOfferingsList() {
		if len(group.Offerings) == 0 || !resources.Fits(load, group.Allocatable) {
			continue
		}
		for _, o := range group.Offerings {
			if t.pool.uses(o.CapacityType()) && o.Launchable() && reqs.IsCompatible(o.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
				out = append(out, o)
			}
		}
	}
	return out
}

// charge is the most that a claim can take of the pool's limits, whichever of its
// types and offerings the cloud picks.
type charge struct {
	gpus  int
	price v1alpha1.Price
}

func (c charge) add(d charge) charge {
	return charge{gpus: c.gpus + d.gpus, price: c.price.Add(d.price)}
}

func (r *round) charge(e *entry) charge {
	requests, out := r.requests(e.claim.Pods), charge{}
	for _, it := range e.claim.InstanceTypeOptions {
		c := e.template.chargeOf(it, e.claim.Requirements, requests)
		out = charge{gpus: max(out.gpus, c.gpus), price: max(out.price, c.price)}
	}
	return out
}

func (t *template) chargeOf(it *cloudprovider.InstanceType, reqs scheduling.Requirements, requests corev1.ResourceList) charge {
	worst := 0.0
	for _, o := range t.launchable(it, reqs, requests) {
		worst = max(worst, o.Price)
	}
	return charge{gpus: t.physicalGPUs(it), price: v1alpha1.PriceFromFloat(worst)}
}

// priceOf is what a set of claims costs; +Inf if one cannot be launched.
func (r *round) priceOf(entries []*entry) float64 {
	total := 0.0
	for _, e := range entries {
		l, ok := e.template.cheapest(e.claim.InstanceTypeOptions, e.claim.Requirements, r.requests(e.claim.Pods))
		if !ok {
			return math.Inf(1)
		}
		total += l.price
	}
	return total
}

// holdTo narrows a claim to one capacity type.
func holdTo(c *scheduler.NodeClaim, tier string) {
	c.Requirements.Add(scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, tier))
}

// unused is the least number of physical GPUs that a launch into the type leaves
// without a pod: GPUs less the fewest that hold the largest share of any one GPU
// resource, in the group of offerings where that is least.
func (t *template) unused(it *cloudprovider.InstanceType, reqs scheduling.Requirements, requests corev1.ResourceList) int {
	gpus := t.physicalGPUs(it)
	load, best := t.load(it, requests), gpus
	for _, group := range it.AllocatableOfferingsList() {
		if !resources.Fits(load, group.Allocatable) || !group.Offerings.HasCompatible(reqs) {
			continue
		}
		used := 0
		for name, have := range group.Allocatable {
			want := requests[name]
			if !isGPU(name) || have.Sign() <= 0 || want.Sign() <= 0 {
				continue
			}
			used = max(used, int(math.Ceil(float64(want.Value())*float64(gpus)/float64(have.Value())-1e-9)))
		}
		best = min(best, gpus-used)
	}
	return max(0, best)
}
