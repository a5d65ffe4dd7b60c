// Package warm keeps the entries of spec.warm of a GPUPool: verified capacity that is ready
// before pods ask for it.
//
// Each entry becomes CapacityBuffers of Karpenter with pod templates of their own, aimed at
// the nodes of the pool; Karpenter's provisioner launches nodes for their virtual pods,
// keeps these nodes from being removed as empty, and launches more when real pods have taken
// the place. What a buffer cannot say is done here:
//
//   - The number of virtual pods follows the schedule of the entry and its maxPricePerHour,
//     as pkg/gpu/warm decides.
//   - Buffers that users made for the same purpose count towards the entry: only what they
//     leave open is rendered.
//   - Space counts as ready only on nodes that are verified and hold the images of the entry,
//     which pods of package prepull pull ahead of use.
//
// A node that loses its verification is tainted by the gate. The virtual pods do not fit
// there any more, and the provisioner finds another place for them: nothing is to be done
// here, and when the node recovers the space has one node too many, which goes as empty.
package warm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	operatorstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/warm/prepull"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

const (
	// settle is the least time between two looks at a pool: a burst of events makes one.
	settle = time.Second
	// refresh is how often prices, references and images are looked at without an event.
	refresh = 30 * time.Second
)

// Pools finds resolved pools. A pools.Store does.
type Pools interface {
	Get(name string) (*pools.Pool, bool)
	ForNodePool(name string) (*pools.Pool, bool)
}

// Spaces tells where the space of capacity buffers stands. A provisioning.Spaces does.
type Spaces interface {
	Of(buffer types.NamespacedName) (provisioning.Space, bool)
}

// Options are what the controller is made from.
type Options struct {
	Clock  clock.Clock
	Client client.Client
	// CloudProvider is the outermost one: its offers are those that the pools use.
	CloudProvider corecloudprovider.CloudProvider
	Recorder      events.Recorder
	Pools         Pools
	Spaces        Spaces
	// Changes wakes the controller when Spaces has news. Nil: it looks when it is due.
	Changes <-chan event.GenericEvent
	// Namespace is where buffers that belong to no workload, pullers and their secrets are.
	Namespace string
}

// Controller keeps the warm entries of GPUPools.
type Controller struct {
	Options
	puller *prepull.Puller

	mu     sync.Mutex
	looked map[string]look
	// swept are the pools of which this process has deleted what no entry wants. Entries may
	// have been removed before it started, while the feature gate was off.
	swept map[string]bool
}

// look is when a pool was last looked at, and in which version.
type look struct {
	at         time.Time
	generation int64
}

// NewController returns a Controller.
func NewController(o Options) *Controller {
	return &Controller{Options: o, puller: prepull.NewPuller(o.Clock, o.Client, o.Namespace), looked: map[string]look{}, swept: map[string]bool{}}
}

// Name is the controller's name in logs and metrics.
func (c *Controller) Name() string { return "gpupool.warm" }

// Reconcile renders the entries of one pool and tells how they fare.
func (c *Controller) Reconcile(ctx context.Context, p *v1alpha1.GPUPool) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !p.DeletionTimestamp.IsZero() || c.idle(ctx, p) {
		return reconcile.Result{}, nil
	}
	if wait := c.wait(p); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if pool, ok := c.Pools.Get(p.Name); ok {
		return c.keep(ctx, p, pool)
	}
	return reconcile.Result{RequeueAfter: refresh}, nil // invalid, or not resolved yet: its nodes are stock's
}

func (c *Controller) keep(ctx context.Context, p *v1alpha1.GPUPool, pool *pools.Pool) (reconcile.Result, error) {
	stored, now := p.DeepCopy(), c.Clock.Now()
	var demands []*demand
	var failed error
	if options.FromContext(ctx).FeatureGates.CapacityBuffer {
		var err error
		demands, failed, err = c.render(ctx, p, pool, now)
		c.noteSwept(p.Name, failed == nil && err == nil)
		if err != nil {
			return reconcile.Result{}, err
		}
	} else {
		demands = lo.Map(p.Spec.Warm, func(_ v1alpha1.WarmCapacity, i int) *demand {
			return &demand{entry: &p.Spec.Warm[i], problem: gateOff()}
		})
	}
	c.tell(p, stored, demands, now)
	if err := c.patch(ctx, p, stored); err != nil {
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: settle}, failed
		}
		return reconcile.Result{}, errors.Join(failed, client.IgnoreNotFound(err))
	}
	if failed != nil {
		return reconcile.Result{}, failed
	}
	return reconcile.Result{RequeueAfter: due(demands, now)}, nil
}

// render brings buffers, templates and pullers to what the entries want, and counts. failed
// is what could not be written or deleted: the demands stand all the same, and tell of it.
func (c *Controller) render(ctx context.Context, p *v1alpha1.GPUPool, pool *pools.Pool, now time.Time) (demands []*demand, failed, err error) {
	members, err := c.members(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	buffers, err := c.buffers(ctx)
	if err != nil {
		return nil, nil, err
	}
	own := foreign(buffers, p)
	for i := range p.Spec.Warm {
		d, err := c.demand(ctx, p, pool, &p.Spec.Warm[i], members, now)
		if err != nil {
			return nil, nil, err
		}
		if err := c.credit(ctx, p, d, own); err != nil {
			return nil, nil, err
		}
		c.bound(ctx, d, buffers, members)
		demands = append(demands, d)
	}
	failed = c.apply(ctx, p, demands, buffers)
	if err := c.count(ctx, p, demands); err != nil {
		return nil, failed, errors.Join(failed, err)
	}
	return demands, failed, nil
}

func (c *Controller) members(ctx context.Context, p *v1alpha1.GPUPool) ([]*karpv1.NodePool, error) {
	var list karpv1.NodePoolList
	if err := c.Client.List(ctx, &list, client.MatchingLabels{v1alpha1.PoolLabelKey: p.Name}); err != nil {
		return nil, fmt.Errorf("listing nodepools, %w", err)
	}
	return lo.Filter(lo.ToSlicePtr(list.Items), func(n *karpv1.NodePool, _ int) bool { return n.DeletionTimestamp.IsZero() }), nil
}

func (c *Controller) buffers(ctx context.Context) ([]*autoscalingv1beta1.CapacityBuffer, error) {
	var list autoscalingv1beta1.CapacityBufferList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing capacity buffers, %w", err)
	}
	return lo.ToSlicePtr(list.Items), nil
}

