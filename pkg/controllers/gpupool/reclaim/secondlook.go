package reclaim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
)

// seen is what the API server says of a staged node; nil where it has no such object.
type seen struct {
	node  *corev1.Node
	claim *karpv1.NodeClaim
	pods  []*corev1.Pod
}

// verdict says what becomes of a node at its second look.
type verdict int

const (
	unknown verdict = iota
	goes
	// gone needs nothing: somebody else removes the node, or has.
	gone
	// untainted has lost its taint meanwhile.
	untainted
	stays
)

// secondLook reads from the API server and not from the cache, which may not know yet of a pod
// that was bound just now. The node comes first: a pod that the list lacks was not bound
// before the taint was there to see.
func (c *Controller) secondLook(ctx context.Context, s *staged) (seen, error) {
	found := seen{node: &corev1.Node{}, claim: &karpv1.NodeClaim{}}
	if err := c.Reader.Get(ctx, types.NamespacedName{Name: s.node}, found.node); err != nil {
		return seen{}, ignoreMissing(err, "getting node")
	}
	if err := c.Reader.Get(ctx, types.NamespacedName{Name: s.claim}, found.claim); err != nil {
		return seen{}, ignoreMissing(err, "getting node claim")
	}
	var err error
	found.pods, err = podsOn(ctx, c.Reader, s.node)
	return found, err
}

func ignoreMissing(err error, doing string) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf("%s, %w", doing, err)
}

// judge holds a staged node against every rule once more.
func (c *Controller) judge(s *staged, now seen, r rules) (verdict, string) {
	if now.node == nil || now.claim == nil || !s.same(now) {
		return gone, ""
	}
	if pod := occupied(now.pods, c.Clock); pod != nil {
		return stays, fmt.Sprintf("pod %s was bound to it meanwhile", klog.KObj(pod))
	}
	if !tainted(now.node) {
		return untainted, ""
	}
	if why := c.forbidden(now.node, now.claim, now.pods, r); why != "" {
		return stays, why
	}
	switch {
	case now.node.Labels[karpv1.NodeInitializedLabelKey] != "true":
		return stays, "it is not initialized any more"
	case c.Cluster.IsNodeNominated(s.providerID):
		return stays, "it is nominated for a pending pod"
	case c.Cluster.HasBufferPods(s.providerID):
		return stays, "it holds a capacity buffer"
	case now.claim.StatusConditions().IsTrue(karpv1.ConditionTypeRebooting):
		return stays, "it is rebooting"
	}
	return goes, ""
}

// same is false where an object goes already, or is another one of the same name.
func (s *staged) same(now seen) bool {
	return now.node.UID == s.nodeUID && now.node.DeletionTimestamp.IsZero() && now.claim.UID == s.claimUID && now.claim.DeletionTimestamp.IsZero()
}

// isDisruptable is Karpenter's rule for pods without its events: those of nodes that go are
// told by Karpenter, those of nodes that stay by the condition of the pool.
func isDisruptable(pod *corev1.Pod, clk clock.Clock) bool {
	return podutils.IsDisruptable(pod, clk, nil)
}
