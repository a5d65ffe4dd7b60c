package reclaim

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// byPod asks for the pool of the pod's node, and notes the time for pods that occupy it. Of an
// update it is shown the old pod too, so that the end of a pod is noted when it is told.
func (c *Controller) byPod() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		pod := o.(*corev1.Pod)
		if pod.Spec.NodeName == "" {
			return nil
		}
		node := &corev1.Node{}
		if err := c.Client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node); err != nil {
			return nil // a node that goes needs no round
		}
		requests := c.request(node.Labels[karpv1.NodePoolLabelKey])
		if len(requests) > 0 && Occupies(pod, c.Clock) {
			c.ages.touch(node.Name, c.Clock.Now())
		}
		return requests
	})
}

// byNodePool asks for the pool of a Node or NodeClaim.
func (c *Controller) byNodePool() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return c.request(o.GetLabels()[karpv1.NodePoolLabelKey])
	})
}

// request is for the pool of a NodePool, if it reclaims.
func (c *Controller) request(nodePool string) []reconcile.Request {
	pool, ok := c.Pools.ForNodePool(nodePool)
	if !ok {
		return nil
	}
	if _, set := pool.GPUPool.Spec.Reclaim.GetEmptyAfter(); !set {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pool.Name()}}}
}

// podChanges lets those changes through that make a node empty or not, or free to go or not.
func podChanges(clk clock.Clock) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, now := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return old.Spec.NodeName != now.Spec.NodeName || Occupies(old, clk) != Occupies(now, clk) ||
			isDisruptable(old, clk) != isDisruptable(now, clk)
	}}
}

// nodeChanges lets everything through but what kubelets report all the time.
func nodeChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return !maps.Equal(old.Labels, now.Labels) || !slices.Equal(old.Spec.Taints, now.Spec.Taints) ||
			old.Annotations[karpv1.DoNotDisruptAnnotationKey] != now.Annotations[karpv1.DoNotDisruptAnnotationKey] ||
			old.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero()
	}}
}
