// Package gate keeps those conditions of a GPUPool that tell of readiness: GateSafe (can the
// gate open at all), VerificationHealthy (do new nodes pass) and GPUsHealthy (are nodes that
// passed still sound).
//
// Their messages say what to do. VerificationHealthy and status.avoided are also memory: after
// a restart the storm and the backoffs that they tell of go on.
package gate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
)

// refresh is how often backoffs and fenced nodes are told anew.
const refresh = 15 * time.Second

// Pools finds resolved pools, by name or for a NodeClaim. A pools.Store does.
type Pools interface {
	Get(name string) (*pools.Pool, bool)
	ForNodeClaim(nodeClaim *karpv1.NodeClaim) (*pools.Pool, bool)
}

// Untainted tells of nodes that registered without any taint. A readiness.Hook does.
type Untainted interface {
	Untainted(pool string) (node string, ok bool)
}

// Controller keeps the conditions.
type Controller struct {
	clock     clock.Clock
	client    client.Client
	recorder  events.Recorder
	pools     Pools
	gate      *readiness.Gate
	book      *trials.Book
	untainted Untainted
}

// NewController returns a Controller.
func NewController(clk clock.Clock, c client.Client, recorder events.Recorder, p Pools, book *trials.Book, u Untainted) *Controller {
	return &Controller{clock: clk, client: c, recorder: recorder, pools: p, gate: readiness.NewGate(c), book: book, untainted: u}
}

// Name implements controller.Controller.
func (c *Controller) Name() string { return "gpupool.gate" }

// Register implements controller.Controller.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.GPUPool{}).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(c.all)).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(c.ofEnded)).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

func (c *Controller) all(ctx context.Context, o client.Object) []reconcile.Request {
	if _, ok := readiness.RoleOf(o.(*appsv1.DaemonSet)); !ok {
		return nil
	}
	list := &v1alpha1.GPUPoolList{}
	if err := c.client.List(ctx, list); err != nil {
		return nil // the pools come again by themselves
	}
	return lo.Map(list.Items, func(p v1alpha1.GPUPool, _ int) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Name: p.Name}}
	})
}

// ofEnded asks for the pool of a NodeClaim that is being deleted: its trial may have failed,
// which is written down at once.
func (c *Controller) ofEnded(_ context.Context, o client.Object) []reconcile.Request {
	pool, ok := c.pools.ForNodeClaim(o.(*karpv1.NodeClaim))
	if !ok || o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pool.Name()}}}
}

// Reconcile sets the conditions of one pool.
func (c *Controller) Reconcile(ctx context.Context, gpuPool *v1alpha1.GPUPool) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !gpuPool.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	pool, ok := c.pools.Get(gpuPool.Name)
	if !ok { // invalid, or not resolved yet: it gates nothing
		return reconcile.Result{RequeueAfter: refresh}, nil
	}
	stored := gpuPool.DeepCopy()
	conditions := gpuPool.StatusConditions(status.WithClock(c.clock))
	readiness.Recall(c.book, gpuPool)
	if err := c.safety(ctx, gpuPool, pool, conditions); err != nil {
		return reconcile.Result{}, err
	}
	c.verification(pool, conditions)
	gpuPool.Status.Avoided = readiness.Avoided(c.book, pool.Name())
	if err := c.health(ctx, pool, conditions); err != nil {
		return reconcile.Result{}, err
	}
	if equality.Semantic.DeepEqual(stored, gpuPool) {
		return reconcile.Result{RequeueAfter: refresh}, nil
	}
	// Others write conditions too, and a list in a merge patch replaces the list.
	if err := c.client.Status().Patch(ctx, gpuPool, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: time.Second}, nil
		}
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("patching status of gpu pool, %w", err)
	}
	return reconcile.Result{RequeueAfter: refresh}, nil
}

