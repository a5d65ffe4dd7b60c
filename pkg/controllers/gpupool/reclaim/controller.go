// Package reclaim removes the empty nodes of pools that set reclaim.emptyAfter.
//
// Karpenter removes empty nodes too: it looks for them every ten seconds, waits for fifteen
// more and looks again. This controller is told by the pods. A node of the pool that has held
// nothing but pods of DaemonSets for emptyAfter gets Karpenter's own NoSchedule taint, is
// looked at once more two seconds later, by then on the API server itself and with the
// scheduler aware of the taint, and goes if it is still empty. A pod that was bound meanwhile
// keeps its node, and the taint goes.
//
// What forbids Karpenter to remove a node forbids it here: do-not-disrupt, PodDisruptionBudgets,
// the NodePool's budgets for the reason Empty, a nomination, a capacity buffer. What follows
// the NodeClaim's deletion is Karpenter's: drain, detachment of volumes, termination.
// Karpenter itself leaves such nodes to this controller while they are empty ([Hold]).
//
// The decision is pure ([Decide]). designs/0006-reclaim.md has the reasons.
package reclaim

import (
	"context"
	"fmt"
	"time"

	operatorstatus "github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

const (
	// settle is the least time between two rounds of a pool: a burst of events makes one round.
	settle = time.Second
	// retry is how soon a pool whose budgets are used up is looked at again without an event.
	retry = 2 * time.Second
	// refresh is how often a pool is looked at without an event.
	refresh = 10 * time.Second
	// grace is the time between the taint and the second look. The scheduler learns of the
	// taint by its watch, and what it had decided before is bound by then: both take fractions
	// of a second, of which this is a multiple.
	grace = 2 * time.Second
)

// Pools finds resolved pools. A pools.Store does.
type Pools interface {
	Get(name string) (*pools.Pool, bool)
	ForNodePool(name string) (*pools.Pool, bool)
	ForNodeClaim(nodeClaim *karpv1.NodeClaim) (*pools.Pool, bool)
}

// Buffers tells how far the nodes that hold capacity buffers are known. The Provisioner does.
type Buffers interface {
	// BuffersCounted is when the last round began after which the cluster state knew which
	// nodes hold buffers; zero if none has.
	BuffersCounted() time.Time
	// TriggerReconcile asks for another round.
	TriggerReconcile()
}

// Dependencies of a Controller.
type Dependencies struct {
	Clock  clock.Clock
	Client client.Client
	// Reader reads from the API server.
	Reader   client.Reader
	Recorder events.Recorder
	Pools    Pools
	// Cluster and Queue are Karpenter's own.
	Cluster *state.Cluster
	Queue   *disruption.Queue
	// Buffers is nil where the feature gate CapacityBuffer is off.
	Buffers Buffers
}

// Controller reclaims empty nodes. One round runs at a time.
type Controller struct {
	Dependencies
	slots  slots
	ages   *ages
	synced bool
	// looked is when a pool was last looked at, staged the nodes with our taint by provider ID.
	looked map[string]time.Time
	staged map[string]*staged
}

// NewController returns a Controller.
func NewController(d Dependencies) *Controller {
	return &Controller{
		Dependencies: d, slots: newSlots(d.Queue), ages: &ages{since: map[string]time.Time{}},
		looked: map[string]time.Time{}, staged: map[string]*staged{},
	}
}

// Name implements controller.Controller.
func (c *Controller) Name() string { return "gpupool.reclaim" }

// Register implements controller.Controller.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.GPUPool{}).
		Watches(&corev1.Pod{}, c.byPod(), builder.WithPredicates(podChanges(c.Clock))).
		Watches(&corev1.Node{}, c.byNodePool(), builder.WithPredicates(nodeChanges())).
		Watches(&karpv1.NodeClaim{}, c.byNodePool()).
		Complete(reconcile.Func(c.Reconcile))
}

