package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WarmCapacity is verified capacity that is kept ready before pods ask for it, and
// refilled when they have taken it.
// +kubebuilder:validation:XValidation:rule="[has(self.gpus), has(self.partitions), has(self.podTemplateRef), has(self.scalableRef)].filter(x, x).size() == 1",message="a warm entry takes exactly one of gpus, partitions, podTemplateRef and scalableRef; keep the one that says what to hold ready, and make another entry for the rest"
// +kubebuilder:validation:XValidation:rule="has(self.podTemplateRef) || has(self.scalableRef) || (!has(self.replicas) && !has(self.percentage))",message="replicas and percentage count pods, so they go with podTemplateRef or scalableRef; remove them, and put the amount into gpus or partitions"
// +kubebuilder:validation:XValidation:rule="!has(self.podTemplateRef) || (has(self.replicas) && !has(self.percentage))",message="a warm entry with podTemplateRef needs replicas and no percentage, because a pod template has no size to take a percentage of"
// +kubebuilder:validation:XValidation:rule="!has(self.scalableRef) || has(self.replicas) != has(self.percentage)",message="a warm entry with scalableRef needs exactly one of replicas and percentage; set how many pods, or what share of its replicas, to hold ready"
type WarmCapacity struct {
	// name tells the entries of a pool apart, and stands in the names of the objects made
	// for it: up to 32 lower-case letters, digits and '-'.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$')",message="the name of a warm entry has 1 to 32 lower-case letters, digits and '-', and begins and ends with a letter or digit, such as day"
	// +required
	Name string `json:"name"`
	// gpus is how many whole, physical GPUs are held ready, from 1 to 10000.
	// +kubebuilder:validation:Maximum=10000
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="gpus of a warm entry must be at least 1; remove the entry to hold nothing ready"
	// +optional
	GPUs *int32 `json:"gpus,omitempty"`
	// partitions are the MIG partitions that are held ready, by profile.
	// +listType=map
	// +listMapKey=profile
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Partitions []PartitionCount `json:"partitions,omitempty"`
	// podTemplateRef names a PodTemplate: room for so many pods like it is held ready as
	// replicas says.
	// +optional
	PodTemplateRef *PodTemplateReference `json:"podTemplateRef,omitempty"`
	// scalableRef names a workload: room for so many more of its pods is held ready as
	// replicas or percentage says.
	// +optional
	ScalableRef *ScalableReference `json:"scalableRef,omitempty"`
	// replicas is the number of pods that podTemplateRef or scalableRef is held ready for,
	// from 1 to 10000.
	// +kubebuilder:validation:Maximum=10000
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="replicas of a warm entry must be at least 1; remove the entry to hold nothing ready"
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// percentage is the share of the current replicas of scalableRef that is held ready in
	// addition to them, from 1 to 1000 percent, rounded up to whole pods.
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="percentage of a warm entry must be at least 1; remove the entry to hold nothing ready"
	// +optional
	Percentage *int32 `json:"percentage,omitempty"`
	// schedule says when the entry holds. Unset: always.
	// +optional
	Schedule *WarmSchedule `json:"schedule,omitempty"`
	// capacityTypes are the ways to buy the entry's nodes, in the order in which they are
	// tried. Unset: those of spec.selection.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, u == t))",message="capacityTypes is an order, so each of reserved, spot and on-demand stands in it once; remove the second mention"
	// +optional
	CapacityTypes []CapacityType `json:"capacityTypes,omitempty"`
	// images are the container images that the entry's nodes pull ahead of use. A node
	// counts as ready only once it holds them all. Unset: none.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.all(i, i.matches('^[A-Za-z0-9][A-Za-z0-9._:/@-]*$'))",message="an image is written as in a pod, such as registry.example.com/team/model:v3, with no spaces and no scheme"
	// +optional
	Images []string `json:"images,omitempty"`
	// imagePullSecrets are the names of the Secrets that images are pulled with, in the
	// namespace where karpenter-gpu runs. Unset: none.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// maxPricePerHour is the greatest price of the nodes that are held for this entry, in US
	// dollars per hour: a quoted decimal, such as "40" or "12.50". Less is held ready when
	// the price would pass it. Unset: no bound but spec.limits.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,9}([.][0-9]{1,6})?$')",message="maxPricePerHour must be a decimal number of US dollars per hour with up to six digits after the point, such as \"40\" or \"12.50\""
	// +optional
	MaxPricePerHour *string `json:"maxPricePerHour,omitempty"`
}

// PartitionCount is a number of MIG partitions of one profile.
type PartitionCount struct {
	// profile is the kind of partition as NVIDIA prints it, such as 1g.10gb.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9]g[.][0-9]{1,4}gb([+-][a-z]+([.][a-z]+)?)?$')",message="a profile is written as NVIDIA prints it: slices, memory and attributes, such as 1g.10gb, 3g.40gb or 1g.10gb+me"
	// +required
	Profile string `json:"profile"`
	// count is the number of partitions, from 1 to 10000.
	// +kubebuilder:validation:Maximum=10000
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="count of a partition must be at least 1; remove the profile to hold none ready"
	// +required
	Count int32 `json:"count"`
}

// PodTemplateReference names a PodTemplate.
type PodTemplateReference struct {
	// namespace is the namespace of the PodTemplate.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`
	// name is the name of the PodTemplate.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// ScalableReference names a workload with a scale.
type ScalableReference struct {
	// apiGroup is the API group of the workload. Defaults to apps.
	// +kubebuilder:default=apps
	// +kubebuilder:validation:MaxLength=253
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// kind is the kind of the workload, such as Deployment, StatefulSet or ReplicaSet.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Kind string `json:"kind"`
	// namespace is the namespace of the workload.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`
	// name is the name of the workload.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// WarmSchedule says when a warm entry holds.
type WarmSchedule struct {
	// windows are the times at which the entry holds; outside of them it holds nothing.
	// Where windows overlap, the one with the greatest share counts.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +required
	Windows []WarmWindow `json:"windows"`
}

// WarmWindow is a span of time that recurs.
type WarmWindow struct {
	// start is when the window opens, as a cron line of five fields (minute, hour, day of
	// month, month, day of week) such as "0 7 * * 1-5", or one of @hourly, @daily, @weekly,
	// @monthly and @yearly, read in timeZone. Capacity is ready at this time only if the
	// window starts earlier by as long as a launch takes.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(hourly|daily|weekly|monthly|yearly)|[A-Za-z0-9*?,/-]+( +[A-Za-z0-9*?,/-]+){4})$')",message="start must be a cron line of five fields, such as \"0 7 * * 1-5\", or one of @hourly, @daily, @weekly, @monthly and @yearly; the time zone goes into timeZone"
	// +required
	Start string `json:"start"`
	// duration is how long the window stays open, from 1m to 168h, written with h, m and s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(h|m|s)){1,3}$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration of a window must be from 1m to 168h written with h, m and s, such as 12h; remove schedule to hold the entry always"
	// +required
	Duration metav1.Duration `json:"duration"`
	// timeZone is the IANA name of the zone that start is read in, such as Europe/Berlin;
	// daylight saving is followed. Defaults to UTC.
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local' && self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$')",message="timeZone must be the IANA name of a time zone, such as UTC or Europe/Berlin; Local would mean the zone of whichever machine the controller runs on"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
	// sharePercent is the share of the entry's amount that this window holds, from 1 to 100
	// percent, rounded up. Defaults to 100.
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	SharePercent *int32 `json:"sharePercent,omitempty"`
}
