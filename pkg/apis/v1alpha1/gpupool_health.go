package v1alpha1

// XIDAction is what an XID event does to its node.
// +kubebuilder:validation:Enum=Ignore;Warn;Fence;Reboot;Replace
type XIDAction string

const (
	// XIDActionIgnore counts the event and leaves the node alone: the application's fault.
	XIDActionIgnore XIDAction = "Ignore"
	// XIDActionWarn reports the event and leaves the node alone.
	XIDActionWarn XIDAction = "Warn"
	// XIDActionFence keeps new pods off the node until its GPU has been reset.
	XIDActionFence XIDAction = "Fence"
	// XIDActionReboot fences the node and lets node repair reboot it.
	XIDActionReboot XIDAction = "Reboot"
	// XIDActionReplace fences the node and lets node repair replace it.
	XIDActionReplace XIDAction = "Replace"
)

// Health says what becomes of a node whose GPUs break after it was verified.
type Health struct {
	// xidPolicies change what single XID codes do; a code that is not listed keeps its
	// built-in action. A code stands in one policy only. Unset: the built-in table.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(p, p.codes.all(c, self.exists_one(q, c in q.codes)))",message="an XID code stands in two xidPolicies, so its action is not clear; keep it in one of them"
	// +optional
	XIDPolicies []XIDPolicy `json:"xidPolicies,omitempty"`
	// maxFencedPartitions is how many MIG partitions of one node may be fenced, each for a
	// fault of its own, before the whole node is fenced and repaired. 0 fences the node at
	// the first fault. From 0 to 112. Defaults to 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=112
	// +optional
	MaxFencedPartitions *int32 `json:"maxFencedPartitions,omitempty"`
}

// XIDPolicy gives some XID codes an action.
type XIDPolicy struct {
	// codes are NVIDIA's XID numbers, from 1 to 9999.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=9999
	// +required
	Codes []int32 `json:"codes"`
	// action is Ignore (the application's own fault), Warn (reported, nothing else), Fence
	// (no new pods until the GPU has been reset), Reboot or Replace (no new pods, and
	// Karpenter's node repair reboots or replaces the node, where its feature gate is on).
	// +required
	Action XIDAction `json:"action"`
}
