package provisioning

import (
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// obey narrows stock's claims to what their pool allows. It never widens a claim.
func (r *round) obey() {
	for _, e := range r.entries {
		if e.template == nil {
			continue
		}
		r.leaveGPUs(e)
		r.holdCapacityType(e)
		if e.template.pool.bounded() {
			r.trim(e, e.template.pool.tolerance)
		}
		r.capUnused(e)
	}
}

// leaveGPUs takes accelerated types out of a claim whose pods ask for none, where
// another type can be launched. minValues gives way: to fill up a number of types,
// the cloud would be free to pick a GPU node.
func (r *round) leaveGPUs(e *entry) {
	requests := r.requests(e.claim.Pods)
	if asksGPU(requests) {
		return
	}
	plain := lo.Reject(e.claim.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) bool { return r.gpus().accelerated(it) })
	if len(plain) == len(e.claim.InstanceTypeOptions) {
		return
	}
	if _, ok := e.template.cheapest(plain, e.claim.Requirements, requests); !ok {
		return
	}
	e.claim.InstanceTypeOptions = plain
	_, short, err := plain.SatisfiesMinValues(e.claim.Requirements)
	if err == nil {
		return
	}
	for key, n := range short {
		q := e.claim.Requirements.Get(key)
		e.claim.Requirements[key] = copyRequirement(q)
		e.claim.Requirements[key].SetMinValues(n)
	}
	if e.claim.Annotations == nil {
		e.claim.Annotations = map[string]string{}
	}
	e.claim.Annotations[karpv1.NodeClaimMinValuesRelaxedAnnotationKey] = "true"
}

func copyRequirement(q *scheduling.Requirement) *scheduling.Requirement {
	out := &scheduling.Requirement{}
	q.DeepCopyInto(out)
	return out
}

// holdCapacityType narrows a claim to the first capacity type of the order in which
// it can be launched with all its minValues.
func (r *round) holdCapacityType(e *entry) {
	tiers, held := e.template.pool.order(e.claim.Pods...)
	if !held {
		return
	}
	requests := r.requests(e.claim.Pods)
	for _, tier := range tiers {
		types := lo.Filter(e.claim.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) bool {
			return lo.SomeBy(e.template.launchable(it, e.claim.Requirements, requests), func(o *cloudprovider.Offering) bool { return o.CapacityType() == tier })
		})
		if _, _, err := types.SatisfiesMinValues(e.claim.Requirements); len(types) == 0 || err != nil {
			continue
		}
		e.claim.InstanceTypeOptions = types
		holdTo(e.claim, tier)
		return
	}
}

// trim leaves the types of a claim that cost at most factor times the cheapest, so
// that what the claim can cost at worst is near what it should cost.
func (r *round) trim(e *entry, factor float64) {
	requests := r.requests(e.claim.Pods)
	best, ok := e.template.cheapest(e.claim.InstanceTypeOptions, e.claim.Requirements, requests)
	if !ok {
		return
	}
	kept := lo.Filter(e.claim.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) bool {
		return lo.SomeBy(e.template.launchable(it, e.claim.Requirements, requests), func(o *cloudprovider.Offering) bool {
			return o.CapacityType() == best.tier && o.Price <= best.price*factor+1e-9
		})
	})
	if _, _, err := kept.SatisfiesMinValues(e.claim.Requirements); err == nil {
		e.claim.InstanceTypeOptions = kept
	}
}

// capUnused takes out the types that would leave more GPUs unused than the pool
// allows, and refuses the claim if all would.
func (r *round) capUnused(e *entry) {
	limit := e.template.pool.maxUnused()
	if limit == nil {
		return
	}
	requests := r.requests(e.claim.Pods)
	kept := lo.Filter(e.claim.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) bool {
		return e.template.unused(it, e.claim.Requirements, requests) <= *limit
	})
	if len(kept) > 0 {
		e.claim.InstanceTypeOptions = kept
		return
	}
	e.refusal = r.oversize(e, requests, *limit)
}

// oversize describes the cheapest launch that the cap refuses.
func (r *round) oversize(e *entry, requests corev1.ResourceList, limit int) *Refusal {
	out := &Refusal{Pool: e.template.pool.Name, Kind: RefusedOversize}
	best, ok := e.template.cheapest(e.claim.InstanceTypeOptions, e.claim.Requirements, requests)
	if !ok {
		out.Message = fmt.Sprintf("every launch leaves more than spec.selection.maxUnusedGPUs=%d GPUs of GPUPool %s unused", limit, out.Pool)
		return out
	}
	gpus := e.template.physicalGPUs(best.it)
	out.Type, out.Price = best.it.Name, best.price
	out.Message = fmt.Sprintf("waiting: the cheapest launch, %s (%s) at $%s per hour, leaves %d of %d GPUs unused and spec.selection.maxUnusedGPUs of GPUPool %s is %d; raise it, or let more pods share the node",
		out.Type, best.tier, dollars(best.price), e.template.unused(best.it, e.claim.Requirements, requests), gpus, out.Pool, limit)
	return out
}

// launchableEntries are those that no rule refuses.
func launchableEntries(entries []*entry) []*entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return e.refusal != nil })
}