func (c *Controller) patch(ctx context.Context, p, stored *v1alpha1.GPUPool) error {
	if equality.Semantic.DeepEqual(stored.Status, p.Status) {
		return nil
	}
	if err := c.Client.Status().Patch(ctx, p, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching the status of gpu pool, %w", err)
	}
	return nil
}

// due is how long until the schedule of an entry changes, or refresh.
func due(demands []*demand, now time.Time) time.Duration {
	wait := refresh
	for _, d := range demands {
		if d.changes && d.nextChange.Sub(now) < wait {
			wait = max(time.Millisecond, d.nextChange.Sub(now))
		}
	}
	return wait
}

// wait is how long to wait before looking at the pool again; an edit never waits.
func (c *Controller) wait(p *v1alpha1.GPUPool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	last, ok := c.looked[p.Name]
	if left := last.at.Add(settle).Sub(now); ok && last.generation == p.Generation && left > 0 && left <= settle {
		return left
	}
	c.looked[p.Name] = look{now, p.Generation}
	return 0
}

// idle reports whether a pool has no entries, nor anything left of some.
func (c *Controller) idle(ctx context.Context, p *v1alpha1.GPUPool) bool {
	if len(p.Spec.Warm) > 0 || len(p.Status.Warm) > 0 || hasCondition(p) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.swept[p.Name] || !options.FromContext(ctx).FeatureGates.CapacityBuffer
}

func (c *Controller) noteSwept(pool string, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swept[pool] = done
}

// forgetPool drops what is remembered of a pool that is gone.
func (c *Controller) forgetPool(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.looked, name)
	delete(c.swept, name)
}

func hasCondition(p *v1alpha1.GPUPool) bool {
	return lo.ContainsBy(p.Status.Conditions, func(cond operatorstatus.Condition) bool { return cond.Type == v1alpha1.ConditionTypeWarmCapacityReady })
}

// Register adds the controller to a manager.
func (c *Controller) Register(ctx context.Context, m manager.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(c.all)
	b := controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.GPUPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&karpv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(byPoolLabel), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.byNodePool), builder.WithPredicates(nodeChanged)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(byPoolLabel), builder.WithPredicates(predicate.NewPredicateFuncs(prepull.Is)))
	if options.FromContext(ctx).FeatureGates.CapacityBuffer {
		// A workload that grows changes what a percentage of it is.
		b = b.Watches(&autoscalingv1beta1.CapacityBuffer{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			Watches(&corev1.PodTemplate{}, all).
			Watches(&appsv1.Deployment{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			Watches(&appsv1.StatefulSet{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			Watches(&appsv1.ReplicaSet{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	if c.Changes != nil {
		b = b.WatchesRawSource(source.Channel(c.Changes, all))
	}
	return b.Complete(reconcile.Func(c.lookUp))
}

// lookUp reconciles the pool that a request names; one that is gone takes its pullers with
// it. Its buffers are collected as garbage.
func (c *Controller) lookUp(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := &v1alpha1.GPUPool{}
	if err := c.Client.Get(ctx, req.NamespacedName, p); err != nil {
		if apierrors.IsNotFound(err) {
			c.forgetPool(req.Name)
			return reconcile.Result{}, c.puller.Forget(ctx, req.Name)
		}
		return reconcile.Result{}, err
	}
	return c.Reconcile(ctx, p)
}

// all asks for the pools with warm entries.
func (c *Controller) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &v1alpha1.GPUPoolList{}
	if err := c.Client.List(ctx, list); err != nil {
		return nil // the pools come again by themselves
	}
	return lo.FilterMap(list.Items, func(p v1alpha1.GPUPool, _ int) (reconcile.Request, bool) {
		return reconcile.Request{NamespacedName: types.NamespacedName{Name: p.Name}}, len(p.Spec.Warm) > 0
	})
}

// nodeChanged leaves out heartbeats, of which a large pool has one at any moment.
var nodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, ok := e.ObjectOld.(*corev1.Node)
	is, still := e.ObjectNew.(*corev1.Node)
	if !ok || !still {
		return true
	}
	return isReady(was) != isReady(is) || !equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) || !equality.Semantic.DeepEqual(was.Status.Images, is.Status.Images)
}}

func byPoolLabel(_ context.Context, o client.Object) []reconcile.Request {
	if name := o.GetLabels()[v1alpha1.PoolLabelKey]; name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	}
	return nil
}

func (c *Controller) byNodePool(_ context.Context, o client.Object) []reconcile.Request {
	if p, ok := c.Pools.ForNodePool(o.GetLabels()[karpv1.NodePoolLabelKey]); ok && len(p.GPUPool.Spec.Warm) > 0 {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: p.Name()}}}
	}
	return nil
}
