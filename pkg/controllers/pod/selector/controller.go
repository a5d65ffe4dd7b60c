// Package selector tells the owners of pending pods when no node can ever have the
// GPU labels or partitions that the pod asks for, and what comes nearest.
//
// Karpenter's own event lists every NodePool with the reason why it did not fit. A
// typing error in a product name drowns in that; here it is one sentence.
package selector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

const (
	// again is how often a pod that still waits is looked at.
	again = 5 * time.Minute
	// fresh is how long what is possible is remembered.
	fresh = time.Minute
)

// Controller tells of impossible pods.
type Controller struct {
	clock         clock.Clock
	kubeClient    client.Client
	cloudProvider corecloudprovider.CloudProvider
	recorder      events.Recorder
	store         *pools.Store

	mu         sync.Mutex
	known      possible
	generation uint64
	since      time.Time
}

// NewController returns a controller that tells of impossible pods. The
// CloudProvider is the decorated one.
func NewController(clk clock.Clock, kubeClient client.Client, cloudProvider corecloudprovider.CloudProvider, recorder events.Recorder, store *pools.Store) *Controller {
	return &Controller{clock: clk, kubeClient: kubeClient, cloudProvider: cloudProvider, recorder: recorder, store: store}
}

// Name is the controller's name in logs and metrics.
func (c *Controller) Name() string { return "pod.selector" }

// Reconcile looks at one pending pod.
func (c *Controller) Reconcile(ctx context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !podutils.IsProvisionable(pod) || len(c.store.Pools()) == 0 {
		return reconcile.Result{}, nil
	}
	known, err := c.possible(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if problem := known.problem(pod); problem != "" {
		c.recorder.Publish(ImpossibleEvent(pod, problem))
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// possible returns what nodes of the pools can have, from memory while it is fresh.
func (c *Controller) possible(ctx context.Context) (possible, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	generation := c.store.Generation()
	if c.generation == generation && c.clock.Since(c.since) < fresh {
		return c.known, nil
	}
	var nodePools karpv1.NodePoolList
	if err := c.kubeClient.List(ctx, &nodePools); err != nil {
		return possible{}, fmt.Errorf("listing nodepools, %w", err)
	}
	var nodes corev1.NodeList
	if err := c.kubeClient.List(ctx, &nodes); err != nil {
		return possible{}, fmt.Errorf("listing nodes, %w", err)
	}
	known := newPossible()
	for i := range nodes.Items {
		known.addNode(&nodes.Items[i])
	}
	for i := range nodePools.Items {
		n := &nodePools.Items[i]
		its, err := c.cloudProvider.GetInstanceTypes(ctx, n)
		if err != nil {
			return possible{}, fmt.Errorf("getting instance types of nodepool %s, %w", n.Name, err)
		}
		known.addTypes(n, its)
	}
	c.known, c.generation, c.since = known, generation, c.clock.Now()
	return known, nil
}

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			pod, ok := o.(*corev1.Pod)
			return ok && pod.Spec.NodeName == "" && asksForOurs(pod)
		}))).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// asksForOurs says that the pod selects a predicted label or asks for a partition.
func asksForOurs(pod *corev1.Pod) bool {
	return len(partitionsOf(pod)) > 0 || lo.SomeBy(termsOf(pod), func(t term) bool { return len(t) > 0 })
}

// ImpossibleEvent says what a pod asks for in vain.
func ImpossibleEvent(pod *corev1.Pod, problem string) events.Event {
	return events.Event{
		InvolvedObject: pod,
		Type:           corev1.EventTypeWarning,
		Reason:         "NoSuchGPU",
		Message:        problem,
		DedupeValues:   []string{string(pod.UID), problem},
		DedupeTimeout:  30 * time.Minute,
	}
}
