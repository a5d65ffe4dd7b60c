package readiness

import (
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

// Subject is a node with what it was bought as.
type Subject struct {
	Node *corev1.Node
	// Claim is the node's NodeClaim, Pool the pool that its NodePool has joined.
	Claim *karpv1.NodeClaim
	Pool  *pools.Pool
}

// State is where a node stands between launch and repair.
type State string

// The states of a node of a pool.
const (
	// StateNoGPU: the node has no GPU, so there is nothing to verify.
	StateNoGPU State = "NoGPU"
	// StatePending: not verified in this boot.
	StatePending State = "Pending"
	// StateVerified: verified in this boot, and takes work.
	StateVerified State = "Verified"
	// StateDegraded: verified, and takes work while few of its partitions are at fault.
	StateDegraded State = "Degraded"
	// StateUnverified: takes work without having been verified, because its pool did not gate
	// when it started.
	StateUnverified State = "Unverified"
	// StateFaulty: GPUs are broken, whether the node was verified before or not.
	StateFaulty State = "Faulty"
)

// StateOf tells the state of a node from what the controller wrote on it last: for counts
// and columns. The controller itself decides with a Verifier.
func StateOf(node *corev1.Node) State {
	verified := node.Annotations[v1alpha1.VerifiedBootAnnotationKey]
	switch {
	case Adopted(node):
		return lo.Ternary(Tainted(node), StateFaulty, StateUnverified)
	case verified == "" || verified != node.Status.NodeInfo.BootID:
		return StatePending
	case Tainted(node):
		return StateFaulty
	case node.Annotations[v1alpha1.RepairHeldAnnotationKey] != "":
		return StateDegraded
	}
	return StateVerified
}

// VerifiedThisBoot reports whether the node was verified since it last booted.
func VerifiedThisBoot(node *corev1.Node) bool {
	boot := node.Status.NodeInfo.BootID
	return boot != "" && node.Annotations[v1alpha1.VerifiedBootAnnotationKey] == boot
}

// VerifiedEver reports whether the node was verified in any boot.
func VerifiedEver(node *corev1.Node) bool {
	return node.Annotations[v1alpha1.VerifiedBootAnnotationKey] != ""
}

// Adopted reports whether the node was at work before anybody gated it: it is initialized,
// which the gate's taint prevents, and was never verified.
func Adopted(node *corev1.Node) bool {
	return !VerifiedEver(node) && node.Labels[karpv1.NodeInitializedLabelKey] == "true"
}

// label prefers the NodeClaim's: a kubelet may set labels of its own node.
func (s Subject) label(key string) string {
	if s.Claim != nil && s.Claim.Labels[key] != "" {
		return s.Claim.Labels[key]
	}
	if s.Node != nil {
		return s.Node.Labels[key]
	}
	return ""
}
