package planner

import "github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"

// Plan is the answer. Its JSON is an API of the command: fields are added, not changed.
type Plan struct {
	// Nodes and what they cost, as karpenter-gpu would launch them.
	Decision Decision `json:"plan"`
	// Stock is what Karpenter alone would launch; nil if it was not asked for.
	Stock *Decision `json:"stock,omitempty"`
	// LowerBound is a price per hour that no nodes for the placed pods can undercut;
	// nil if no pod needs a new node.
	LowerBound *float64 `json:"lowerBoundPerHour,omitempty"`
	// Unplaced are the pods without a node in Decision, by workload.
	Unplaced []Unplaced `json:"unplaced"`
	// Ignored objects had no part.
	Ignored []manifest.Ignored `json:"ignored"`
	// Notes are what the reader should know about the input.
	Notes []string `json:"notes"`
	// Assumptions are what the plan takes for granted about the cloud.
	Assumptions Assumptions `json:"assumptions"`
}

// Decision is a set of nodes.
type Decision struct {
	// Nodes to be launched, dearest first.
	Nodes []Node `json:"nodes"`
	// Existing are pods that find room on nodes that are there, by pod.
	Existing []Existing `json:"existing,omitempty"`
	// GPUs are the physical GPUs of the nodes, UnusedGPUs those without a pod.
	GPUs       int `json:"gpus"`
	UnusedGPUs int `json:"unusedGPUs"`
	// PricePerHour is the sum over the nodes in US dollars.
	PricePerHour float64 `json:"pricePerHour"`
	// Placed and Unplaced count pods.
	Placed   int `json:"placedPods"`
	Unplaced int `json:"unplacedPods"`
}

// Node is one node to be launched.
type Node struct {
	NodePool     string `json:"nodePool"`
	GPUPool      string `json:"gpuPool,omitempty"`
	InstanceType string `json:"instanceType"`
	CapacityType string `json:"capacityType"`
	// Zone is empty where any would do.
	Zone string `json:"zone,omitempty"`
	// Layout is the MIG layout; empty without MIG.
	Layout       string  `json:"layout,omitempty"`
	GPUs         int     `json:"gpus"`
	UnusedGPUs   int     `json:"unusedGPUs"`
	PricePerHour float64 `json:"pricePerHour"`
	// Alternatives are other instance types that the cloud may pick if this one is out.
	Alternatives []string `json:"alternatives,omitempty"`
	// Pods by namespace and name.
	Pods []Pod `json:"pods"`
}

// Pod names a pod and its workload.
type Pod struct {
	Name     string `json:"name"`
	Workload string `json:"workload"`
}

// Existing is a pod on a node that is there already.
type Existing struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
}

// Unplaced are pods of one workload without a node for one reason.
type Unplaced struct {
	Workload string   `json:"workload"`
	Pods     []string `json:"pods"`
	Reason   string   `json:"reason"`
	// Fix is the nearest change by which the pods would get a node; empty if none is
	// known.
	Fix string `json:"fix,omitempty"`
}

// Assumptions are what the plan takes for granted about the cloud.
type Assumptions struct {
	Region      string   `json:"region"`
	Zones       []string `json:"zones"`
	SpotPercent float64  `json:"spotPricePercentOfOnDemand"`
	PriceRegion string   `json:"priceRegion"`
}
