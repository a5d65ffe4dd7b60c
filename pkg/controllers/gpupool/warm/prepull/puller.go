// Package prepull has container images pulled to nodes before work needs them.
//
// Each node gets one pod with a container for each image that the node does not hold yet.
// The containers name a command that no image has: the kubelet pulls the image, cannot start
// the container, and gives up. So nothing of the image ever runs, and images without a shell
// work like any other. That the image is there is read off the node's own list, or off the
// pod while the kubelet has not listed it: a kubelet lists its fifty largest images only.
//
// A bounded number of pods pull at a time in each pool, so that a registry that serves a
// hundred new nodes is not asked by all of them at once. Nodes that are not wanted any more,
// because work has taken them, lose their pod and with it their turn.
//
// The pods belong to their Node as mirror pods do: Karpenter neither counts them as work nor
// waits for them, and they go with the node. They are in the controller's namespace, where
// the pull secrets are read.
package prepull

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

const (
	// MaxParallel is how many nodes of one pool pull at a time.
	MaxParallel = 10
	// again is how long after its creation a pod that ended without having pulled, as when
	// the kubelet would not take it, is replaced.
	again = 30 * time.Second
)

// Need is what a node should hold.
type Need struct {
	Node *corev1.Node
	// Images are as in the container of a pod.
	Images []string
	// Secrets are names of pull secrets in the controller's namespace.
	Secrets []string
}

// Puller keeps the pods that pull.
type Puller struct {
	clock     clock.PassiveClock
	client    client.Client
	namespace string
}

// NewPuller returns a Puller that makes pods in a namespace.
func NewPuller(clk clock.PassiveClock, c client.Client, namespace string) *Puller {
	return &Puller{clock: clk, client: c, namespace: namespace}
}

// Sync brings the pods of a pool to what its nodes need, by the names of nodes.
func (p *Puller) Sync(ctx context.Context, pool string, needs map[string]*Need) (*Report, error) {
	pods, err := p.list(ctx, pool)
	if err != nil {
		return nil, err
	}
	report := &Report{held: map[string]map[string]bool{}, failures: map[string]string{}}
	var queue []string
	pulling := 0
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		need, pod := needs[name], pods[name]
		missing := report.readNode(need)
		switch {
		case len(missing) == 0: // and a pod has done its work
		case pod == nil:
			queue = append(queue, name)
		case p.serves(pod, need):
			delete(pods, name)
			if report.readPod(name, pod) {
				pulling++
			}
		}
	}
	if err := p.delete(ctx, pods); err != nil {
		return nil, err
	}
	for _, name := range queue[:min(len(queue), max(0, MaxParallel-pulling))] {
		if err := p.client.Create(ctx, p.pod(pool, needs[name])); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("creating image puller for node %s, %w", name, err)
		}
	}
	return report, nil
}

// Forget deletes the pods of a pool that is gone.
func (p *Puller) Forget(ctx context.Context, pool string) error {
	pods, err := p.list(ctx, pool)
	if err != nil {
		return err
	}
	return p.delete(ctx, pods)
}

// Is reports whether an object is a pod that pulls images.
func Is(o client.Object) bool { return o.GetLabels()[pullerKey] == "true" }

// list returns the pods of a pool by node.
func (p *Puller) list(ctx context.Context, pool string) (map[string]*corev1.Pod, error) {
	var list corev1.PodList
	if err := p.client.List(ctx, &list, client.InNamespace(p.namespace), client.MatchingLabels{pullerKey: "true", v1alpha1.PoolLabelKey: pool}); err != nil {
		return nil, fmt.Errorf("listing image pullers, %w", err)
	}
	return lo.KeyBy(lo.ToSlicePtr(list.Items), func(pod *corev1.Pod) string { return pod.Spec.NodeName }), nil
}

func (p *Puller) delete(ctx context.Context, pods map[string]*corev1.Pod) error {
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		if !pods[name].DeletionTimestamp.IsZero() {
			continue
		}
		if err := p.client.Delete(ctx, pods[name]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting image puller of node %s, %w", name, err)
		}
	}
	return nil
}

// serves reports whether a pod does what a node needs and has not ended in vain.
func (p *Puller) serves(pod *corev1.Pod, need *Need) bool {
	if pod.Annotations[imagesKey] != digest(need) || !pod.DeletionTimestamp.IsZero() {
		return false
	}
	vain := pod.Status.Phase == corev1.PodFailed && len(pod.Status.ContainerStatuses) == 0
	return !vain || p.clock.Since(pod.CreationTimestamp.Time) < again
}
