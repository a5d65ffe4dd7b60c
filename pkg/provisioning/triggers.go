package provisioning

import (
	"context"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	utilscontroller "sigs.k8s.io/karpenter/pkg/utils/controller"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// Requests are repeated for as long as there is something to provision for: new
// pods may take the place on a coming node that a pod was meant for.
const (
	triggerAgain       = 10 * time.Second
	triggerBufferAgain = 30 * time.Second

	minReconciles = 10
	maxReconciles = 1000
)

func concurrency(ctx context.Context) controller.Options {
	return controller.Options{MaxConcurrentReconciles: utilscontroller.LinearScaleReconciles(utilscontroller.CPUCount(ctx), minReconciles, maxReconciles)}
}

// PodTrigger wakes the provisioner for pods that wait for a node.
type PodTrigger struct {
	provisioner *Provisioner
	cluster     *state.Cluster
}

// Name is that of the controller which it replaces.
func (t *PodTrigger) Name() string { return "provisioner.trigger.pod" }

// Reconcile triggers for a pod, and acknowledges it: the time that pods wait counts
// from there.
func (t *PodTrigger) Reconcile(_ context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	if !podutils.IsProvisionable(pod) {
		return reconcile.Result{}, nil
	}
	t.provisioner.Trigger(pod.UID)
	t.cluster.AckPods(pod)
	return reconcile.Result{RequeueAfter: triggerAgain}, nil
}

// Register adds the controller to the manager.
func (t *PodTrigger) Register(ctx context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).Named(t.Name()).For(&corev1.Pod{}).WithOptions(concurrency(ctx)).
		Complete(reconcile.AsReconciler(m.GetClient(), t))
}

// NodeTrigger wakes the provisioner for nodes that are being emptied, whose pods
// will need a place, for those that hold space for capacity buffers and are fenced, and
// for those that come while it is not known yet which nodes hold it: until a round has
// seen a new node, the cluster state takes it for empty.
type NodeTrigger struct {
	provisioner *Provisioner
	spaces      *Spaces
}

// Name is that of the controller which it replaces.
func (t *NodeTrigger) Name() string { return "provisioner.trigger.node" }

// Reconcile triggers for a node with Karpenter's disruption taint, and once for a node
// with space that has lost its verification: after the round the space is elsewhere. A
// node that is not initialized yet is expected to be verified.
func (t *NodeTrigger) Reconcile(_ context.Context, node *corev1.Node) (reconcile.Result, error) {
	fenced := t.spaces.On(node.Name) && node.Labels[karpv1.NodeInitializedLabelKey] == "true" && lo.ContainsBy(node.Spec.Taints, isUnverified)
	if fenced || t.spaces.Awaits(node) {
		t.provisioner.Trigger(node.UID)
	}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].MatchTaint(&karpv1.DisruptedNoScheduleTaint) {
			t.provisioner.Trigger(node.UID)
			return reconcile.Result{RequeueAfter: triggerAgain}, nil
		}
	}
	return reconcile.Result{}, nil
}

func isUnverified(taint corev1.Taint) bool { return taint.Key == v1alpha1.UnverifiedTaintKey }

// Register adds the controller to the manager.
func (t *NodeTrigger) Register(ctx context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).Named(t.Name()).For(&corev1.Node{}).WithOptions(concurrency(ctx)).
		Complete(reconcile.AsReconciler(m.GetClient(), t))
}

// LaunchTrigger wakes the provisioner when a launch in a pool has failed for good, so
// that the next best offering is tried at once and not with the pods' next turn. A
// failed offering is set aside before its NodeClaim goes (pkg/provisioning/ice), so
// each turn has fewer to try, and with none left there is no NodeClaim to fail.
type LaunchTrigger struct {
	client      client.Client
	provisioner *Provisioner
}

// Name is the controller's.
func (t *LaunchTrigger) Name() string { return "provisioner.trigger.launch" }

// Reconcile triggers for a NodePool, the name in the request, that is in a pool.
func (t *LaunchTrigger) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	nodePool := &karpv1.NodePool{}
	if err := t.client.Get(ctx, req.NamespacedName, nodePool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if nodePool.Labels[v1alpha1.PoolLabelKey] != "" {
		t.provisioner.TriggerReconcile()
	}
	return reconcile.Result{}, nil
}

// Register adds the controller to the manager.
func (t *LaunchTrigger) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).Named(t.Name()).
		Watches(&karpv1.NodeClaim{}, handler.Funcs{DeleteFunc: enqueueFailedLaunch}).Complete(t)
}

// enqueueFailedLaunch asks for the NodePool of a NodeClaim that went without ever
// having had an instance.
func enqueueFailedLaunch(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	claim, ok := e.Object.(*karpv1.NodeClaim)
	if !ok || claim.Status.ProviderID != "" || claim.Labels[karpv1.NodePoolLabelKey] == "" {
		return
	}
	queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: claim.Labels[karpv1.NodePoolLabelKey]}})
}

// BufferTrigger wakes the provisioner for capacity buffers. Karpenter's own buffer
// controller wakes the stock Provisioner, which nothing runs any more. It writes a
// buffer's status before it renews the virtual pods, and the batch that starts here
// waits for longer than that takes.
type BufferTrigger struct {
	client      client.Client
	provisioner *Provisioner
}

// Name is the controller's.
func (t *BufferTrigger) Name() string { return "provisioner.trigger.capacitybuffer" }

// Reconcile triggers for a buffer that exists or has gone.
func (t *BufferTrigger) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	buffer := &autoscalingv1beta1.CapacityBuffer{}
	if err := t.client.Get(ctx, req.NamespacedName, buffer); err != nil {
		if errors.IsNotFound(err) {
			t.provisioner.TriggerReconcile()
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	t.provisioner.Trigger(buffer.UID)
	return reconcile.Result{RequeueAfter: triggerBufferAgain}, nil
}

// Register adds the controller to the manager.
func (t *BufferTrigger) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).Named(t.Name()).For(&autoscalingv1beta1.CapacityBuffer{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: minReconciles}).Complete(t)
}

// UseTrigger wakes the provisioner when a pod takes its place on a node that holds space
// for capacity buffers: what it took is refilled with the next batch, and not when the
// buffer has its turn.
type UseTrigger struct {
	provisioner *Provisioner
	spaces      *Spaces
}

// Name is the controller's.
func (t *UseTrigger) Name() string { return "provisioner.trigger.use" }

// Reconcile triggers for a pod that is bound. The batch that starts here is longer than the
// cluster state takes to see the pod on its node.
func (t *UseTrigger) Reconcile(_ context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	if t.spaces.On(pod.Spec.NodeName) && !podutils.IsTerminal(pod) && !podutils.IsOwnedByDaemonSet(pod) && !podutils.IsOwnedByNode(pod) {
		t.provisioner.Trigger(pod.UID)
	}
	return reconcile.Result{}, nil
}

// Register adds the controller to the manager.
func (t *UseTrigger) Register(ctx context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).Named(t.Name()).For(&corev1.Pod{}, builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return bound(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return bound(e.ObjectNew) && !bound(e.ObjectOld) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})).WithOptions(concurrency(ctx)).Complete(reconcile.AsReconciler(m.GetClient(), t))
}

func bound(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && pod.Spec.NodeName != ""
}
