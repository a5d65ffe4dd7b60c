// Package status tells in the status of a GPUPool what its spec amounts to: which
// NodePools have joined, which of their instance types it can use, and how many
// nodes and GPUs it has at what price.
//
// It owns the conditions ValidationSucceeded, NodePoolsResolved and
// PartitioningSupported and all counts but those of warm capacity. The other
// conditions belong to the controllers of the gate, of limits and of warm
// capacity; patches are made with a lock, so that none undoes another's.
package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	operatorstatus "github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

const (
	// settle is the least time between two looks at a pool: a burst of node events
	// makes one patch.
	settle = time.Second
	// refresh is how often prices, types and what is held back are looked at without
	// an event.
	refresh = 15 * time.Second
)

// Controller writes the status of GPUPools.
type Controller struct {
	clock         clock.Clock
	kubeClient    client.Client
	cloudProvider corecloudprovider.CloudProvider
	store         *pools.Store
	catalog       *catalog.Catalog
	holds         *provisioning.Holds

	mu     sync.Mutex
	looked map[string]look
}

// look is when a pool was last looked at, and in which version.
type look struct {
	at         time.Time
	generation int64
}

// NewController returns a controller for the status of GPUPools. The CloudProvider
// is the decorated one.
func NewController(clk clock.Clock, kubeClient client.Client, cloudProvider corecloudprovider.CloudProvider, store *pools.Store, catalog *catalog.Catalog, holds *provisioning.Holds) *Controller {
	return &Controller{clock: clk, kubeClient: kubeClient, cloudProvider: cloudProvider, store: store, catalog: catalog, holds: holds, looked: map[string]look{}}
}

// Name is the controller's name in logs and metrics.
func (c *Controller) Name() string { return "gpupool.status" }

// Reconcile writes the status of one pool.
func (c *Controller) Reconcile(ctx context.Context, p *v1alpha1.GPUPool) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !p.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	if wait := c.wait(p); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	stored := p.DeepCopy()
	members, err := c.members(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	conditions := p.StatusConditions(operatorstatus.WithClock(c.clock))
	validate(conditions, p)
	resolveNodePools(conditions, members)
	support(conditions, p, c.poolOf(p), members)
	holdBacks(conditions, p, c.holds)
	count(p, members)
	p.Status.ObservedGeneration = p.Generation
	if equality.Semantic.DeepEqual(stored.Status, p.Status) {
		return reconcile.Result{RequeueAfter: refresh}, nil
	}
	if err := c.kubeClient.Status().Patch(ctx, p, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: settle}, nil
		}
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("patching the status of gpu pool, %w", err))
	}
	return reconcile.Result{RequeueAfter: refresh}, nil
}

// wait is how long to wait before looking at the pool again; an edit never waits.
func (c *Controller) wait(p *v1alpha1.GPUPool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	last, ok := c.looked[p.Name]
	if ok && last.generation == p.Generation && now.Before(last.at.Add(settle)) {
		return last.at.Add(settle).Sub(now)
	}
	c.looked[p.Name] = look{now, p.Generation}
	return 0
}

// poolOf is the pool as resolved, nil where it is invalid or not resolved yet.
func (c *Controller) poolOf(p *v1alpha1.GPUPool) *pools.Pool {
	resolved, _ := c.store.Get(p.Name)
	return resolved
}

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.GPUPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&karpv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(byPoolLabel)).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(c.byNodePool)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.byNodePool)).
		Complete(reconcile.Func(c.LookUp))
}

// LookUp reconciles the pool that a request names; one that is gone takes its
// metrics with it.
func (c *Controller) LookUp(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := &v1alpha1.GPUPool{}
	if err := c.kubeClient.Get(ctx, req.NamespacedName, p); err != nil {
		if apierrors.IsNotFound(err) {
			metrics.ForgetPool(req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return c.Reconcile(ctx, p)
}

func byPoolLabel(_ context.Context, o client.Object) []reconcile.Request {
	if name := o.GetLabels()[v1alpha1.PoolLabelKey]; name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	}
	return nil
}

func (c *Controller) byNodePool(_ context.Context, o client.Object) []reconcile.Request {
	if p, ok := c.store.ForNodePool(o.GetLabels()[karpv1.NodePoolLabelKey]); ok {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: p.Name()}}}
	}
	return nil
}
