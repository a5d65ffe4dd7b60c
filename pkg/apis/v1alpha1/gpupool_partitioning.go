package v1alpha1

// Partitioning says how each GPU of a pool is divided. Nothing set means whole GPUs.
// +kubebuilder:validation:XValidation:rule="[has(self.mig), has(self.timeSlicing), has(self.mps)].filter(x, x).size() <= 1",message="partitioning takes one of mig, timeSlicing and mps; keep one of them, or remove partitioning to hand out whole GPUs"
type Partitioning struct {
	// mig divides each GPU into hardware partitions with memory and compute of their
	// own. Instance types whose GPUs cannot do MIG are left out of the pool, and the
	// condition PartitioningSupported says so.
	// +optional
	MIG *MIG `json:"mig,omitempty"`
	// timeSlicing lets several pods take turns on one GPU, with no bound on the memory
	// that each uses.
	// +optional
	TimeSlicing *TimeSlicing `json:"timeSlicing,omitempty"`
	// mps lets several pods run on one GPU at once through NVIDIA's Multi-Process
	// Service, each with an equal share of memory and compute.
	// +optional
	MPS *MPS `json:"mps,omitempty"`
}

// MIGStrategy is how the device plugin names partitions.
// +kubebuilder:validation:Enum=Mixed;Single
type MIGStrategy string

const (
	// MIGStrategyMixed names each kind of partition: nvidia.com/mig-<profile>.
	MIGStrategyMixed MIGStrategy = "Mixed"
	// MIGStrategySingle names every partition nvidia.com/gpu; all partitions of a node are alike.
	MIGStrategySingle MIGStrategy = "Single"
)

// Neighbor is a project that recognizes partitioned GPUs by a node label of its own.
// +kubebuilder:validation:Enum=TensorFusion
type Neighbor string

// NeighborTensorFusion reads the node label tensor-fusion.ai/isolationMode.
const NeighborTensorFusion Neighbor = "TensorFusion"

// MIG divides GPUs into hardware partitions. The geometry of a node is chosen when it
// is launched and never changed under running pods.
// +kubebuilder:validation:XValidation:rule="has(self.layouts) != has(self.profiles)",message="mig takes exactly one of layouts and profiles: name the layouts that nodes may have, or list the profiles and let layouts be planned from demand"
// +kubebuilder:validation:XValidation:rule="!(has(self.strategy) && self.strategy == 'Single') || !has(self.layouts) || self.layouts.all(l, l != 'all-balanced' && l != 'all-disabled')",message="strategy Single gives every partition the one name nvidia.com/gpu, so all partitions of a node must be alike; remove all-balanced and all-disabled from layouts, or use strategy Mixed"
// +kubebuilder:validation:XValidation:rule="!(has(self.strategy) && self.strategy == 'Single') || !has(self.profiles) || self.profiles.size() <= 1",message="strategy Single gives every partition the one name nvidia.com/gpu, so all partitions must be alike; keep one profile, or use strategy Mixed"
type MIG struct {
	// strategy is how partitions are named, and must be that of the device plugin.
	// Mixed: nvidia.com/mig-<profile>, partitions of a node may differ. Single: all are
	// nvidia.com/gpu, and all partitions of a node are alike. Defaults to Mixed.
	// +kubebuilder:default=Mixed
	// +optional
	Strategy MIGStrategy `json:"strategy,omitempty"`
	// layouts are the names of the mig-parted layouts that nodes may have, such as
	// all-1g.10gb or all-balanced. For each launch the cheapest type with a layout that
	// fits the pods is taken, then the layout with the least waste. all-disabled adds
	// nodes with whole GPUs. Exactly one of layouts and profiles is set.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.all(l, l.matches('^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'))",message="a layout name becomes the value of the label nvidia.com/mig.config, so it has 1 to 63 letters, digits, '-', '_' and '.', and begins and ends with a letter or digit, such as all-1g.10gb"
	// +kubebuilder:validation:XValidation:rule="!('all-enabled' in self)",message="layout all-enabled turns MIG on and creates no partition; name a layout that creates some, such as all-balanced, or all-disabled for whole GPUs"
	// +optional
	Layouts []string `json:"layouts,omitempty"`
	// profiles are the partitions that pods of the pool may ask for, such as 1g.10gb or
	// 1g.10gb+me. Layouts are planned from the pods that wait: the fewest GPUs, then the
	// least waste, then the fewest distinct layouts. Exactly one of layouts and profiles
	// is set.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.all(p, p.matches('^[1-9]g[.][0-9]{1,4}gb([+-][a-z]+([.][a-z]+)?)?$'))",message="a profile is written as NVIDIA prints it: slices, memory and attributes, such as 1g.10gb, 3g.40gb or 1g.10gb+me"
	// +optional
	Profiles []string `json:"profiles,omitempty"`
	// announceTo lists the neighbors that recognize partitioned GPUs by a node label of
	// their own, so that nodes of this pool carry it. TensorFusion:
	// tensor-fusion.ai/isolationMode=partitioned. Unset: no such label.
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +optional
	AnnounceTo []Neighbor `json:"announceTo,omitempty"`
}

// TimeSlicing lets several pods take turns on one GPU.
type TimeSlicing struct {
	// replicas is how many pods share one GPU, from 2 to 256. A node with 4 GPUs and 8
	// replicas offers 32.
	// +kubebuilder:validation:Maximum=256
	// +kubebuilder:validation:XValidation:rule="self >= 2",message="timeSlicing.replicas must be at least 2, so that a GPU is shared; remove timeSlicing to hand out whole GPUs"
	// +required
	Replicas int32 `json:"replicas"`
	// renameByDefault offers the replicas as nvidia.com/gpu.shared in place of
	// nvidia.com/gpu, so that pods choose sharing by name. Defaults to false.
	// +kubebuilder:default=false
	// +optional
	RenameByDefault bool `json:"renameByDefault,omitempty"`
	// failRequestsGreaterThanOne makes the device plugin refuse a pod that asks for more
	// than one replica, because two replicas are no more of a GPU than one. Such pods get
	// no node either. Defaults to false.
	// +kubebuilder:default=false
	// +optional
	FailRequestsGreaterThanOne bool `json:"failRequestsGreaterThanOne,omitempty"`
}

// MPS lets several pods run on one GPU at once. A pod can ask for one replica only.
type MPS struct {
	// replicas is how many pods share one GPU, from 2 to 48. GPUs of compute capability
	// below 7.5 take 16 at most: their instance types are left out of the pool beyond that.
	// +kubebuilder:validation:XValidation:rule="self >= 2 && self <= 48",message="mps.replicas must be from 2 to 48, the most clients that MPS serves on one GPU; use timeSlicing for more, or remove mps to hand out whole GPUs"
	// +required
	Replicas int32 `json:"replicas"`
	// renameByDefault offers the replicas as nvidia.com/gpu.shared in place of
	// nvidia.com/gpu, so that pods choose sharing by name. Defaults to false.
	// +kubebuilder:default=false
	// +optional
	RenameByDefault bool `json:"renameByDefault,omitempty"`
}
