package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

var noLayout mig.NodeLayout

// Create launches a NodeClaim. In a GPUPool it chooses the layout that the
// requests fit, lets the inner provider launch types on which it does, and
// returns the labels, capacity and allocatable that the node will have.
func (d *decorator) Create(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	nodePool, err := d.nodePoolOf(ctx, nodeClaim)
	if err != nil {
		return nil, err
	}
	pool, ok := d.Pools.ForNodeClaim(nodeClaim)
	v := d.viewOf(pool, nodePool)
	if !ok {
		return d.createOutside(ctx, v, nodePool, nodeClaim)
	}
	its, err := d.typesFor(ctx, v, nodePool)
	if err != nil {
		return nil, err
	}
	choice, err := d.chooseWithin(ctx, pool, nodePool, its, nodeClaim)
	if err != nil {
		return nil, corecloudprovider.NewInsufficientCapacityError(fmt.Errorf("choosing instance types of gpu pool %s, %w", pool.Name(), err))
	}
	created, err := d.CloudProvider.Create(ctx, rewrite(pool, choice, nodeClaim))
	if err != nil || created == nil {
		d.launches.set(nodeClaim, 0)
		return created, err
	}
	d.launches.set(nodeClaim, choice.gpusOf(created))
	return hydrate(pool, choice, nodeClaim, created), nil
}

// createOutside launches for a NodePool in no GPUPool. The inner provider does it
// all, but for two things. A predicted label that the NodePool requires is one of
// the user's own, which Karpenter would have put on the NodeClaim, had we not made
// the key well-known. And with prediction for all NodePools, the predicted labels
// belong on the node.
func (d *decorator) createOutside(ctx context.Context, v *view, nodePool *karpv1.NodePool, nodeClaim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	own := ownLabels(v, nodeClaim)
	launch := nodeClaim
	if len(own) > 0 {
		launch = nodeClaim.DeepCopy()
		launch.Labels = lo.Assign(launch.Labels, own)
	}
	created, err := d.CloudProvider.Create(ctx, launch)
	if err != nil || created == nil || len(own) == 0 && !v.predict {
		return created, err
	}
	created = created.DeepCopy()
	created.Labels = lo.Assign(created.Labels, own)
	if !v.predict || nodePool == nil {
		return created, nil
	}
	shape, ok := d.Catalog.Shape(created.Labels[corev1.LabelInstanceTypeStable])
	if !ok || !shape.HasGPU() {
		return created, nil
	}
	r := &recipe{shape: shape}
	r.whole(v, (&pools.Pool{}).State(shape, noLayout))
	created.Labels = lo.Assign(created.Labels, lo.OmitBy(r.labels, func(key, _ string) bool { return v.settled[key] }))
	return created, nil
}

func ownLabels(v *view, nodeClaim *karpv1.NodeClaim) map[string]string {
	own := map[string]string{}
	for _, r := range nodeClaim.Spec.Requirements {
		if _, has := nodeClaim.Labels[r.Key]; v.settled[r.Key] && !has && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) > 0 {
			own[r.Key] = slices.Min(r.Values)
		}
	}
	return own
}

// nodePoolOf returns the NodePool of a NodeClaim. A standalone NodeClaim gets one of
// its own, so that the inner provider finds the NodeClass; nil if it names no pool.
func (d *decorator) nodePoolOf(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*karpv1.NodePool, error) {
	name, ok := nodeClaim.Labels[karpv1.NodePoolLabelKey]
	if !ok {
		return standalone(nodeClaim), nil
	}
	nodePool := &karpv1.NodePool{}
	if err := d.Reader.Get(ctx, types.NamespacedName{Name: name}, nodePool); err != nil {
		return nil, corecloudprovider.NewCreateError(fmt.Errorf("getting nodepool %s, %w", name, err), "NodePoolResolutionFailed", "Error getting the NodePool")
	}
	if !d.Pools.Evaluated(nodePool) {
		return nil, corecloudprovider.NewCreateError(fmt.Errorf("gpu pool %s of nodepool %s has not been evaluated yet", nodePool.Labels[v1alpha1.PoolLabelKey], name),
			"GPUPoolNotEvaluated", "Waiting for the GPUPool to be evaluated")
	}
	return nodePool, nil
}

