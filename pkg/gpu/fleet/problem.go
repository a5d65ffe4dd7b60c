package fleet

// Problem is what has to be placed and on what it may be placed. It is read
// only: no function of this package changes it or keeps a reference to it.
type Problem struct {
	// Resources names the dimensions of Class.Requests and Shape.Allocatable, in
	// any order and any unit (cpu in millicores, memory in bytes), one unit for
	// each name. Names are unique.
	Resources []string
	// GPUResources are those of Resources that stand for GPUs or for parts of
	// them (nvidia.com/gpu, MIG profiles, shared replicas). They decide which
	// GPUs of a node count as used. Empty means that no node has a used GPU.
	GPUResources []string
	// Classes are the pods. Names are unique.
	Classes []Class
	// Shapes are the kinds of node. Names are unique.
	Shapes []Shape
	// Limits narrow what a plan may open. The zero value narrows nothing.
	Limits Limits
}

// Class is a number of pods that are equal for the packing.
type Class struct {
	// Name identifies the class in errors and breaks ties.
	Name string
	// Requests has one entry, zero or more, for each of Problem.Resources. A
	// caller that wants the kubelet's pod limit held has a resource for it.
	Requests []int64
	// Count is how many pods there are. Zero is allowed and places nothing.
	Count int
	// Shapes are indexes into Problem.Shapes that the pods may run on. Nil means
	// all of them; empty and not nil means none.
	Shapes []int
	// MaxPerNode caps the pods of this class on one node (host ports, anti-
	// affinity of the class with itself). Zero means no cap.
	MaxPerNode int
}

// Shape is a kind of node. Offerings of one shape are collapsed into the one
// that would be launched before they get here.
type Shape struct {
	// Name identifies the shape in errors and breaks ties.
	Name string
	// Allocatable has one entry, zero or more, for each of Problem.Resources:
	// what is left for the pods after system and daemon overhead.
	Allocatable []int64
	// Price is in money per hour, from 0 to 1e12. Prices less than 1e-9 apart
	// count as equal.
	Price float64
	// GPUs is the number of physical GPUs, for Limits.
	GPUs int
	// MaxNodes caps the nodes of this shape (a reservation's free places). Zero
	// means no cap; leave out a shape that has no capacity at all.
	MaxNodes int
}

// Limits bound a plan. A nil field does not bound.
type Limits struct {
	// MaxUnusedGPUs is the most physical GPUs that one node may leave without
	// any pod.
	MaxUnusedGPUs *int
	// GPUs is the most physical GPUs that the plan may open.
	GPUs *int
	// PricePerHour is the most that the plan may cost.
	PricePerHour *float64
}

// Plan is a set of nodes and the pods on them.
type Plan struct {
	// Nodes are groups of equal nodes, dearest shape first, ties by name.
	Nodes []Node
	// Unplaced are the pods without a node, in the order of Problem.Classes.
	Unplaced []Unplaced
	// Price is the sum over the nodes, in money per hour.
	Price float64
	// GPUs is the number of physical GPUs in the nodes.
	GPUs int
	// LowerBound is a price that no plan can undercut that places every pod that
	// has a shape; see LowerBound. Greedy leaves it zero, which is a bound too.
	LowerBound float64
}

// Node is a group of equal nodes of a plan.
type Node struct {
	// Shape is an index into Problem.Shapes.
	Shape int
	// Count is how many nodes there are, one or more.
	Count int
	// Pods says what runs on each single node, in the order of Problem.Classes.
	Pods []Share
}

// Share is a number of pods of one class on one node.
type Share struct {
	// Class is an index into Problem.Classes.
	Class int
	// Count is how many, one or more.
	Count int
}

// Unplaced is a number of pods of one class that a plan has no node for.
type Unplaced struct {
	// Class is an index into Problem.Classes.
	Class int
	// Count is how many, one or more.
	Count int
	// Reason says what stands in the way.
	Reason Reason
	// Shape is the cheapest shape that would hold one such pod, the launch that
	// Reason refuses; -1 if there is none. Its price is the launch's price.
	Shape int
}

// Reason says why pods have no node.
type Reason string

const (
	// ReasonNoShape means no allowed shape holds a single pod.
	ReasonNoShape Reason = "NoShape"
	// ReasonUnusedGPUs means the launch would leave more than Limits.MaxUnusedGPUs.
	ReasonUnusedGPUs Reason = "UnusedGPUs"
	// ReasonMaxNodes means every shape that holds the pod has reached MaxNodes.
	ReasonMaxNodes Reason = "MaxNodes"
	// ReasonGPULimit means the launch would go over Limits.GPUs.
	ReasonGPULimit Reason = "GPULimit"
	// ReasonPriceLimit means the launch would go over Limits.PricePerHour.
	ReasonPriceLimit Reason = "PriceLimit"
)

// Options steer the search. The zero value is the default search.
type Options struct {
	// Iterations is the number of improvement steps; zero means
	// DefaultIterations, negative none. Counted in steps and not in time, so
	// that equal input has equal output.
	Iterations int
	// Seed of the search's random source. Every seed gives a valid plan.
	Seed uint64
	// Stop, when not nil, is asked now and then whether to end early with the
	// best plan so far. A Stop that depends on time makes the result do so too.
	Stop func() bool
}