func (c *Controller) safety(ctx context.Context, gpuPool *v1alpha1.GPUPool, pool *pools.Pool, conditions status.ConditionSet) error {
	safety, err := c.gate.Safety(ctx, pool)
	if err != nil {
		return fmt.Errorf("looking for what blocks the gate, %w", err)
	}
	node, untainted := c.untainted.Untainted(pool.Name())
	switch {
	case !safety.Safe:
		c.unsafe(gpuPool, conditions, safety.Reason, safety.Message)
	case untainted:
		c.unsafe(gpuPool, conditions, v1alpha1.ReasonStartupTaintMissing, startupTaintMessage(node, pool.NodePools))
	case safety.Reason != "":
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeGateSafe, safety.Reason, safety.Message)
	default:
		conditions.SetTrue(v1alpha1.ConditionTypeGateSafe)
	}
	return nil
}

func (c *Controller) unsafe(gpuPool *v1alpha1.GPUPool, conditions status.ConditionSet, reason, message string) {
	if was := conditions.Get(v1alpha1.ConditionTypeGateSafe); !was.IsFalse() || was.Message != message {
		c.recorder.Publish(UnsafeEvent(gpuPool, message))
	}
	conditions.SetFalse(v1alpha1.ConditionTypeGateSafe, reason, message)
}

func startupTaintMessage(node string, nodePools []string) string {
	return fmt.Sprintf("node %s registered without any taint of Karpenter, so that pods may start on it unverified: its image does not take the taints of the launch. "+
		`Let its user data start the kubelet with --register-with-taints=karpenter.sh/unregistered:NoExecute,%s:NoSchedule, and add {"key":%q,"effect":"NoSchedule"} to spec.template.spec.startupTaints of NodePool %s`,
		node, v1alpha1.UnverifiedTaintKey, v1alpha1.UnverifiedTaintKey, strings.Join(nodePools, ", "))
}

// verification tells of storms. Single nodes that fail have events of their own.
func (c *Controller) verification(pool *pools.Pool, conditions status.ConditionSet) {
	storm, ok := c.book.Storm(pool.Name())
	if !ok {
		conditions.SetTrue(v1alpha1.ConditionTypeVerificationHealthy)
		return
	}
	// The message begins with the storm's reason and message, by which Recall knows it.
	conditions.SetFalse(v1alpha1.ConditionTypeVerificationHealthy, v1alpha1.ReasonVerificationFailing, fmt.Sprintf(
		"%s: %s", storm.Reason, lo.CoalesceOrEmpty(strings.TrimSuffix(storm.Message, stormAdvice(pool)), "no message")+stormAdvice(pool)))
}

func stormAdvice(pool *pools.Pool) string {
	return fmt.Sprintf("; all new nodes fail so, and at most %d are in trial until one is verified. Look at the image and the NodeClass of NodePool %s",
		pool.GPUPool.Spec.Readiness.GetMaxConcurrentTrials(), strings.Join(pool.NodePools, ", "))
}

// health counts nodes that were verified and are fenced, and those with faulty partitions.
func (c *Controller) health(ctx context.Context, pool *pools.Pool, conditions status.ConditionSet) error {
	counts := map[readiness.State]int{}
	example := map[readiness.State]string{}
	for _, nodePool := range pool.NodePools {
		nodes := &corev1.NodeList{}
		if err := c.client.List(ctx, nodes, client.MatchingLabels{karpv1.NodePoolLabelKey: nodePool}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing nodes, %w", err)
		}
		for i := range nodes.Items {
			state := readiness.StateOf(&nodes.Items[i])
			counts[state]++
			if name := nodes.Items[i].Name; example[state] == "" || name < example[state] {
				example[state] = name
			}
		}
	}
	var told []string
	for _, kind := range []struct {
		state readiness.State
		what  string
	}{{readiness.StateFaulty, "fenced because of GPU faults"}, {readiness.StateDegraded, "working with faulty partitions"}} {
		if n := counts[kind.state]; n > 0 {
			told = append(told, fmt.Sprintf("%d %s %s, such as %s", n, lo.Ternary(n == 1, "node is", "nodes are"), kind.what, example[kind.state]))
		}
	}
	if len(told) == 0 {
		conditions.SetTrue(v1alpha1.ConditionTypeGPUsHealthy)
		return nil
	}
	conditions.SetFalse(v1alpha1.ConditionTypeGPUsHealthy, v1alpha1.ReasonNodesFenced,
		strings.Join(told, "; ")+". Karpenter's node repair reboots or replaces fenced nodes where its feature gate NodeRepair is on; kubectl describe node says what is wrong")
	return nil
}
