// Package cloudprovider decorates any Karpenter CloudProvider with what
// karpenter-gpu knows about GPUs.
//
// It stands outside of Karpenter's own decorators, gpu(overlay(metrics(inner))), so
// that NodeOverlays are already applied to what it sees. GetInstanceTypes shows
// the NodePools of a GPUPool what their nodes will be: labels of GPU feature
// discovery as requirements, sharing as multiplied capacity, each MIG layout as
// offerings of its own. Create turns a NodeClaim that was decided on that view
// into one that the inner provider understands, and its answer back. See
// designs/0002-layouts-as-offerings.md.
//
// It never changes what it was given or what the inner provider returned:
// everything is copied before it is written. NodePools without a GPUPool see the
// inner types, except that labels which only GPUPools can promise are said not
// to exist there; without that, Karpenter would take them for possible.
package cloudprovider

import (
	"context"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

var _ corecloudprovider.CloudProvider = (*decorator)(nil)

// Options configure the decorator.
type Options struct {
	// Pools are the resolved GPUPools. Needed.
	Pools *pools.Store
	// Reader reads NodePools and NodeClaims, usually from a cache. Needed.
	Reader client.Reader
	// Catalog is what is known about GPUs; the built-in catalogue when nil.
	Catalog *catalog.Catalog
	// PredictAll predicts labels for the NodePools that are in no GPUPool, too.
	PredictAll bool
}

type decorator struct {
	corecloudprovider.CloudProvider
	Options
	memo     *memo
	launches *launches
}

// Decorate returns a CloudProvider that delegates to inner. Errors of inner pass
// through unchanged, so that errors.Is and Karpenter's own predicates keep working.
func Decorate(inner corecloudprovider.CloudProvider, opts Options) corecloudprovider.CloudProvider {
	if opts.Catalog == nil {
		opts.Catalog = catalog.Default()
	}
	return &decorator{CloudProvider: inner, Options: opts, memo: newMemo(), launches: newLaunches()}
}

// GetInstanceTypes returns the inner types as nodes of the NodePool would be.
// Until the NodePool's GPUPool has been evaluated it returns Karpenter's
// UnevaluatedNodePoolError, on which the scheduler passes the NodePool over.
func (d *decorator) GetInstanceTypes(ctx context.Context, nodePool *karpv1.NodePool) ([]*corecloudprovider.InstanceType, error) {
	if !d.Pools.Evaluated(nodePool) {
		return nil, corecloudprovider.NewUnevaluatedNodePoolError(nodePool.Name)
	}
	its, err := d.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if err != nil || len(its) == 0 {
		return its, err
	}
	pool, _ := d.Pools.ForNodePool(nodePool.Name)
	view := d.viewOf(pool, nodePool)
	return d.withhold(view, nodePool, d.show(view, its)), nil
}

// show returns the types as the view has them. Types with GPUs whose inner figures
// have not changed are the same objects as last time; the others are made anew in
// one piece of memory, which is cheaper than to look whether they have changed.
func (d *decorator) show(v *view, its []*corecloudprovider.InstanceType) []*corecloudprovider.InstanceType {
	shown := make([]*corecloudprovider.InstanceType, len(its))
	plain := make([]corecloudprovider.InstanceType, len(its))
	known := d.memo.of(v)
	defer known.release()
	for i, it := range its {
		e := d.entryOf(v, known, it)
		if e.recipe != nil {
			shown[i] = e.recipe.shown(v, it)
			continue
		}
		relabel(it, &plain[i], e.requirements)
		shown[i] = &plain[i]
	}
	return shown
}

// entryOf finds what is to become of a type, or decides it.
func (d *decorator) entryOf(v *view, known *viewMemo, it *corecloudprovider.InstanceType) entry {
	if e, ok := known.get(it); ok {
		return e
	}
	r := newRecipe(v, d.Catalog, it)
	e := entry{name: it.Name, inner: it.Requirements, requirements: r.requirements}
	if r.gpu {
		e.recipe = r
	}
	known.put(it, e)
	return e
}
