package provisioning

import (
	"context"
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning/ice"
)

// GuardOptions are what Guard needs besides a CloudProvider.
type GuardOptions struct {
	Client client.Client
	Clock  clock.PassiveClock
	Ledger *Ledger
	// Quota reports whether an error of Create says that the account may not buy more,
	// as opposed to the cloud having none to sell. Nil: no error does.
	Quota func(error) bool
}

// guard is the outermost CloudProvider. For NodePools of a pool it offers no capacity
// type that the pool does not use and no offering that pauses after failed launches,
// and it launches nothing that would pass a limit of the pool, whoever asked for it:
// replacements by disruption and static NodePools do not come by the Provisioner.
type guard struct {
	cloudprovider.CloudProvider
	GuardOptions
	memory *ice.Memory
}

var _ cloudprovider.CloudProvider = (*guard)(nil)

// Guard decorates a CloudProvider. NodePools without a pool get what inner answers.
func Guard(inner cloudprovider.CloudProvider, o GuardOptions) cloudprovider.CloudProvider {
	return &guard{CloudProvider: inner, GuardOptions: o, memory: ice.New(o.Clock)}
}

// GetInstanceTypes copies what it changes: the types of inner stay as they are.
func (g *guard) GetInstanceTypes(ctx context.Context, nodePool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	types, err := g.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return types, err
	}
	if p := g.pool(ctx, nodePool); p != nil && (p.ordered || g.memory.Any()) {
		types = lo.Map(types, func(it *cloudprovider.InstanceType, _ int) *cloudprovider.InstanceType { return g.withhold(p, it) })
	}
	note(ctx, nodePool, types)
	return types, nil
}

// pool is that of a NodePool; nil if none, or if it cannot be read, which the next
// round will find to be better or no better.
func (g *guard) pool(ctx context.Context, nodePool *karpv1.NodePool) *pool {
	if nodePool == nil || nodePool.Labels[v1alpha1.PoolLabelKey] == "" {
		return nil
	}
	p := &v1alpha1.GPUPool{}
	if err := g.Client.Get(ctx, client.ObjectKey{Name: nodePool.Labels[v1alpha1.PoolLabelKey]}, p); err != nil {
		log.FromContext(ctx).V(1).Info("treating nodepool as stock, cannot read its gpu pool", "NodePool", klog.KObj(nodePool), "error", err.Error())
		return nil
	}
	if p.RuntimeValidate(nil) != nil {
		return nil
	}
	return newPool(p)
}

func (g *guard) withhold(p *pool, it *cloudprovider.InstanceType) *cloudprovider.InstanceType {
	hide := func(o *cloudprovider.Offering) bool {
		return o.Available && (!p.uses(o.CapacityType()) || g.memory.Pausing(offeringOf(it, o)))
	}
	if !slices.ContainsFunc(it.Offerings, hide) {
		return it
	}
	out := &cloudprovider.InstanceType{Name: it.Name, Requirements: it.Requirements, Capacity: it.Capacity, VolumeAttachmentLimits: it.VolumeAttachmentLimits,
		DynamicResources: it.DynamicResources, Overhead: it.Overhead}
	out.Offerings = lo.Map(it.Offerings, func(o *cloudprovider.Offering, _ int) *cloudprovider.Offering {
		if !hide(o) {
			return o
		}
		hidden := *o
		hidden.Available = false
		return &hidden
	})
	if it.IsCapacityOverlayApplied() {
		out.ApplyCapacityOverlay(nil)
	}
	return out
}

func offeringOf(it *cloudprovider.InstanceType, o *cloudprovider.Offering) ice.Offering {
	return ice.Offering{Type: it.Name, Zone: o.Zone(), CapacityType: o.CapacityType()}
}

// Create refuses a NodeClaim for which its pool has no room, as lack of capacity:
// Karpenter then removes the NodeClaim and decides anew.
func (g *guard) Create(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	nodePool := &karpv1.NodePool{}
	if name := nodeClaim.Labels[karpv1.NodePoolLabelKey]; name == "" || g.Client.Get(ctx, client.ObjectKey{Name: name}, nodePool) != nil {
		return g.CloudProvider.Create(ctx, nodeClaim)
	}
	p := g.pool(ctx, nodePool)
	if p == nil {
		return g.CloudProvider.Create(ctx, nodeClaim)
	}
	if err := g.room(ctx, p, nodeClaim); err != nil {
		return nil, err
	}
	before := g.offered(ctx, nodePool, nodeClaim)
	created, err := g.CloudProvider.Create(ctx, nodeClaim)
	switch {
	case err == nil:
		g.memory.Succeeded(ice.Offering{Type: created.Labels[corev1.LabelInstanceTypeStable], Zone: created.Labels[corev1.LabelTopologyZone],
			CapacityType: created.Labels[karpv1.CapacityTypeLabelKey]})
	case readiness.IsHeldBack(err): // no offering is at fault
	case cloudprovider.IsInsufficientCapacityError(err):
		g.remember(ctx, before, g.offered(ctx, nodePool, nodeClaim), err)
	}
	return created, err
}

