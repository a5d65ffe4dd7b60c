package v1alpha1

// Annotations of ours on Nodes that the readiness gate keeps. Only the controller writes
// them: the agent's ServiceAccount may not.
const (
	// VerifiedBootAnnotationKey holds the boot ID in which the node was verified last. A node
	// takes work while it equals the node's present boot ID and the node is not fenced.
	VerifiedBootAnnotationKey = Group + "/verified-boot"
	// RepairHeldAnnotationKey marks a node whose karpenter.sh/do-not-repair was set by us,
	// because only few of its partitions are at fault. Without the mark, do-not-repair is an
	// administrator's and stays.
	RepairHeldAnnotationKey = Group + "/repair-held"
	// PolicyAnnotationKey tells the agent of a node what its pool demands: the part of a
	// policy file that readiness and health of the pool set.
	PolicyAnnotationKey = Group + "/policy"
)
