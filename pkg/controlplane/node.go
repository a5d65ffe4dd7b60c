package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// NodeAnnotation with the value NodeAnnotationValue hands a Node to KWOK for good:
	// KWOK then keeps its lease until the Node is deleted, so never take it away again.
	//
	// KWOK sets the kubelet's four conditions (Ready and the pressures) as soon as the Node
	// exists, and an InternalIP and Hostname if it has no addresses. Capacity, allocatable,
	// nodeInfo, labels, taints and every other condition are the caller's: KWOK never
	// touches them. Create the Node when its machine has booted.
	//
	// A pod bound to the node runs at once, whatever its images and init containers; a pod
	// that is deleted is gone at once, whatever its grace period.
	NodeAnnotation = "kwok.x-k8s.io/node"
	// NodeAnnotationValue is what NodeAnnotation must say.
	NodeAnnotationValue = "fake"

	// RunForAnnotation on a pod of restart policy Never or OnFailure is how long it runs
	// until it succeeds, as a Go duration such as "20s". It counts in whole seconds from
	// status.startTime, which the API stores in seconds too, so that a pod may end up to
	// one second early. A pod without it, or with one that does not parse, runs on.
	RunForAnnotation = "sandbox.karpenter-gpu.dev/run-for"

	// DownAnnotation is "true" on a Node whose machine is dead; SetNodeDown sets it. By
	// itself it ends KWOK's status updates, but not the renewals of the lease, which are
	// what keeps a node Ready.
	DownAnnotation = "sandbox.karpenter-gpu.dev/down"

	// StrandedAnnotation is "true" on the pods of such a node: they neither succeed nor go.
	StrandedAnnotation = "sandbox.karpenter-gpu.dev/stranded"

	downHolder = "sandbox.karpenter-gpu.dev/down"
)

// SetNodeDown makes a KWOK node behave as one whose machine has died: its lease is no
// longer renewed, so that after Options.NodeMonitorGracePeriod its Ready condition turns
// Unknown, and its pods stay as they are, also when they are deleted. This holds across a
// restart of KWOK. Repeating it is harmless.
//
// KWOK cannot be told to let go of a node, but it respects a lease that another holds. So
// the lease passes, with a last sign of life, to a holder that never renews it, for longer
// than any sandbox lives.
//
// api must read from the API server, not from a cache.
func SetNodeDown(ctx context.Context, api client.Client, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := annotate(ctx, api, node, DownAnnotation, "true"); err != nil {
		return fmt.Errorf("taking node %s down, %w", name, err)
	}
	if err := updateLease(ctx, api, name, holdLease); err != nil {
		return fmt.Errorf("taking node %s down, %w", name, err)
	}
	if err := annotatePods(ctx, api, name, "true"); err != nil {
		return fmt.Errorf("taking node %s down, %w", name, err)
	}
	return nil
}

// holdLease moves the renew time by the least that the API can tell. The node lifecycle
// controller declares no node dead while the lease on the server is another version than
// the one that it took the last renew time from, which would be for ever.
func holdLease(lease *coordinationv1.Lease) {
	if ptr.Deref(lease.Spec.HolderIdentity, "") == downHolder {
		return
	}
	lease.Spec.HolderIdentity = ptr.To(downHolder)
	lease.Spec.LeaseDurationSeconds = ptr.To[int32](math.MaxInt32)
	if lease.Spec.RenewTime != nil {
		lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(lease.Spec.RenewTime.Add(time.Microsecond)))
	}
}

// SetNodeUp undoes SetNodeDown: KWOK takes the node back at its next look, a quarter of
// the lease later at most, and its pods go on.
func SetNodeUp(ctx context.Context, api client.Client, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := annotate(ctx, api, node, DownAnnotation, ""); err != nil {
		return fmt.Errorf("bringing node %s up, %w", name, err)
	}
	if err := annotatePods(ctx, api, name, ""); err != nil {
		return fmt.Errorf("bringing node %s up, %w", name, err)
	}
	err := updateLease(ctx, api, name, func(lease *coordinationv1.Lease) {
		lease.Spec.LeaseDurationSeconds = ptr.To[int32](1)
		lease.Spec.RenewTime = nil
	})
	if err != nil {
		return fmt.Errorf("bringing node %s up, %w", name, err)
	}
	return nil
}

// updateLease changes a node's lease; it makes one where KWOK has not come to that yet.
func updateLease(ctx context.Context, api client.Client, name string, change func(*coordinationv1.Lease)) error {
	again := func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
	}
	return retry.OnError(retry.DefaultBackoff, again, func() error {
		lease := &coordinationv1.Lease{}
		err := api.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: name}, lease)
		if apierrors.IsNotFound(err) {
			return createLease(ctx, api, name, change)
		}
		if err != nil {
			return fmt.Errorf("reading the lease, %w", err)
		}
		change(lease)
		if err := api.Update(ctx, lease); err != nil {
			return fmt.Errorf("updating the lease, %w", err)
		}
		return nil
	})
}

func createLease(ctx context.Context, api client.Client, name string, change func(*coordinationv1.Lease)) error {
	node := &corev1.Node{}
	if err := api.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return fmt.Errorf("reading the node, %w", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: corev1.NamespaceNodeLease,
		Name:      name,
		// The lease goes with its node.
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}},
	}}
	// KWOK takes a lease without a renew time, whoever holds it. The node's birth is no
	// sign of life that the node has not given already.
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(node.CreationTimestamp.Time))
	change(lease)
	if err := api.Create(ctx, lease); err != nil {
		return fmt.Errorf("creating the lease, %w", err)
	}
	return nil
}

func annotatePods(ctx context.Context, api client.Client, node, value string) error {
	pods := &corev1.PodList{}
	if err := api.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return fmt.Errorf("listing pods, %w", err)
	}
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if err := client.IgnoreNotFound(annotate(ctx, api, pod, StrandedAnnotation, value)); err != nil {
			errs = append(errs, fmt.Errorf("pod %s, %w", client.ObjectKeyFromObject(pod), err))
		}
	}
	return errors.Join(errs...)
}

// annotate sets an annotation, or removes it for an empty value.
func annotate(ctx context.Context, api client.Client, object client.Object, key, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, key)
	}
	if err := api.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return fmt.Errorf("annotating, %w", err)
	}
	return nil
}
