// Package trial ends the trial of nodes that are not verified.
//
// A node of a gated pool has until readiness.deadline to be verified; past it its NodeClaim
// is deleted, with an event that carries the check that failed, and the failure goes into
// the book of trials, which sets the offering aside and notices storms. Karpenter itself
// waits for ever for a node to be initialized. For the same reason it never removes a node
// that is not initialized when the pods that it was launched for have gone: this controller
// does, after the time that the NodePool grants empty nodes.
package trial

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
)

// poll is how often a node in trial is asked whether anybody wants it.
const poll = 10 * time.Second

// Demand tells whether pods, or buffers, count on a node. Karpenter's cluster state does.
type Demand interface {
	IsNodeNominated(providerID string) bool
	HasBufferPods(providerID string) bool
}

// Controller ends trials.
type Controller struct {
	clock         clock.PassiveClock
	client        client.Client
	cloudProvider cloudprovider.CloudProvider
	recorder      events.Recorder
	pools         readiness.Pools
	gate          *readiness.Gate
	verifier      *readiness.Verifier
	book          *trials.Book
	demand        Demand
	rounds        Rounds

	mu sync.Mutex
	// unwanted is since when nobody has wanted a node, pool what pool it is of, and ended holds
	// those that were deleted and that the cache may show for a while yet.
	unwanted map[types.UID]idle
	pool     map[types.UID]string
	ended    map[types.UID]bool
}

// Dependencies of a Controller.
type Dependencies struct {
	Clock         clock.PassiveClock
	Client        client.Client
	CloudProvider cloudprovider.CloudProvider
	Recorder      events.Recorder
	Pools         readiness.Pools
	Verifier      *readiness.Verifier
	Book          *trials.Book
	Demand        Demand
	Rounds        Rounds
}

// NewController returns a Controller.
func NewController(d Dependencies) *Controller {
	return &Controller{
		clock: d.Clock, client: d.Client, cloudProvider: d.CloudProvider, recorder: d.Recorder, pools: d.Pools,
		gate: readiness.NewGate(d.Client), verifier: d.Verifier, book: d.Book, demand: d.Demand, rounds: d.Rounds,
		unwanted: map[types.UID]idle{}, pool: map[types.UID]string{}, ended: map[types.UID]bool{},
	}
}

// Name implements controller.Controller.
func (c *Controller) Name() string { return "nodeclaim.trial" }

// Register implements controller.Controller.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(nodeclaimutils.IsManagedPredicateFuncs(c.cloudProvider))).
		Watches(&corev1.Node{}, nodeclaimutils.NodeEventHandler(c.client, c.cloudProvider)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// Reconcile looks at one NodeClaim.
func (c *Controller) Reconcile(ctx context.Context, nodeClaim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !nodeClaim.DeletionTimestamp.IsZero() {
		c.forget(nodeClaim.UID)
		return reconcile.Result{}, nil
	}
	if !nodeclaimutils.IsManaged(nodeClaim, c.cloudProvider) || c.hasEnded(nodeClaim.UID) {
		return reconcile.Result{}, nil
	}
	pool, ok := c.pools.ForNodeClaim(nodeClaim)
	if !ok {
		return reconcile.Result{}, nil
	}
	inForce, err := c.gate.InForce(ctx, pool)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("asking the readiness gate, %w", err)
	}
	s, err := c.subject(ctx, nodeClaim, pool)
	if err != nil || !inForce {
		return reconcile.Result{}, err
	}
	readiness.Recall(c.book, pool.GPUPool)
	c.remember(nodeClaim.UID, pool.Name())
	if end, ok := readiness.DeadlineOf(s); ok {
		return c.judge(ctx, s, end)
	}
	return reconcile.Result{}, nil
}

// judge looks at a node in trial, which has until end.
func (c *Controller) judge(ctx context.Context, s readiness.Subject, end time.Time) (reconcile.Result, error) {
	verdict := c.verdict(s)
	switch {
	case verdict.State == readiness.StateNoGPU || verdict.State == readiness.StateVerified:
		// The gate opens with the next look at the Node.
		return reconcile.Result{RequeueAfter: poll}, nil
	case !c.clock.Now().Before(end):
		return c.expire(ctx, s, verdict)
	case s.Node == nil || !readiness.VerifiedEver(s.Node):
		if removed, err := c.removeUnwanted(ctx, s); removed || err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: min(poll, end.Sub(c.clock.Now()))}, nil
}

func (c *Controller) subject(ctx context.Context, nodeClaim *karpv1.NodeClaim, pool *pools.Pool) (readiness.Subject, error) {
	s := readiness.Subject{Claim: nodeClaim, Pool: pool}
	node, err := nodeclaimutils.NodeForNodeClaim(ctx, c.client, nodeClaim)
	if err != nil {
		return s, nodeclaimutils.IgnoreDuplicateNodeError(nodeclaimutils.IgnoreNodeNotFoundError(err))
	}
	s.Node = node
	return s, nil
}

func (c *Controller) verdict(s readiness.Subject) readiness.Verdict {
	if s.Node == nil {
		return readiness.Verdict{State: readiness.StatePending, Reason: readiness.ReasonNotRegistered, Message: "no Node has joined the cluster"}
	}
	return c.verifier.Verify(s)
}

