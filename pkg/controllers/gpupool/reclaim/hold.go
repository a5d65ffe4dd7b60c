package reclaim

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	stock "sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/disruption"
	utilscontroller "sigs.k8s.io/karpenter/pkg/utils/controller"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"
)

// review is how often a NodeClaim of a pool is looked at without an event, because no event
// tells of an emptyAfter that was set or removed.
const review = time.Minute

// Holder is Karpenter's controller of the conditions Drifted and Consolidatable. While a node
// of a pool with reclaim.emptyAfter is empty, it shows Karpenter a NodePool that consolidates
// nothing, so that the node is not Consolidatable: emptyAfter takes the place of
// consolidateAfter for empty nodes, be it longer or shorter. A node with pods is consolidated
// as its NodePool says, and every node drifts.
type Holder struct {
	*stock.Controller
	client        client.Client
	cloudProvider cloudprovider.CloudProvider
	clock         clock.Clock
	pools         Pools
}

// Hold replaces that controller among those that Karpenter constructs. The clock, client and
// CloudProvider are what it was constructed with. It is an error if it is not there exactly
// once: an upgrade has changed it.
func Hold(controllers []controller.Controller, clk clock.Clock, c client.Client, cloudProvider cloudprovider.CloudProvider, p Pools) ([]controller.Controller, error) {
	found := 0
	out := make([]controller.Controller, len(controllers))
	for i, x := range controllers {
		out[i] = x
		if _, ok := x.(*stock.Controller); ok {
			out[i] = NewHolder(clk, c, cloudProvider, p)
			found++
		}
	}
	if found != 1 {
		return nil, fmt.Errorf("replacing the controller of the condition Consolidatable, found %d, want 1", found)
	}
	return out, nil
}

// NewHolder returns a Holder.
func NewHolder(clk clock.Clock, c client.Client, cloudProvider cloudprovider.CloudProvider, p Pools) *Holder {
	return &Holder{Controller: stock.NewController(clk, shown{c}, cloudProvider), client: c, cloudProvider: cloudProvider, clock: clk, pools: p}
}

// Register adds the controller to a manager with the watches that Karpenter gives it.
func (h *Holder) Register(ctx context.Context, m manager.Manager) error {
	b := controllerruntime.NewControllerManagedBy(m).
		Named(h.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(nodeclaimutils.IsManagedPredicateFuncs(h.cloudProvider))).
		WithOptions(runtimecontroller.Options{MaxConcurrentReconciles: utilscontroller.LinearScaleReconciles(utilscontroller.CPUCount(ctx), 10, 1000)}).
		Watches(&karpv1.NodePool{}, nodeclaimutils.NodePoolEventHandler(h.client, h.cloudProvider)).
		Watches(&corev1.Pod{}, nodeclaimutils.PodEventHandler(h.client, h.cloudProvider))
	for _, nodeClass := range h.cloudProvider.GetSupportedNodeClasses() {
		b.Watches(nodeClass, nodeclaimutils.NodeClassEventHandler(h.client))
	}
	return b.Complete(reconcile.AsReconciler(m.GetClient(), h))
}

// Reconcile is Karpenter's, with what it is shown.
func (h *Holder) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	pool, ok := h.pools.ForNodeClaim(claim)
	if !ok {
		return h.Controller.Reconcile(ctx, claim)
	}
	if _, set := pool.GPUPool.Spec.Reclaim.GetEmptyAfter(); set && claim.Status.NodeName != "" {
		pods, err := podsOn(ctx, h.client, claim.Status.NodeName, client.UnsafeDisableDeepCopy)
		if err != nil {
			return reconcile.Result{}, err
		}
		if occupied(pods, h.clock) == nil {
			ctx = context.WithValue(ctx, held{}, true)
		}
	}
	result, err := h.Controller.Reconcile(ctx, claim)
	if err == nil && (result.RequeueAfter == 0 || result.RequeueAfter > review) {
		result.RequeueAfter = review
	}
	return result, err
}

// held marks the context of a NodeClaim whose node is empty.
type held struct{}

// shown is the client by which Karpenter's controller reads the NodePool.
type shown struct{ client.Client }

// Get implements client.Reader. What it changes is the caller's copy.
func (s shown) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := s.Client.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	if nodePool, ok := obj.(*karpv1.NodePool); ok && ctx.Value(held{}) != nil {
		nodePool.Spec.Disruption.ConsolidateAfter = karpv1.NillableDuration{}
	}
	return nil
}
