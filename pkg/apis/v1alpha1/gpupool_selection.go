package v1alpha1

// Objective is what the choice of nodes aims for.
// +kubebuilder:validation:Enum=Cost;Stock
type Objective string

const (
	// ObjectiveCost repacks Karpenter's decision into the cheapest set of nodes.
	ObjectiveCost Objective = "Cost"
	// ObjectiveStock keeps Karpenter's decision.
	ObjectiveStock Objective = "Stock"
)

// CapacityType is a way to buy a node, with the values of karpenter.sh/capacity-type.
// +kubebuilder:validation:Enum=reserved;spot;on-demand
type CapacityType string

const (
	// CapacityTypeReserved is capacity that is paid for already.
	CapacityTypeReserved CapacityType = "reserved"
	// CapacityTypeSpot is spare capacity that can be taken back.
	CapacityTypeSpot CapacityType = "spot"
	// CapacityTypeOnDemand is capacity at list price.
	CapacityTypeOnDemand CapacityType = "on-demand"
)

// Selection says which of the possible nodes are launched for pending pods. It chooses
// among what the NodePools allow and never widens it.
type Selection struct {
	// objective is Cost or Stock. Cost: the pods of new nodes are repacked into the
	// cheapest set of nodes, and Karpenter's own decision stands unless that is strictly
	// cheaper. Stock: Karpenter's decision always stands. Defaults to Cost.
	// +kubebuilder:default=Cost
	// +optional
	Objective Objective `json:"objective,omitempty"`
	// maxUnusedGPUs is the greatest number of physical GPUs that one launch may leave
	// without a pod. A pod that cannot be placed under it waits, with an event that names
	// the cheapest launch refused and its price. Unset: no cap.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxUnusedGPUs *int32 `json:"maxUnusedGPUs,omitempty"`
	// capacityTypes are the ways to buy a node, in the order in which they are tried: the
	// next one is taken when the one before it is out of capacity. A way that is not
	// listed is not used. Unset: Karpenter's order, reserved first and then by price.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, u == t))",message="capacityTypes is an order, so each of reserved, spot and on-demand stands in it once; remove the second mention"
	// +optional
	CapacityTypes []CapacityType `json:"capacityTypes,omitempty"`
	// priceTolerancePercent is how much dearer than the cheapest an instance type may be,
	// in percent, and still be offered to the cloud as its equal, so that spot and scarce
	// types keep alternatives. 0 keeps types of equal price only. Defaults to 10.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	PriceTolerancePercent *int32 `json:"priceTolerancePercent,omitempty"`
}
