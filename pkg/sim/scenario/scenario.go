package scenario

import (
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
)

// Scenario is one story: what stands at the start, what happens, what must come of it.
type Scenario struct {
	// Name names the scenario in output and directories: lower case letters, digits and dashes.
	Name string `yaml:"name"`
	// Description is for the reader.
	Description string `yaml:"description"`
	// Settings shape the sandbox before anything is applied.
	Settings Settings `yaml:"settings"`
	// LocalNodes are machines that stand already and that Karpenter does not manage.
	LocalNodes []LocalNodes `yaml:"localNodes"`
	// Manifests are applied in order before the first step, and the clock starts after them.
	Manifests []Manifest `yaml:"manifests"`
	// Steps are played in order; the first that fails ends the play.
	Steps []Step `yaml:"steps"`
	// WarmHours, when set, is what holding capacity ready cost, shown beside the time that it saved.
	WarmHours *WarmHours `yaml:"warmHours"`
	// PeakFleet, when set, is the owned hardware that the cloud's cost is shown beside.
	PeakFleet *PeakFleet `yaml:"peakFleet"`

	file string
}

// File returns the path that the scenario was loaded from.
func (s *Scenario) File() string { return s.file }

// Controllers that a scenario can run.
const (
	// ControllerOurs is this repository's controller.
	ControllerOurs = "ours"
	// ControllerStock is the AWS provider's own controller, built from the same module version.
	ControllerStock = "stock"
)

// Settings shape a sandbox. Zero values mean: our controller, 2 s boot, NVIDIA software at once.
type Settings struct {
	// Controller is ours or stock; the command line overrides it.
	Controller string `yaml:"controller"`
	// Replicas of the controller, 1 when zero. Several elect a leader, as in a Deployment.
	Replicas int `yaml:"replicas"`
	// Boot is the time from an accepted launch to the node's registration.
	Boot *node.Delay `yaml:"boot"`
	// APILatency holds back every answer of the cloud's API.
	APILatency node.Delay `yaml:"apiLatency"`
	// Node holds the delays of the NVIDIA software.
	Node NodeSettings `yaml:"node"`
	// FeatureGates are passed to the controller in FEATURE_GATES.
	FeatureGates map[string]bool `yaml:"featureGates"`
	// Env is added to the controller's environment; it wins over what the sandbox sets.
	Env map[string]string `yaml:"env"`
	// Seed varies what is drawn at random; runs with the same seed draw the same.
	Seed int64 `yaml:"seed"`
}

// NodeSettings are the delays of the NVIDIA software on a node and its modes.
type NodeSettings struct {
	Driver      node.Delay `yaml:"driver"`
	Plugin      node.Delay `yaml:"plugin"`
	Labels      node.Delay `yaml:"labels"`
	MIG         node.Delay `yaml:"mig"`
	MIGStrategy string     `yaml:"migStrategy"`
	// Agent runs the real GPU agent against a simulated NVML on each GPU node.
	Agent bool `yaml:"agent"`
	// Faults hold from the start.
	Faults []node.Fault `yaml:"faults"`
}

// LocalNodes are identical machines of a local data center.
type LocalNodes struct {
	// Name is the prefix of the node names: <name>-1, <name>-2, …
	Name string `yaml:"name"`
	// Count is how many stand, 1 when zero.
	Count int `yaml:"count"`
	// Like is the EC2 instance type with the same hardware; it gives vCPUs, memory and GPUs.
	Like string `yaml:"like"`
	// Zone becomes the label topology.kubernetes.io/zone.
	Zone string `yaml:"zone"`
	// Labels are added to the nodes.
	Labels map[string]string `yaml:"labels"`
}

// Manifest is a file, relative to the scenario, or text in the scenario itself.
type Manifest struct {
	Path   string `yaml:"path"`
	Inline string `yaml:"inline"`

	base string
}