// offered are the offerings that a NodeClaim could be launched into now.
func (g *guard) offered(ctx context.Context, nodePool *karpv1.NodePool, nodeClaim *karpv1.NodeClaim) map[ice.Offering]bool {
	out := map[ice.Offering]bool{}
	types, err := g.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return out
	}
	reqs := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)
	for _, it := range types {
		if it.Requirements.Intersects(reqs) != nil {
			continue
		}
		for _, o := range it.Offerings {
			if o.Launchable() && reqs.IsCompatible(o.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
				out[offeringOf(it, o)] = true
			}
		}
	}
	return out
}

// remember notes the offerings that the provider itself has marked as out; where it
// marked none, all that the NodeClaim could have had.
func (g *guard) remember(ctx context.Context, before, after map[ice.Offering]bool, err error) {
	failed := lo.Filter(lo.Keys(before), func(o ice.Offering, _ int) bool { return !after[o] })
	if len(failed) == 0 {
		failed = lo.Keys(before)
	}
	reason := "Capacity"
	if g.Quota != nil && g.Quota(err) {
		reason = "Quota"
	}
	g.memory.Failed(failed...)
	failedOfferings.Add(float64(len(failed)), map[string]string{reasonLabel: reason})
	log.FromContext(ctx).V(1).Info("setting offerings aside", "offerings", len(failed), "reason", reason)
}

// room checks the limits with everything that the pool has, and those of its
// NodeClaims that were created earlier than this one: of two that compete for the
// last room, the first gets it.
func (g *guard) room(ctx context.Context, p *pool, nodeClaim *karpv1.NodeClaim) error {
	if !p.bounded() {
		return nil
	}
	var nodePools karpv1.NodePoolList
	if err := g.Client.List(ctx, &nodePools, client.MatchingLabels{v1alpha1.PoolLabelKey: p.Name}); err != nil {
		return fmt.Errorf("listing nodepools of gpu pool %s, %w", p.Name, err)
	}
	types, err := g.typesOf(ctx, nodePools.Items, nodeClaim.Labels[karpv1.NodePoolLabelKey])
	if err != nil {
		return err
	}
	claims, err := g.Ledger.nodeClaims(ctx, lo.MapValues(types, func([]*cloudprovider.InstanceType, string) bool { return true }))
	if err != nil {
		return err
	}
	used, _ := g.Ledger.chargeOfClaim(nodeClaim, types[nodeClaim.Labels[karpv1.NodePoolLabelKey]], p.Spec.Partitioning)
	for i, n := range claims {
		if n.Name == nodeClaim.Name || n.Labels[corev1.LabelInstanceTypeStable] == "" && i > indexOf(claims, nodeClaim) {
			continue
		}
		c, _ := g.Ledger.chargeOfClaim(n, types[n.Labels[karpv1.NodePoolLabelKey]], p.Spec.Partitioning)
		used = used.add(c)
	}
	if refusal := over(p, used); refusal != nil {
		return cloudprovider.NewInsufficientCapacityError(fmt.Errorf("launching would bring GPUPool %s to %d GPUs and $%s per hour, over its limits (%s)", p.Name, used.gpus, used.price, refusal.Kind))
	}
	return nil
}

// typesOf gets the instance types of each NodePool. One that has none to give is
// without types, unless it is the needed one.
func (g *guard) typesOf(ctx context.Context, nodePools []karpv1.NodePool, needed string) (map[string][]*cloudprovider.InstanceType, error) {
	types := map[string][]*cloudprovider.InstanceType{}
	for i := range nodePools {
		its, err := g.CloudProvider.GetInstanceTypes(ctx, &nodePools[i])
		if err != nil && nodePools[i].Name == needed {
			return nil, fmt.Errorf("getting instance types, %w", err)
		}
		types[nodePools[i].Name] = its
	}
	return types, nil
}

func indexOf(claims []*karpv1.NodeClaim, n *karpv1.NodeClaim) int {
	i := slices.IndexFunc(claims, func(c *karpv1.NodeClaim) bool { return c.Name == n.Name })
	if i < 0 {
		return len(claims)
	}
	return i
}