// expire gives the node up. A person who wants to look at it first says so by
// do-not-repair.
func (c *Controller) expire(ctx context.Context, s readiness.Subject, verdict readiness.Verdict) (reconcile.Result, error) {
	if kept(s) {
		c.recorder.Publish(KeptEvent(s, verdict))
		return reconcile.Result{RequeueAfter: time.Minute}, nil
	}
	// The book first: the deletion is what makes the pool's status tell of the failure.
	if s.Node == nil || !readiness.VerifiedEver(s.Node) {
		c.book.Failed(readiness.TrialOf(s.Claim, s.Pool), verdict.Reason, verdict.Message)
	}
	if err := c.delete(ctx, s.Claim); err != nil {
		return reconcile.Result{}, err
	}
	logger(ctx, s).WithValues("reason", verdict.Reason, "detail", verdict.Message).
		Info("replacing node, not verified by its deadline")
	c.recorder.Publish(FailedEvents(s, verdict)...)
	failed.Inc(map[string]string{poolLabel: s.Pool.Name(), reasonLabel: verdict.Reason})
	return reconcile.Result{}, nil
}

// logger names the node by all its names, so that its story can be told by any of them. The
// NodeClaim stands in the logger that controller-runtime hands on; a node that has not joined
// the cluster has no name of its own.
func logger(ctx context.Context, s readiness.Subject) logr.Logger {
	l := log.FromContext(ctx).WithValues("GPUPool", klog.KRef("", s.Pool.Name()))
	if s.Node != nil {
		l = l.WithValues("Node", klog.KObj(s.Node))
	}
	return l
}

func kept(s readiness.Subject) bool {
	return s.Claim.Annotations[karpv1.DoNotRepairAnnotationKey] == "true" ||
		s.Node != nil && s.Node.Annotations[karpv1.DoNotRepairAnnotationKey] == "true"
}

func (c *Controller) delete(ctx context.Context, nodeClaim *karpv1.NodeClaim) error {
	err := c.client.Delete(ctx, nodeClaim, client.Preconditions{UID: &nodeClaim.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting node claim, %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[nodeClaim.UID] = true
	return nil
}

func (c *Controller) hasEnded(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[uid]
}

// removeUnwanted removes a node in trial once nobody has wanted it for as long as its
// NodePool lets empty nodes stand. A wanted node is one that the scheduler, which looks at
// pending pods every few seconds, keeps nominating.
func (c *Controller) removeUnwanted(ctx context.Context, s readiness.Subject) (removed bool, err error) {
	if needless, err := c.needless(ctx, s); err != nil || !needless {
		return false, err
	}
	if err := c.delete(ctx, s.Claim); err != nil {
		return false, err
	}
	logger(ctx, s).Info("removing node in trial that no pod wants")
	c.recorder.Publish(UnwantedEvent(s))
	unwanted.Inc(map[string]string{poolLabel: s.Pool.Name()})
	return true, nil
}

// needless tells whether a node has stood unwanted for long enough, and empty.
func (c *Controller) needless(ctx context.Context, s readiness.Subject) (bool, error) {
	id := s.Claim.Status.ProviderID
	if id == "" || c.demand.IsNodeNominated(id) || c.demand.HasBufferPods(id) {
		c.want(s.Claim.UID)
		return false, nil
	}
	patience, ok, err := c.patience(ctx, s)
	if err != nil || !ok {
		return false, err
	}
	since := c.unwantedSince(s.Claim.UID)
	if c.clock.Since(since.at) < patience {
		return false, nil
	}
	if decided, err := c.decided(ctx, since); err != nil || !decided {
		return false, err
	}
	busy, err := c.busy(ctx, s.Node)
	return err == nil && !busy, err
}

// minPatience outlasts what lies between a launch and the nomination of its node: the
// scheduler's batch, and its nomination of ten seconds or more.
const minPatience = time.Minute

// patience is not ok for nodes that are there whether wanted or not: those of static
// NodePools, those that may not be disrupted, and those whose NodePool never removes any.
func (c *Controller) patience(ctx context.Context, s readiness.Subject) (time.Duration, bool, error) {
	if s.Claim.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" || s.Node != nil && s.Node.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
		return 0, false, nil
	}
	nodePool := &karpv1.NodePool{}
	if err := c.client.Get(ctx, types.NamespacedName{Name: s.Claim.Labels[karpv1.NodePoolLabelKey]}, nodePool); err != nil {
		return 0, false, client.IgnoreNotFound(err)
	}
	after := nodePool.Spec.Disruption.ConsolidateAfter.Duration
	if nodePool.Spec.Replicas != nil || after == nil {
		return 0, false, nil
	}
	return max(minPatience, *after), true, nil
}

// busy reports whether pods other than DaemonSets' are bound to the node.
func (c *Controller) busy(ctx context.Context, node *corev1.Node) (bool, error) {
	if node == nil {
		return false, nil
	}
	pods := &corev1.PodList{}
	if err := c.client.List(ctx, pods, client.MatchingFields{"spec.nodeName": node.Name}); err != nil {
		return false, fmt.Errorf("listing pods, %w", err)
	}
	return lo.SomeBy(pods.Items, func(p corev1.Pod) bool {
		done := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		return !done && !lo.SomeBy(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" || o.Kind == "Node" })
	}), nil
}

func (c *Controller) remember(uid types.UID, pool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pool[uid] = pool
}

// forget drops a NodeClaim that goes.
func (c *Controller) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pool, ok := c.pool[uid]; ok {
		c.book.Forget(pool, uid)
	}
	delete(c.unwanted, uid)
	delete(c.pool, uid)
	delete(c.ended, uid)
}
