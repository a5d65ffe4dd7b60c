package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUPool says how the GPUs of the NodePools that join it are handed out, chosen,
// verified, repaired, kept warm and bounded. A NodePool joins by the label
// karpenter-gpu.dev/pool: <name> in its metadata.labels. A pool that is invalid or
// not Ready never stops its NodePools: they behave as plain Karpenter, and the
// conditions of the pool say why.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=gpupools,scope=Cluster,categories=karpenter,shortName=gpool
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="GPUs-Ready",type="integer",JSONPath=".status.gpus.ready",description="Verified GPUs that take work"
// +kubebuilder:printcolumn:name="Provisioning",type="integer",JSONPath=".status.gpus.provisioning",description="GPUs of nodes that are launched and not yet verified"
// +kubebuilder:printcolumn:name="Warm",type="integer",JSONPath=".status.gpus.warm",description="Ready GPUs that are held for warm entries"
// +kubebuilder:printcolumn:name="Unhealthy",type="integer",JSONPath=".status.gpus.unhealthy",description="GPUs fenced off because of a fault"
// +kubebuilder:printcolumn:name="Price/h",type="string",JSONPath=".status.pricePerHour",description="Price of the pool's nodes in US dollars per hour"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the pool does all that its spec asks for"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the pool was created"
// +kubebuilder:printcolumn:name="Total",type="integer",JSONPath=".status.gpus.total",priority=1,description="Physical GPUs of all nodes of the pool"
// +kubebuilder:printcolumn:name="Nodes",type="integer",JSONPath=".status.nodes",priority=1,description="Nodes of the pool"
// +kubebuilder:printcolumn:name="Gate",type="string",JSONPath=".spec.readiness.gate",priority=1,description="How unverified nodes are kept from work"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters, because it is the value of the label karpenter-gpu.dev/pool; choose a shorter name"
type GPUPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the pool's owner asks for. An empty spec is a pool of whole GPUs
	// that is selected by cost and gated by a startup taint.
	// +kubebuilder:default={}
	// +optional
	Spec GPUPoolSpec `json:"spec,omitzero"`
	// status is what the controllers have observed. It holds counts, never lists of nodes.
	// +optional
	Status GPUPoolStatus `json:"status,omitzero"`
}

// GPUPoolList is a list of GPUPools.
// +kubebuilder:object:root=true
type GPUPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GPUPool `json:"items"`
}

// GPUPoolSpec is what a pool's owner asks for.
// +kubebuilder:validation:XValidation:rule="!has(self.warm) || self.warm.all(w, !has(w.partitions) || (has(self.partitioning) && has(self.partitioning.mig)))",message="a warm entry with partitions needs spec.partitioning.mig; add it, or ask for gpus instead"
// +kubebuilder:validation:XValidation:rule="!has(self.warm) || !has(self.partitioning) || !has(self.partitioning.mig) || !has(self.partitioning.mig.profiles) || self.warm.all(w, !has(w.partitions) || w.partitions.all(p, p.profile in self.partitioning.mig.profiles))",message="a warm entry asks for a profile that spec.partitioning.mig.profiles does not list; add the profile there, or remove it from the entry"
// +kubebuilder:validation:XValidation:rule="!has(self.warm) || !has(self.limits) || !has(self.limits.gpus) || self.warm.all(w, !has(w.gpus) || w.gpus <= self.limits.gpus)",message="a warm entry asks for more GPUs than spec.limits.gpus allows; lower the entry or raise the limit"
type GPUPoolSpec struct {
	// partitioning says how each GPU is divided: at most one of mig, timeSlicing and
	// mps. Unset: pods get whole GPUs.
	// +optional
	Partitioning *Partitioning `json:"partitioning,omitempty"`
	// selection says which of the possible nodes are launched for pending pods.
	// +kubebuilder:default={}
	// +optional
	Selection Selection `json:"selection,omitzero"`
	// readiness says when a new node may take work, and what becomes of one that never may.
	// +kubebuilder:default={}
	// +optional
	Readiness Readiness `json:"readiness,omitzero"`
	// health says what becomes of a node whose GPUs break after it was verified.
	// +kubebuilder:default={}
	// +optional
	Health Health `json:"health,omitzero"`
	// warm lists the verified capacity that is kept ready before pods ask for it. The
	// amounts of several entries add up. Unset: none.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Warm []WarmCapacity `json:"warm,omitempty"`
	// reclaim says how soon empty nodes go.
	// +optional
	Reclaim Reclaim `json:"reclaim,omitzero"`
	// limits bound the pool across all its NodePools, besides the limits that each
	// NodePool has of its own. Unset: no bound.
	// +optional
	Limits Limits `json:"limits,omitzero"`
}

// Reclaim says how soon empty nodes go.
type Reclaim struct {
	// emptyAfter is how long a node may hold nothing but DaemonSet pods before it is
	// removed, from 0s to 24h, written with h, m and s. For empty nodes it takes the place
	// of the NodePool's consolidateAfter. Nodes that hold warm capacity stay;
	// do-not-disrupt and the NodePool's disruption budgets for the reason Empty are
	// respected. Unset: empty nodes wait for Karpenter's own consolidation.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(h|m|s)){1,3}$') && duration(self) <= duration('24h')",message="emptyAfter must be a duration from 0s to 24h written with h, m and s, such as 30s; remove it to leave empty nodes to Karpenter's consolidation"
	// +optional
	EmptyAfter *metav1.Duration `json:"emptyAfter,omitempty"`
}

// Limits bound a pool across all its NodePools. A launch that would pass a limit
// does not happen; the pods that it was for get an event that names the limit.
type Limits struct {
	// gpus is the greatest number of physical GPUs of the pool's nodes, in any state.
	// Partitions and shared replicas do not count. 0 stops all launches. Unset: no bound.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	GPUs *int32 `json:"gpus,omitempty"`
	// pricePerHour is the greatest price of all the pool's nodes together, in US dollars
	// per hour: a quoted decimal with up to six digits after the point, such as "400"
	// or "12.50". "0" stops all launches that cost anything. Unset: no bound.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,9}([.][0-9]{1,6})?$')",message="pricePerHour must be a decimal number of US dollars per hour with up to six digits after the point, such as \"400\" or \"12.50\""
	// +optional
	PricePerHour *string `json:"pricePerHour,omitempty"`
}
