// Package verification opens and shuts the readiness gate of nodes.
//
// For each node of a GPUPool it asks a Verifier for a verdict and makes the Node say so: the
// taint of the gate is there while the node is not verified in its present boot, or is
// broken, and gone otherwise. It removes no other taint and touches no cordon. What it
// decides it decides anew from the Node on every change, so that a restart forgets nothing.
//
// Nodes that never get there are another controller's: nodeclaim/trial.
package verification

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
)

// Pools is what the controller asks of the resolved pools. A pools.Store is one.
type Pools interface {
	readiness.Pools
	Evaluated(nodePool *karpv1.NodePool) bool
}

// recheck is how soon a shut gate is looked at again. What opens it are changes of the Node,
// which come by themselves; this is for DaemonSets and pools that change meanwhile.
const recheck = 30 * time.Second

// Controller keeps the gate of each node.
type Controller struct {
	clock    clock.PassiveClock
	client   client.Client
	recorder events.Recorder
	pools    Pools
	gate     *readiness.Gate
	verifier *readiness.Verifier
	book     *trials.Book
}

// NewController returns a Controller.
func NewController(clk clock.PassiveClock, c client.Client, recorder events.Recorder, p Pools, verifier *readiness.Verifier, book *trials.Book) *Controller {
	return &Controller{clock: clk, client: c, recorder: recorder, pools: p, gate: readiness.NewGate(c), verifier: verifier, book: book}
}

// Name implements controller.Controller.
func (c *Controller) Name() string { return "node.verification" }

// Register implements controller.Controller.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&corev1.Node{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// Reconcile makes one Node say what is so.
func (c *Controller) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !node.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	subject, known, err := c.subject(ctx, node)
	if err != nil || !known {
		return reconcile.Result{}, err
	}
	stored := node.DeepCopy()
	var verdict readiness.Verdict
	if subject.Pool == nil {
		readiness.Open(node) // the pool is gone, and nobody else would open it
	} else if verdict, err = c.decide(ctx, subject); err != nil {
		return reconcile.Result{}, err
	}
	if !equality.Semantic.DeepEqual(stored, node) {
		// A list in a merge patch replaces the list: without the lock it would undo others' taints.
		if err := c.client.Patch(ctx, node, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
			return again(err)
		}
	}
	c.tell(ctx, stored, subject, verdict)
	return reconcile.Result{RequeueAfter: lo.Ternary(readiness.Tainted(node), recheck, 0)}, nil
}

// again looks at the node once more after somebody else has changed it; a node that has gone
// needs no look.
func again(err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: time.Second}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, fmt.Errorf("patching node, %w", err)
}

// subject finds NodeClaim and pool. It is not known for nodes that are not Karpenter's, and
// while the pool of the NodePool has not been looked at: its gate may be shut for a reason.
func (c *Controller) subject(ctx context.Context, node *corev1.Node) (s readiness.Subject, known bool, err error) {
	claim, err := nodeutils.NodeClaimForNode(ctx, c.client, node)
	if err != nil {
		return s, false, nodeutils.IgnoreDuplicateNodeClaimError(nodeutils.IgnoreNodeClaimNotFoundError(err))
	}
	s = readiness.Subject{Node: node, Claim: claim}
	if pool, ok := c.pools.ForNodeClaim(claim); ok {
		s.Pool = pool
		return s, true, nil
	}
	name := claim.Labels[karpv1.NodePoolLabelKey]
	nodePool := &karpv1.NodePool{}
	if err := c.client.Get(ctx, types.NamespacedName{Name: name}, nodePool); err != nil {
		if client.IgnoreNotFound(err) == nil { // the node is on its way out
			return s, name == "", nil
		}
		return s, false, fmt.Errorf("getting node pool %s, %w", name, err)
	}
	return s, c.pools.Evaluated(nodePool), nil
}

// decide brings taint and annotations of the node in line with the verdict.
func (c *Controller) decide(ctx context.Context, s readiness.Subject) (readiness.Verdict, error) {
	inForce, err := c.gate.InForce(ctx, s.Pool)
	if err != nil {
		return readiness.Verdict{}, fmt.Errorf("asking the readiness gate, %w", err)
	}
	verdict := c.verifier.Verify(s)
	annotate(s.Node, v1alpha1.PolicyAnnotationKey, readiness.AgentPolicy(s.Pool.GPUPool))
	hold(s.Node, verdict.State == readiness.StateDegraded)
	switch {
	case verdict.State == readiness.StateNoGPU:
		readiness.Open(s.Node)
	case verdict.State == readiness.StateVerified || verdict.State == readiness.StateDegraded:
		// Karpenter syncs startup taints until a node is registered, and would bring back one
		// that is in the NodePool too.
		if s.Node.Labels[karpv1.NodeRegisteredLabelKey] == "true" {
			readiness.Open(s.Node)
			annotate(s.Node, v1alpha1.VerifiedBootAnnotationKey, s.Node.Status.NodeInfo.BootID)
		}
	case shut(s.Node, verdict, inForce):
		readiness.Close(s.Node, c.clock.Now())
	default:
		readiness.Open(s.Node)
	}
	return verdict, nil
}