func standalone(nodeClaim *karpv1.NodeClaim) *karpv1.NodePool {
	if nodeClaim.Labels[v1alpha1.PoolLabelKey] == "" {
		return nil
	}
	nodePool := &karpv1.NodePool{}
	nodePool.Labels = map[string]string{v1alpha1.PoolLabelKey: nodeClaim.Labels[v1alpha1.PoolLabelKey]}
	nodePool.Spec.Template.Spec.NodeClassRef = nodeClaim.Spec.NodeClassRef
	return nodePool
}

// plain is the recipe of types without GPUs.
var plain = &recipe{replicas: 1}

// typed is a shown type with the recipe that it was made by.
type typed struct {
	*corecloudprovider.InstanceType
	recipe   *recipe
	variants []*variant
	// hidden says that the inner provider does not know of the type's GPUs.
	hidden bool
}

// typesFor returns the types of a NodePool as GetInstanceTypes does, with recipes.
func (d *decorator) typesFor(ctx context.Context, v *view, nodePool *karpv1.NodePool) ([]typed, error) {
	inner, err := d.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return nil, corecloudprovider.NewCreateError(fmt.Errorf("getting instance types, %w", err), "InstanceTypeResolutionFailed", "Error resolving instance types")
	}
	shown := d.withhold(v, nodePool, d.show(v, inner))
	known := d.memo.of(v)
	defer known.release()
	return lo.Map(shown, func(it *corecloudprovider.InstanceType, i int) typed {
		r := d.entryOf(v, known, inner[i]).recipe
		if r == nil {
			return typed{InstanceType: it, recipe: plain}
		}
		gpus := inner[i].Capacity[v1alpha1.ResourceGPU]
		return typed{InstanceType: it, recipe: r, variants: r.variantsFor(v, inner[i]), hidden: gpus.IsZero()}
	}), nil
}

// rewrite returns the NodeClaim that the inner provider gets: only types that were
// chosen, no requests that it could not see met, and the labels by which the
// node's software divides its GPUs.
func rewrite(pool *pools.Pool, c *choice, nodeClaim *karpv1.NodeClaim) *karpv1.NodeClaim {
	launch := nodeClaim.DeepCopy()
	launch.Labels = lo.Assign(launch.Labels, c.labels(pool))
	launch.Spec.Resources.Requests = lo.OmitBy(launch.Spec.Resources.Requests, func(name corev1.ResourceName, _ resource.Quantity) bool { return isNVIDIA(name) })
	kept := lo.Filter(launch.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues, _ int) bool {
		return r.Key != corev1.LabelInstanceTypeStable && r.Key != v1alpha1.LayoutLabelKey
	})
	types := karpv1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: c.names()}
	for _, r := range launch.Spec.Requirements {
		if r.Key == corev1.LabelInstanceTypeStable && r.MinValues != nil {
			types.MinValues = lo.ToPtr(max(*r.MinValues, lo.FromPtr(types.MinValues)))
		}
	}
	launch.Spec.Requirements = append(kept, types)
	return launch
}

// hydrate returns the inner provider's answer with what it does not know.
func hydrate(pool *pools.Pool, c *choice, nodeClaim, created *karpv1.NodeClaim) *karpv1.NodeClaim {
	created = created.DeepCopy()
	created.Labels = lo.Assign(created.Labels, c.labels(pool))
	chosen, ok := c.byName[created.Labels[corev1.LabelInstanceTypeStable]]
	if !ok {
		return created
	}
	created.Labels = lo.Assign(created.Labels, lo.OmitBy(chosen.predicted(), func(key, _ string) bool { return lo.HasKey(nodeClaim.Labels, key) }))
	if !chosen.recipe.gpu {
		return created
	}
	offered := nvidia(chosen.Capacity)
	if chosen.variant != nil {
		offered = lo.Assign(offered, chosen.variant.override)
	}
	created.Status.Capacity = replace(created.Status.Capacity, offered)
	created.Status.Allocatable = replace(created.Status.Allocatable, offered)
	return created
}

// replace returns a list with other GPUs, replicas and partitions. Zeros are left
// out, as the provider leaves them out.
func replace(list, offered corev1.ResourceList) corev1.ResourceList {
	list = lo.OmitBy(list, func(name corev1.ResourceName, _ resource.Quantity) bool { return isNVIDIA(name) })
	return lo.Assign(list, lo.OmitBy(offered, func(_ corev1.ResourceName, q resource.Quantity) bool { return resources.IsZero(q) }))
}

var errNothingFits = errors.New("no instance type with a launchable offering fits")

func requirementsOf(nodeClaim *karpv1.NodeClaim) scheduling.Requirements {
	return scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)
}
