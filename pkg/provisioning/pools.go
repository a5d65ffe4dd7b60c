package provisioning

import (
	"context"
	"fmt"
	"slices"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// pool is a GPUPool as the choice of nodes sees it.
type pool struct {
	*v1alpha1.GPUPool
	// tiers are the capacity types in the order in which they are tried.
	tiers []string
	// ordered says that the order is the user's, so that NodeClaims are held to one
	// capacity type and others are not used.
	ordered bool
	// tolerance is a factor on the price, 1 or more.
	tolerance float64
}

// launchOrder is how Karpenter's providers choose the capacity type of a NodeClaim
// that allows several.
var launchOrder = []string{karpv1.CapacityTypeReserved, karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand}

func newPool(p *v1alpha1.GPUPool) *pool {
	out := &pool{GPUPool: p, tiers: launchOrder, tolerance: 1 + float64(p.Spec.Selection.GetPriceTolerancePercent())/100}
	if order := p.Spec.Selection.CapacityTypes; len(order) > 0 {
		out.ordered = true
		out.tiers = lo.Map(order, func(t v1alpha1.CapacityType, _ int) string { return string(t) })
	}
	return out
}

func (p *pool) repacks() bool { return p.Spec.Selection.GetObjective() == v1alpha1.ObjectiveCost }

func (p *pool) uses(capacityType string) bool {
	return !p.ordered || slices.Contains(p.tiers, capacityType)
}

// maxUnused is the cap on unused GPUs; nil is none.
func (p *pool) maxUnused() *int {
	if p.Spec.Selection.MaxUnusedGPUs == nil {
		return nil
	}
	return lo.ToPtr(int(*p.Spec.Selection.MaxUnusedGPUs))
}

// holds says whether each NodeClaim is held to one capacity type: to keep the user's
// order, or because the next one could cost more than the limit has room for.
func (p *pool) holds() bool {
	_, price := p.Spec.Limits.Price()
	return p.ordered || price
}

// bounded says whether the pool has a limit.
func (p *pool) bounded() bool {
	_, price := p.Spec.Limits.Price()
	return price || p.Spec.Limits.GPUs != nil
}

// listPools reads the valid GPUPools by name. Where the API is not installed there
// are none; an invalid pool is left out, so that its NodePools are stock's.
func listPools(ctx context.Context, c client.Reader) (map[string]*pool, error) {
	var list v1alpha1.GPUPoolList
	if err := c.List(ctx, &list); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("listing gpu pools, %w", err)
	}
	out := make(map[string]*pool, len(list.Items))
	for i := range list.Items {
		p := &list.Items[i]
		if err := p.RuntimeValidate(nil); err != nil {
			log.FromContext(ctx).V(1).Info("ignoring gpu pool, invalid", "GPUPool", klog.KObj(p), "error", err.Error())
			continue
		}
		out[p.Name] = newPool(p)
	}
	return out, nil
}

// poolOf is the pool that a NodePool has joined; nil if none or not a valid one.
func poolOf(nodePool *karpv1.NodePool, pools map[string]*pool) *pool {
	if nodePool == nil {
		return nil
	}
	return pools[nodePool.Labels[v1alpha1.PoolLabelKey]]
}