// Step is one action; exactly one of its action fields is set.
type Step struct {
	// Name says in the timeline what happens; other steps refer to it by since.
	Name string `yaml:"name"`

	Apply           *Manifest     `yaml:"apply"`
	Delete          *Ref          `yaml:"delete"`
	Scale           *Scale        `yaml:"scale"`
	Fail            *Failure      `yaml:"fail"`
	Heal            *Failure      `yaml:"heal"`
	Interrupt       *Targets      `yaml:"interrupt"`
	Kill            *Targets      `yaml:"kill"`
	Reboot          *Targets      `yaml:"reboot"`
	Cordon          string        `yaml:"cordon"`
	NodeFault       *node.Fault   `yaml:"nodeFault"`
	HealNode        string        `yaml:"healNode"`
	KillController  *struct{}     `yaml:"killController"`
	StartController *struct{}     `yaml:"startController"`
	RollController  *struct{}     `yaml:"rollController"`
	Wait            *Duration     `yaml:"wait"`
	Expect          *Expectations `yaml:"expect"`
}

// Ref names one object. APIVersion may be left out where the kind is unambiguous.
type Ref struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Namespace  string `yaml:"namespace"`
	Name       string `yaml:"name"`
}

// Scale sets the replicas of an object that has a scale subresource.
type Scale struct {
	Ref      `yaml:",inline"`
	Replicas int `yaml:"replicas"`
}

// Failure is what the cloud does wrong; exactly one of its fields is set.
type Failure struct {
	// Capacity makes matching launches fail with InsufficientInstanceCapacity.
	Capacity *Offering `yaml:"capacity"`
	// Quota makes matching launches fail as when the account may not buy more:
	// MaxSpotInstanceCountExceeded for spot, VcpuLimitExceeded otherwise.
	Quota *Offering `yaml:"quota"`
	// Throttle makes an API answer RequestLimitExceeded.
	Throttle *APIFault `yaml:"throttle"`
	// Launch makes CreateFleet fail for another reason than capacity.
	Launch *APIFault `yaml:"launch"`
}

// Offering selects offerings; an empty field matches all.
type Offering struct {
	InstanceType string `yaml:"instanceType"`
	Zone         string `yaml:"zone"`
	CapacityType string `yaml:"capacityType"`
}

// APIFault is an error of one API operation.
type APIFault struct {
	// Operation is the API call, CreateFleet when empty.
	Operation string `yaml:"operation"`
	// Count is how many calls fail; zero means until healed.
	Count int `yaml:"count"`
}

// Targets selects running instances: the first Count by launch time, then by ID.
type Targets struct {
	Offering `yaml:",inline"`
	// Count is how many are hit; zero means all that match.
	Count int `yaml:"count"`
}

// Expectations hold together, at one moment, by a deadline.
type Expectations struct {
	// Within is the deadline from the start of the step; zero means 60 s.
	Within Duration `yaml:"within"`
	// Hold is how long the expectations must go on holding once met.
	Hold Duration `yaml:"hold"`
	// Measure records the time until they were met as a figure of the run.
	Measure *Measure `yaml:"measure"`

	Pods         []PodExpectation       `yaml:"pods"`
	Nodes        []NodeExpectation      `yaml:"nodes"`
	NodeClaims   *Count                 `yaml:"nodeClaims"`
	Instances    []InstanceExpectation  `yaml:"instances"`
	Launches     *Count                 `yaml:"launches"`
	PricePerHour *Price                 `yaml:"pricePerHour"`
	Events       []EventExpectation     `yaml:"events"`
	Conditions   []ConditionExpectation `yaml:"conditions"`
	// NoOrphans: every running instance belongs to a NodeClaim.
	NoOrphans bool `yaml:"noOrphans"`
	// NoDoubleLaunches: no NodeClaim was ever answered with two instances.
	NoDoubleLaunches bool `yaml:"noDoubleLaunches"`
	// NoUnverifiedPods: no pod with NVIDIA resources was ever bound to a node of Karpenter's that
	// had not been verified in its boot before, by the API server's own order of changes.
	NoUnverifiedPods bool `yaml:"noUnverifiedPods"`
	// NoEvictions: no pod that matches was evicted, preempted or lost with its node, so far. Pods
	// that the taint manager ended for a taint that had gone are told as a figure instead.
	NoEvictions *PodSelection `yaml:"noEvictions"`
}

// Measure names a figure.
type Measure struct {
	// Name is the figure's name, for example "time to spill".
	Name string `yaml:"name"`
	// Since is the name of the earlier step whose beginning the time counts from; empty means the
	// beginning of this step, which is the end of the one before.
	Since string `yaml:"since"`
}

