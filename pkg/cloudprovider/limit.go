package cloudprovider

import (
	"context"
	"fmt"
	"math"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

// launches are the launches of this process that count towards a NodePool's limit
// on nvidia.com/gpu and that the cache may not show yet.
type launches struct {
	mu    sync.Mutex
	byUID map[types.UID]launch
}

type launch struct {
	nodePool string
	gpus     int
}

func newLaunches() *launches { return &launches{byUID: map[types.UID]launch{}} }

// set replaces what a NodeClaim counts for; 0 forgets it.
func (l *launches) set(nodeClaim *karpv1.NodeClaim, gpus int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gpus == 0 {
		delete(l.byUID, nodeClaim.UID)
		return
	}
	if old, ok := l.byUID[nodeClaim.UID]; ok {
		l.byUID[nodeClaim.UID] = launch{old.nodePool, gpus}
	}
}

// chooseWithin chooses and holds the choice against the NodePool's own limit.
// Karpenter has held the claim against what nodes show, and two claims of one
// round only against each other; here every NodeClaim counts with its physical
// GPUs, one under way with the most that it may get.
func (d *decorator) chooseWithin(ctx context.Context, pool *pools.Pool, nodePool *karpv1.NodePool, its []typed, nodeClaim *karpv1.NodeClaim) (*choice, error) {
	allowed, ok := nodePool.Spec.Limits[v1alpha1.ResourceGPU]
	if !ok || !hidesGPUs(pool) {
		return choose(its, math.MaxInt32, nodeClaim)
	}
	d.launches.mu.Lock()
	defer d.launches.mu.Unlock()
	used, err := d.usedGPUs(ctx, nodePool, nodeClaim)
	if err != nil {
		return nil, err
	}
	c, err := choose(its, int(allowed.Value())-used, nodeClaim)
	if _, without := choose(its, math.MaxInt32, nodeClaim); without != nil {
		return nil, without
	}
	if err != nil {
		return nil, fmt.Errorf("%w; limits[%s] of nodepool %s allows %s physical GPUs, of which %d are in use or on their way",
			err, v1alpha1.ResourceGPU, nodePool.Name, allowed.String(), used)
	}
	d.launches.byUID[nodeClaim.UID] = launch{nodePool.Name, c.mostGPUs()}
	return c, nil
}

// usedGPUs counts the NodePool's other NodeClaims: launched ones by their type,
// ones under way by what was chosen for them.
func (d *decorator) usedGPUs(ctx context.Context, nodePool *karpv1.NodePool, self *karpv1.NodeClaim) (int, error) {
	var list karpv1.NodeClaimList
	if err := d.Reader.List(ctx, &list, client.MatchingLabels{karpv1.NodePoolLabelKey: nodePool.Name}); err != nil {
		return 0, fmt.Errorf("listing nodeclaims of nodepool %s, %w", nodePool.Name, err)
	}
	used, unlaunched := 0, map[types.UID]bool{}
	for i := range list.Items {
		c := &list.Items[i]
		if c.UID == self.UID {
			continue
		}
		if shape, ok := d.Catalog.Shape(c.Labels[corev1.LabelInstanceTypeStable]); ok {
			used += shape.GPUs
			continue
		}
		unlaunched[c.UID] = true
	}
	for uid, l := range d.launches.byUID {
		switch {
		case l.nodePool != nodePool.Name:
		case unlaunched[uid]:
			used += l.gpus
		default: // counted by its type, or gone
			delete(d.launches.byUID, uid)
		}
	}
	return used, nil
}
