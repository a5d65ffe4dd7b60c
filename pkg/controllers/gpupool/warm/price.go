package warm

import (
	"context"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/warm"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// bound lowers the amounts of an entry to what its maxPricePerHour covers. The slots of an
// entry share one budget, in their order. What really is launched is held to the budget by
// the provisioner; here it is decided how much is worth asking for.
//
// Before the provisioner's first round nobody knows which nodes hold what. A buffer that asks
// for some asks for no more until then, and for no less: at today's offers, what is paid for
// might seem too dear.
func (c *Controller) bound(ctx context.Context, d *demand, buffers []*autoscalingv1beta1.CapacityBuffer, members []*karpv1.NodePool) {
	price, ok := d.entry.MaxPrice()
	if !ok {
		return
	}
	budget, short, unpriced, spent := int64(price), 0, 0, v1alpha1.Price(0)
	for _, s := range d.slots {
		if s.rendered() == 0 {
			continue
		}
		space, known := c.Spaces.Of(s.key)
		if asked := asks(buffers, s); !known && asked > 0 {
			more := max(0, s.rendered()-asked)
			s.wanted, unpriced = s.wanted-more, unpriced+more
			continue
		}
		held := lo.Map(space.Nodes, func(n provisioning.HeldNode, _ int) warm.Held {
			return warm.Held{Units: n.Pods, Room: n.Room, Price: int64(n.Price)}
		})
		offers := c.offers(ctx, s, members)
		within := warm.Budget(budget).Bound(s.rendered(), held, offers)
		short += s.rendered() - within
		s.wanted -= s.rendered() - within
		for _, n := range space.Nodes {
			spent = spent.Add(n.Price)
		}
		budget = max(0, int64(price)-int64(spent))
	}
	if d.problem != nil {
		return
	}
	switch {
	case spent > price:
		d.problem = &problem{v1alpha1.ReasonBudgetReached, fmt.Sprintf("the nodes that hold it cost $%s an hour, more than maxPricePerHour=%s; raise it, hold less, or delete the NodeClaim of a node that is too dear", spent, *d.entry.MaxPricePerHour)}
	case short > 0:
		d.problem = &problem{v1alpha1.ReasonBudgetReached, "maxPricePerHour=" + *d.entry.MaxPricePerHour + " does not cover the full amount; raise it, or hold less"}
	case unpriced > 0:
		d.problem = &problem{v1alpha1.ReasonFilling, "no more is asked for until the provisioner has looked at what is held, since maxPricePerHour is to cover both"}
	}
}

// asks is how many virtual pods the buffer of a slot asks for as it stands.
func asks(buffers []*autoscalingv1beta1.CapacityBuffer, s *slot) int {
	b, _ := lo.Find(buffers, func(b *autoscalingv1beta1.CapacityBuffer) bool { return client.ObjectKeyFromObject(b) == s.key })
	if b == nil {
		return 0
	}
	return int(lo.FromPtr(b.Spec.Replicas))
}

// offers are the ways to buy nodes for the virtual pods of a slot, at present.
func (c *Controller) offers(ctx context.Context, s *slot, members []*karpv1.NodePool) (offers []warm.Offer) {
	pod := &corev1.Pod{Spec: s.template.Spec}
	requests := resources.RequestsForPods(pod)
	for _, n := range members {
		its, err := c.CloudProvider.GetInstanceTypes(ctx, n)
		if err != nil {
			log.FromContext(ctx).V(1).Info("leaving out the offers of a nodepool", "NodePool", klog.KObj(n), "error", err.Error())
			continue
		}
		template := n.Spec.Template
		reqs := scheduling.NewNodeSelectorRequirementsWithMinValues(template.Spec.Requirements...)
		reqs.Add(scheduling.NewLabelRequirements(template.Labels).Values()...)
		reqs.Add(scheduling.NewStrictPodRequirements(pod).Values()...)
		for _, it := range its {
			if it.Requirements.Intersects(reqs) == nil {
				offers = append(offers, offersOf(it, reqs, requests)...)
			}
		}
	}
	return offers
}

func offersOf(it *corecloudprovider.InstanceType, reqs scheduling.Requirements, requests corev1.ResourceList) (offers []warm.Offer) {
	for _, group := range it.AllocatableOfferingsList() {
		units := times(requests, group.Allocatable)
		for _, o := range group.Offerings {
			if units > 0 && o.Launchable() && reqs.IsCompatible(o.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
				offers = append(offers, warm.Offer{Units: units, Price: int64(v1alpha1.PriceFromFloat(o.Price))})
			}
		}
	}
	return offers
}

// times is how often requests fit.
func times(requests, allocatable corev1.ResourceList) int {
	least := -1
	for name, q := range requests {
		if q.Sign() <= 0 {
			continue
		}
		have := allocatable[name]
		n := int(max(0, have.MilliValue()) / q.MilliValue())
		if least < 0 || n < least {
			least = n
		}
	}
	return max(0, least)
}
