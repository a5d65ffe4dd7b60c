package readiness

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
)

// typeZone is what a launch can choose: the image follows from the NodeClass.
type typeZone struct{ instanceType, zone string }

func avoidedSet(list []trials.Avoidance) map[typeZone]bool {
	set := map[typeZone]bool{}
	for _, a := range list {
		set[typeZone{a.InstanceType, a.Zone}] = true
	}
	return set
}

// without returns the types with the matching offerings unavailable. Types that have none
// are the inner provider's own; the others are copied as far as they differ.
func without(its []*corecloudprovider.InstanceType, avoided func(instanceType, zone string) bool) []*corecloudprovider.InstanceType {
	out := make([]*corecloudprovider.InstanceType, len(its))
	for i, it := range its {
		out[i] = it
		if slices.ContainsFunc(it.Offerings, func(o *corecloudprovider.Offering) bool { return o.Available && avoided(it.Name, o.Zone()) }) {
			out[i] = copyWith(it, lo.Map(it.Offerings, func(o *corecloudprovider.Offering, _ int) *corecloudprovider.Offering {
				if !o.Available || !avoided(it.Name, o.Zone()) {
					return o
				}
				closed := *o
				closed.Available = false
				return &closed
			}))
		}
	}
	return out
}

// copyWith copies a type but for its offerings and for what Karpenter computed from them.
// Maps are shared: nobody writes to them.
func copyWith(it *corecloudprovider.InstanceType, offerings corecloudprovider.Offerings) *corecloudprovider.InstanceType {
	out := &corecloudprovider.InstanceType{
		Name: it.Name, Requirements: it.Requirements, Offerings: offerings, Capacity: it.Capacity,
		VolumeAttachmentLimits: it.VolumeAttachmentLimits, DynamicResources: it.DynamicResources, Overhead: it.Overhead,
	}
	if it.IsCapacityOverlayApplied() {
		out.ApplyCapacityOverlay(nil)
	}
	return out
}

// avoid narrows a NodeClaim that is about to be launched. The scheduler saw the offerings
// that are set aside as unavailable, and still allows their zone with another type and their
// type in another zone, while the provider chooses freely among all pairs. Types go first,
// then zones; what would leave nothing, or fewer values than the NodeClaim must keep, stays.
func (p *Provider) avoid(ctx context.Context, nodeClaim *karpv1.NodeClaim) error {
	if nodeClaim.Spec.NodeClassRef == nil {
		return nil
	}
	set := avoidedSet(p.book.Avoided(nodeClaim.Spec.NodeClassRef.Name))
	if len(set) == 0 {
		return nil
	}
	pairs, err := p.launchable(ctx, nodeClaim)
	if err != nil {
		return err
	}
	for _, side := range []struct {
		key   string
		value func(typeZone) string
	}{
		{corev1.LabelInstanceTypeStable, func(t typeZone) string { return t.instanceType }},
		{corev1.LabelTopologyZone, func(t typeZone) string { return t.zone }},
	} {
		bad, good := split(pairs, set, side.value)
		if len(bad) == 0 || len(good) > 0 && narrow(nodeClaim, side.key, slices.Sorted(maps.Keys(good))) {
			return nil
		}
	}
	return nil
}

// split parts the values of one side into those that stand in a pair that is set aside and
// the rest.
func split(pairs, avoided map[typeZone]bool, value func(typeZone) string) (bad, good map[string]bool) {
	bad, good = map[string]bool{}, map[string]bool{}
	for pair := range pairs {
		if avoided[pair] {
			bad[value(pair)] = true
		}
	}
	for pair := range pairs {
		if v := value(pair); !bad[v] {
			good[v] = true
		}
	}
	return bad, good
}

// launchable lists the pairs that the provider may choose from.
func (p *Provider) launchable(ctx context.Context, nodeClaim *karpv1.NodeClaim) (map[typeZone]bool, error) {
	nodePool := &karpv1.NodePool{}
	if err := p.reader.Get(ctx, types.NamespacedName{Name: nodeClaim.Labels[karpv1.NodePoolLabelKey]}, nodePool); err != nil {
		if client.IgnoreNotFound(err) == nil { // a NodeClaim of its own, or a NodePool that has gone
			return nil, nil
		}
		return nil, fmt.Errorf("getting node pool, %w", err)
	}
	its, err := p.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return nil, fmt.Errorf("getting instance types, %w", err)
	}
	reqs := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)
	pairs := map[typeZone]bool{}
	for _, it := range its {
		if reqs.Intersects(it.Requirements) != nil {
			continue
		}
		for _, o := range it.Offerings.Available().Compatible(reqs) {
			pairs[typeZone{it.Name, o.Zone()}] = true
		}
	}
	return pairs, nil
}

// narrow replaces the values of a key, unless the NodeClaim demands more of them.
func narrow(nodeClaim *karpv1.NodeClaim, key string, values []string) bool {
	for _, r := range nodeClaim.Spec.Requirements {
		if r.Key == key && lo.FromPtr(r.MinValues) > len(values) {
			return false
		}
	}
	var kept []karpv1.NodeSelectorRequirementWithMinValues
	var minValues *int
	for _, r := range nodeClaim.Spec.Requirements {
		if r.Key != key {
			kept = append(kept, r)
		} else if r.MinValues != nil {
			minValues = r.MinValues
		}
	}
	nodeClaim.Spec.Requirements = append(kept, karpv1.NodeSelectorRequirementWithMinValues{
		Key: key, Operator: corev1.NodeSelectorOpIn, Values: values, MinValues: minValues,
	})
	return true
}