// PodSelection selects pods; an empty field matches all.
type PodSelection struct {
	Selector  string `yaml:"selector"`
	Namespace string `yaml:"namespace"`
}

// PodExpectation is a number of pods in a phase.
type PodExpectation struct {
	PodSelection `yaml:",inline"`
	// Phase is one or a list of Pending, Running, Succeeded and Failed; empty counts all.
	Phase Phases `yaml:"phase"`
	// OnNodes is a label selector of the nodes that the pods must be bound to.
	OnNodes string `yaml:"onNodes"`
	// Gone counts pods that no longer exist too, by their last phase: a pod that has succeeded goes
	// with its node.
	Gone  bool  `yaml:"gone"`
	Count Count `yaml:"count"`
	// Startup bounds how long the pods took to run; nil bounds nothing. The median is a figure of
	// the run.
	Startup *Startup `yaml:"startup"`
}

// Startup bounds the median time from the creation of pods to when they run.
type Startup struct {
	// Name is the name of the figure.
	Name string `yaml:"name"`
	// Quickest is how many of the selected pods count, those that ran soonest after their creation;
	// zero means all.
	Quickest int `yaml:"quickest"`
	// Median is the greatest that the median may be.
	Median Duration `yaml:"median"`
}

// NodeExpectation is a number of nodes; an empty field matches all.
type NodeExpectation struct {
	Selector     string `yaml:"selector"`
	InstanceType string `yaml:"instanceType"`
	CapacityType string `yaml:"capacityType"`
	Zone         string `yaml:"zone"`
	// Managed keeps the nodes of Karpenter (true) or the others (false).
	Managed *bool `yaml:"managed"`
	// Ready keeps the nodes by their Ready condition.
	Ready *bool `yaml:"ready"`
	// Cordoned keeps the nodes that an administrator has cordoned (true) or the others (false).
	Cordoned *bool `yaml:"cordoned"`
	// Tainted keeps the nodes with a taint of this key, Untainted those without.
	Tainted   string `yaml:"tainted"`
	Untainted string `yaml:"untainted"`
	// Allocatable keeps the nodes with exactly these quantities.
	Allocatable map[string]int64 `yaml:"allocatable"`
	Count       Count            `yaml:"count"`
}

// InstanceExpectation is a number of running instances of the cloud.
type InstanceExpectation struct {
	Offering `yaml:",inline"`
	Count    Count `yaml:"count"`
}

// Price bounds the cloud's price in dollars an hour.
type Price struct {
	Min float64  `yaml:"min"`
	Max *float64 `yaml:"max"`
}

// EventExpectation is an event that was seen since the start.
type EventExpectation struct {
	Reason string `yaml:"reason"`
	// Message is a regular expression.
	Message string `yaml:"message"`
	Kind    string `yaml:"kind"`
	// Count bounds how many different events match; nil means at least one.
	Count *Count `yaml:"count"`
}

// ConditionExpectation is a status condition of one object.
type ConditionExpectation struct {
	Ref    `yaml:",inline"`
	Type   string `yaml:"type"`
	Status string `yaml:"status"`
	Reason string `yaml:"reason"`
	// Message is a regular expression.
	Message string `yaml:"message"`
}

// WarmHours compares two bursts of the same play: one that met capacity that was held ready, and one
// that met none.
type WarmHours struct {
	// From and Until name the steps between whose beginnings the capacity was held.
	From  string `yaml:"from"`
	Until string `yaml:"until"`
	// Cold and Warm name the measures of the two bursts.
	Cold string `yaml:"cold"`
	Warm string `yaml:"warm"`
}

// PeakFleet is owned hardware with a stated price, for comparison only. All of it is assumption and
// is printed as such.
type PeakFleet struct {
	GPUs          int     `yaml:"gpus"`
	GPUsPerServer int     `yaml:"gpusPerServer"`
	ServerPrice   float64 `yaml:"serverPrice"`
	Years         float64 `yaml:"years"`
	KilowattsEach float64 `yaml:"kilowattsEach"`
	PricePerKWh   float64 `yaml:"pricePerKWh"`
}
