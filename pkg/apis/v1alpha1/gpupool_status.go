package v1alpha1

import (
	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions that make a pool Ready: while one of them is not True, the pool does less
// than its spec says, and its message says what to change.
const (
	// ConditionTypeValidationSucceeded says whether RuntimeValidate accepts the spec. While
	// it is False, the NodePools of the pool behave as plain Karpenter.
	ConditionTypeValidationSucceeded = "ValidationSucceeded"
	// ConditionTypeNodePoolsResolved says whether NodePools have joined the pool and all of
	// them can be used.
	ConditionTypeNodePoolsResolved = "NodePoolsResolved"
	// ConditionTypePartitioningSupported says whether the NodePools allow instance types whose
	// GPUs can be divided as partitioning asks. It is True with reason TypesExcluded when some
	// types had to be left out and others remain.
	ConditionTypePartitioningSupported = "PartitioningSupported"
	// ConditionTypeGateSafe says whether the gate can open: every DaemonSet that a node needs
	// to be verified tolerates the taint of the gate, and nodes start with that taint.
	ConditionTypeGateSafe = "GateSafe"
)

// Conditions that tell how the pool fares. They do not make it unready: they follow the
// cloud, the hardware and the budget, and not the spec.
const (
	// ConditionTypeCapacityAvailable is False while pods wait because no offering that
	// selection allows has capacity, a quota is used up, or maxUnusedGPUs refuses the launch.
	ConditionTypeCapacityAvailable = "CapacityAvailable"
	// ConditionTypeVerificationHealthy is False while new nodes fail verification for reasons
	// that they share, and trials are therefore held to readiness.maxConcurrentTrials.
	ConditionTypeVerificationHealthy = "VerificationHealthy"
	// ConditionTypeGPUsHealthy is False while verified nodes are fenced because of a fault.
	ConditionTypeGPUsHealthy = "GPUsHealthy"
	// ConditionTypeWithinLimits is False while a limit holds back a launch.
	ConditionTypeWithinLimits = "WithinLimits"
	// ConditionTypeWarmCapacityReady is False while a warm entry has less ready than it wants.
	ConditionTypeWarmCapacityReady = "WarmCapacityReady"
	// ConditionTypeReclaimUnblocked is False while nodes that are empty for longer than
	// reclaim.emptyAfter have to stay, because of a budget or do-not-disrupt.
	ConditionTypeReclaimUnblocked = "ReclaimUnblocked"
)

// Reasons of conditions. A condition that is True for no special reason has its own type
// as reason, as operatorpkg sets it.
const (
	// ReasonInvalidSpec is a ValidationSucceeded=False: RuntimeValidate refuses the spec.
	ReasonInvalidSpec = "InvalidSpec"

	// ReasonNoNodePools is a NodePoolsResolved=False: no NodePool carries the pool's label.
	ReasonNoNodePools = "NoNodePools"
	// ReasonNodePoolsNotReady is a NodePoolsResolved=False: NodePools of the pool are not ready.
	ReasonNodePoolsNotReady = "NodePoolsNotReady"

	// ReasonTypesExcluded is a PartitioningSupported=True: some types cannot be divided so.
	ReasonTypesExcluded = "TypesExcluded"
	// ReasonNoSupportedTypes is a PartitioningSupported=False: no type can be divided so.
	ReasonNoSupportedTypes = "NoSupportedTypes"

	// ReasonGateDisabled is a GateSafe=True: the gate is None.
	ReasonGateDisabled = "GateDisabled"
	// ReasonTaintNotTolerated is a GateSafe=False: a DaemonSet does not tolerate the taint.
	ReasonTaintNotTolerated = "TaintNotTolerated"
	// ReasonStartupTaintMissing is a GateSafe=False: the provider cannot start nodes with the
	// taint, so that the NodePool has to list it in startupTaints.
	ReasonStartupTaintMissing = "StartupTaintMissing"
	// ReasonAgentMissing is a GateSafe=False: no agent runs where it would report.
	ReasonAgentMissing = "AgentMissing"

	// ReasonInsufficientCapacity is a CapacityAvailable=False: the cloud has none to sell.
	ReasonInsufficientCapacity = "InsufficientCapacity"
	// ReasonQuotaExceeded is a CapacityAvailable=False: the account's quota is used up.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonOversizeRefused is a CapacityAvailable=False: maxUnusedGPUs refuses all launches.
	ReasonOversizeRefused = "OversizeRefused"

	// ReasonVerificationFailing is a VerificationHealthy=False: launches fail in the same way.
	ReasonVerificationFailing = "VerificationFailing"
	// ReasonNodesFenced is a GPUsHealthy=False: nodes or partitions are fenced.
	ReasonNodesFenced = "NodesFenced"

	// ReasonGPULimitReached is a WithinLimits=False: limits.gpus holds back a launch.
	ReasonGPULimitReached = "GPULimitReached"
	// ReasonPriceLimitReached is a WithinLimits=False: limits.pricePerHour holds back a launch.
	ReasonPriceLimitReached = "PriceLimitReached"

	// ReasonFilling is a WarmCapacityReady=False: nodes are on their way.
	ReasonFilling = "Filling"
	// ReasonBuffersDisabled is a WarmCapacityReady=False: the feature gate CapacityBuffer is off.
	ReasonBuffersDisabled = "BuffersDisabled"
	// ReasonBudgetReached is a WarmCapacityReady=False: maxPricePerHour or a limit holds it back.
	ReasonBudgetReached = "BudgetReached"
	// ReasonReferenceNotFound is a WarmCapacityReady=False: a pod template or workload is missing.
	ReasonReferenceNotFound = "ReferenceNotFound"

	// ReasonBudgetBlocks is a ReclaimUnblocked=False: a disruption budget allows no removal.
	ReasonBudgetBlocks = "BudgetBlocks"
	// ReasonDoNotDisrupt is a ReclaimUnblocked=False: a node or pod forbids disruption.
	ReasonDoNotDisrupt = "DoNotDisrupt"
)

// GPUPoolStatus is what the controllers have observed.
type GPUPoolStatus struct {
	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// nodePools is the number of NodePools that have joined the pool.
	// +optional
	NodePools int32 `json:"nodePools"`
	// nodes is the number of nodes of the pool, launched or registered.
	// +optional
	Nodes int32 `json:"nodes"`
	// gpus are the physical GPUs of the pool's nodes by state.
	// +optional
	GPUs GPUCounts `json:"gpus,omitzero"`
	// pricePerHour is the price of the pool's nodes in US dollars per hour, such as "38.49".
	// Reserved nodes count at the price that Karpenter gives them.
	// +kubebuilder:validation:MaxLength=24
	// +optional
	PricePerHour string `json:"pricePerHour,omitempty"`
	// layouts are the MIG layouts that nodes of the pool have, by name. Beyond 64 layouts the
	// rarest are left out.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Layouts []LayoutStatus `json:"layouts,omitempty"`
	// avoided are the offerings whose nodes fail verification, set aside now or tried again
	// within the last hour. Beyond 64 those that are set aside the longest remain. A
	// controller that starts goes on from here.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Avoided []AvoidedOffering `json:"avoided,omitempty"`
	// warm is the state of each warm entry, in the order of the spec.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Warm []WarmStatus `json:"warm,omitempty"`
	// conditions say which promises of the spec hold. Ready sums up ValidationSucceeded,
	// NodePoolsResolved, PartitioningSupported and GateSafe; CapacityAvailable,
	// VerificationHealthy, GPUsHealthy, WithinLimits, WarmCapacityReady and
	// ReclaimUnblocked tell how the pool fares.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Conditions []status.Condition `json:"conditions,omitempty"`
}

// GPUCounts are physical GPUs by state. ready, provisioning and unhealthy add up to total.
type GPUCounts struct {
	// ready is the number of verified GPUs that take work, warm ones included.
	// +optional
	Ready int32 `json:"ready"`
	// provisioning is the number of GPUs of nodes that are launched and not yet verified.
	// +optional
	Provisioning int32 `json:"provisioning"`
	// warm is the number of ready GPUs that are held for warm entries.
	// +optional
	Warm int32 `json:"warm"`
	// unhealthy is the number of GPUs of nodes that are fenced because of a fault.
	// +optional
	Unhealthy int32 `json:"unhealthy"`
	// total is the number of all GPUs of the pool; limits.gpus bounds it.
	// +optional
	Total int32 `json:"total"`
}

// LayoutStatus counts the nodes that have one MIG layout.
type LayoutStatus struct {
	// name is the layout, as in the label karpenter-gpu.dev/layout.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`
	// nodes is the number of nodes with this layout.
	// +optional
	Nodes int32 `json:"nodes"`
}

// AvoidedOffering is an instance type in a zone whose nodes fail verification.
type AvoidedOffering struct {
	// nodeClass is the name of the NodeClass that the nodes were launched with.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	NodeClass string `json:"nodeClass,omitempty"`
	// instanceType is the instance type.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// zone is the zone.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Zone string `json:"zone,omitempty"`
	// image is the ID of the image that the nodes ran. A node with another image ends it.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Image string `json:"image,omitempty"`
	// failures is how many tries have failed in a row; nodes that were launched together are
	// one try.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// reason is why the last node failed.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Reason string `json:"reason,omitempty"`
	// lastLaunch is when the last node that failed was launched.
	// +optional
	LastLaunch metav1.Time `json:"lastLaunch,omitzero"`
	// until is when the offering is tried again, or was: one more failure then sets it aside
	// for twice as long, up to 16 minutes.
	// +optional
	Until metav1.Time `json:"until,omitzero"`
}

// WarmUnit is what the amounts of a warm entry count.
// +kubebuilder:validation:Enum=GPUs;Partitions;Pods
type WarmUnit string

const (
	// WarmUnitGPUs counts physical GPUs.
	WarmUnitGPUs WarmUnit = "GPUs"
	// WarmUnitPartitions counts MIG partitions of all profiles of the entry.
	WarmUnitPartitions WarmUnit = "Partitions"
	// WarmUnitPods counts pods of the template or workload.
	WarmUnitPods WarmUnit = "Pods"
)

// WarmStatus is the state of one warm entry.
type WarmStatus struct {
	// name is the entry.
	// +kubebuilder:validation:MaxLength=32
	// +required
	Name string `json:"name"`
	// unit is what the amounts count: GPUs, Partitions or Pods.
	// +optional
	Unit WarmUnit `json:"unit,omitempty"`
	// wanted is the amount that the entry holds now by its schedule and price. A limit of the
	// pool may hold some of it back.
	// +optional
	Wanted int32 `json:"wanted"`
	// ready is the amount that is verified, holds its images and waits for pods.
	// +optional
	Ready int32 `json:"ready"`
	// provisioning is the amount that is on its way.
	// +optional
	Provisioning int32 `json:"provisioning"`
	// since is when wanted, or whether ready meets it, last changed.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// nextChange is when the schedule changes wanted next. Unset: never.
	// +optional
	NextChange *metav1.Time `json:"nextChange,omitempty"`
	// message says what keeps ready below wanted, and what to do about it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// StatusConditions returns the conditions of the pool, with the absent ones that make it
// Ready set to Unknown. Pass status.WithClock in controllers.
func (p *GPUPool) StatusConditions(opts ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions(
		ConditionTypeValidationSucceeded,
		ConditionTypeNodePoolsResolved,
		ConditionTypePartitioningSupported,
		ConditionTypeGateSafe,
	).For(p, opts...)
}

// GetConditions returns the conditions as they are stored.
func (p *GPUPool) GetConditions() []status.Condition {
	return p.Status.Conditions
}

// SetConditions replaces the stored conditions.
func (p *GPUPool) SetConditions(conditions []status.Condition) {
	p.Status.Conditions = conditions
}