// Reconcile makes one round of the pool that the request names.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	p := &v1alpha1.GPUPool{}
	if err := c.Client.Get(ctx, req.NamespacedName, p); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("getting gpu pool, %w", err)
	}
	resolved, known := c.Pools.Get(req.Name)
	after, set := p.Spec.Reclaim.GetEmptyAfter()
	if !known || !set || !p.DeletionTimestamp.IsZero() {
		delete(c.looked, req.Name)
		c.releaseAll(ctx, req.Name, "the pool no longer sets reclaim.emptyAfter")
		if set && p.DeletionTimestamp.IsZero() { // not resolved yet, or invalid
			return reconcile.Result{RequeueAfter: refresh}, nil
		}
		return reconcile.Result{}, c.forget(ctx, p)
	}
	if wait := c.wait(req.Name); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if c.synced = c.synced || c.Cluster.Synced(ctx); !c.synced {
		return reconcile.Result{RequeueAfter: settle}, nil
	}
	return c.round(ctx, p, resolved, after)
}

// wait is how long it takes until the pool may be looked at again.
func (c *Controller) wait(pool string) time.Duration {
	now := c.Clock.Now()
	if last, ok := c.looked[pool]; ok && now.Before(last.Add(settle)) {
		return last.Add(settle).Sub(now)
	}
	c.looked[pool] = now
	return 0
}

// round takes second looks, then picks more nodes, then tells what stays and why.
func (c *Controller) round(ctx context.Context, p *v1alpha1.GPUPool, resolved *pools.Pool, after time.Duration) (reconcile.Result, error) {
	r, err := c.rules(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	members, err := c.observe(ctx, resolved, r)
	if err != nil {
		return reconcile.Result{}, err
	}
	errs := []error{c.confirm(ctx, p, members, r)}
	next := refresh
	for _, m := range members {
		m.decision = Decide(c.Clock.Now(), after, m.room, m.nodes)
		errs = append(errs, c.begin(ctx, p, m))
		next = min(next, m.next())
	}
	if c.count(func(s *staged) bool { return s.pool == p.Name }) > 0 {
		next = min(next, c.untilLook(p.Name))
	}
	errs = append(errs, c.tell(ctx, p, members, after))
	if err := joined(errs); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: max(next, time.Millisecond)}, nil
}

// tell sets the condition of the pool.
func (c *Controller) tell(ctx context.Context, p *v1alpha1.GPUPool, members []*member, after time.Duration) error {
	stored := p.DeepCopy()
	conditions := p.StatusConditions(operatorstatus.WithClock(c.Clock))
	was := conditions.Get(v1alpha1.ConditionTypeReclaimUnblocked)
	if reason, message := blocked(members, after); reason != "" {
		conditions.SetFalse(v1alpha1.ConditionTypeReclaimUnblocked, reason, message)
		if !was.IsFalse() || was.Reason != reason {
			c.Recorder.Publish(BlockedEvent(p, message))
		}
	} else {
		conditions.SetTrue(v1alpha1.ConditionTypeReclaimUnblocked)
	}
	return c.write(ctx, p, stored)
}

// forget takes the condition from a pool that reclaims nothing.
func (c *Controller) forget(ctx context.Context, p *v1alpha1.GPUPool) error {
	if p.UID == "" || !p.DeletionTimestamp.IsZero() {
		return nil
	}
	stored := p.DeepCopy()
	if err := p.StatusConditions(operatorstatus.WithClock(c.Clock)).Clear(v1alpha1.ConditionTypeReclaimUnblocked); err != nil {
		return fmt.Errorf("clearing condition, %w", err)
	}
	return c.write(ctx, p, stored)
}

// write patches with a lock, because others write conditions too, and a list in a merge patch
// replaces the list.
func (c *Controller) write(ctx context.Context, p, stored *v1alpha1.GPUPool) error {
	if equality.Semantic.DeepEqual(stored.Status, p.Status) {
		return nil
	}
	err := c.Client.Status().Patch(ctx, p, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // a conflict brings an event, and that a round
		return nil
	}
	return fmt.Errorf("patching status of gpu pool, %w", err)
}