// shut tells whether a node that is not verified is kept from work. One that took work before
// its pool gated goes on until it shows a fault.
func shut(node *corev1.Node, verdict readiness.Verdict, inForce bool) bool {
	if verdict.State == readiness.StateFaulty && (readiness.VerifiedThisBoot(node) || readiness.Adopted(node)) {
		return true
	}
	return inForce && (readiness.Tainted(node) || !readiness.Adopted(node))
}

func annotate(node *corev1.Node, key, value string) {
	if value == "" {
		delete(node.Annotations, key)
		return
	}
	node.Annotations = lo.Assign(node.Annotations, map[string]string{key: value})
}

// hold keeps node repair from a node whose partitions are at fault within the allowance: the
// condition that repair goes by does not tell them from a broken node. An administrator's
// own do-not-repair is left alone.
func hold(node *corev1.Node, wanted bool) {
	held := node.Annotations[v1alpha1.RepairHeldAnnotationKey] != ""
	switch {
	case wanted && !held && node.Annotations[karpv1.DoNotRepairAnnotationKey] == "":
		annotate(node, karpv1.DoNotRepairAnnotationKey, "true")
		annotate(node, v1alpha1.RepairHeldAnnotationKey, readiness.ReasonPartitionsFaulty)
	case !wanted && held:
		annotate(node, karpv1.DoNotRepairAnnotationKey, "")
		annotate(node, v1alpha1.RepairHeldAnnotationKey, "")
	}
}

// tell logs and publishes what changed, and keeps the book of trials.
func (c *Controller) tell(ctx context.Context, before *corev1.Node, s readiness.Subject, verdict readiness.Verdict) {
	if s.Pool == nil {
		return
	}
	c.account(s, verdict)
	// The Node stands in the logger that controller-runtime hands on.
	logger := log.FromContext(ctx).WithValues("NodeClaim", klog.KObj(s.Claim), "GPUPool", klog.KRef("", s.Pool.Name()), "reason", verdict.Reason)
	was, is := readiness.Tainted(before), readiness.Tainted(s.Node)
	switch {
	case was && !is:
		c.tellOpened(logger, before, s, verdict)
	case is:
		c.tellShut(logger, !was, s, verdict)
	case verdict.State == readiness.StateDegraded && readiness.StateOf(before) != readiness.StateDegraded:
		c.recorder.Publish(DegradedEvent(s.Node, verdict))
	}
}

func (c *Controller) tellOpened(logger logr.Logger, before *corev1.Node, s readiness.Subject, verdict readiness.Verdict) {
	switch verdict.State {
	case readiness.StateVerified:
	case readiness.StateDegraded:
		logger.Info("opened readiness gate, partitions at fault are held back", "detail", verdict.Message)
		c.recorder.Publish(DegradedEvent(s.Node, verdict))
		return
	default:
		logger.Info("opened readiness gate without verification")
		c.recorder.Publish(NotGatedEvent(s.Node, s.Pool, verdict))
		return
	}
	logger.Info("verified node")
	c.recorder.Publish(VerifiedEvent(s.Node, verdict))
	c.measure(before, s)
}

func (c *Controller) tellShut(logger logr.Logger, now bool, s readiness.Subject, verdict readiness.Verdict) {
	switch {
	case now && readiness.VerifiedEver(s.Node):
		logger.Info("fenced node", "detail", verdict.Message)
		c.recorder.Publish(FencedEvent(s.Node, verdict))
		fenced.Inc(map[string]string{poolLabel: s.Pool.Name(), reasonLabel: verdict.Reason})
	case verdict.State != readiness.StateVerified:
		c.recorder.Publish(WaitingEvent(s, verdict))
	}
}

// account tells the book about nodes in trial. Failures at the deadline are told by the
// controller that ends the trial.
func (c *Controller) account(s readiness.Subject, verdict readiness.Verdict) {
	trial := readiness.TrialOf(s.Claim, s.Pool)
	switch {
	case readiness.VerifiedEver(s.Node) || verdict.State == readiness.StateNoGPU:
		c.book.Verified(trial)
	case verdict.State == readiness.StateFaulty:
		c.book.Suspect(trial, verdict.Reason, verdict.Message)
	}
}

func (c *Controller) measure(before *corev1.Node, s readiness.Subject) {
	if launched, ok := readiness.LaunchedAt(s.Claim); ok && !readiness.VerifiedEver(before) {
		verifySeconds.Observe(c.clock.Since(launched).Seconds(), map[string]string{poolLabel: s.Pool.Name()})
	}
}
