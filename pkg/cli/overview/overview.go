package overview

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// Input is what an overview is made from. Order does not matter.
type Input struct {
	GPUPools   []*v1alpha1.GPUPool
	NodePools  []*karpv1.NodePool
	NodeClaims []*karpv1.NodeClaim
	Nodes      []*corev1.Node
	Pods       []*corev1.Pod
	// Catalog tells the GPUs of instance types.
	Catalog *catalog.Catalog
	// Now dates ages.
	Now time.Time
}

// Overview is the answer. Its JSON form is the output of kubectl gpupool status -o json;
// fields are added in later versions, never changed.
type Overview struct {
	// GPUPools by name.
	GPUPools []Pool `json:"gpuPools"`
	// Nodes by GPUPool and name.
	Nodes []Node `json:"nodes"`
	// Problems of pools first, then of nodes.
	Problems []Problem `json:"problems"`
	// Total sums up the pools.
	Total Total `json:"total"`
}

// Total sums up pools.
type Total struct {
	Nodes int32              `json:"nodes"`
	GPUs  v1alpha1.GPUCounts `json:"gpus"`
	// PricePerHour is in US dollars.
	PricePerHour string `json:"pricePerHour"`
}

// Pool is how one GPUPool stands.
type Pool struct {
	Name string `json:"name"`
	// Ready is the status of the condition: True, False or Unknown.
	Ready string `json:"ready"`
	// NodePools that have joined, by name.
	NodePools []string `json:"nodePools"`
	// Partitioning is Whole, MIG, TimeSlicing or MPS; Detail is the strategy or the number of
	// replicas.
	Partitioning v1alpha1.PartitioningKind `json:"partitioning"`
	Detail       string                    `json:"detail,omitempty"`
	Nodes        int32                     `json:"nodes"`
	GPUs         v1alpha1.GPUCounts        `json:"gpus"`
	// GPULimit is spec.limits.gpus.
	GPULimit *int32 `json:"gpuLimit,omitempty"`
	// PricePerHour is in US dollars; empty while the controller has not told it.
	PricePerHour string `json:"pricePerHour,omitempty"`
	// PriceLimit is spec.limits.pricePerHour.
	PriceLimit *string `json:"priceLimit,omitempty"`
	// Layouts are the MIG layouts of the nodes.
	Layouts []v1alpha1.LayoutStatus `json:"layouts,omitempty"`
	// Warm is the state of each warm entry.
	Warm []v1alpha1.WarmStatus `json:"warm,omitempty"`
	// Resources are NVIDIA's resources of the nodes, by name.
	Resources []Resource `json:"resources"`
}

// Resource is one extended resource over the nodes of a pool.
type Resource struct {
	Name string `json:"name"`
	// Allocatable is what the kubelets offer, Requested what pods on the nodes hold of it.
	Allocatable int64 `json:"allocatable"`
	Requested   int64 `json:"requested"`
}

// Node is one node of a pool, or a NodeClaim that has no node yet.
type Node struct {
	// Name of the Node; empty until it registers.
	Name         string `json:"name,omitempty"`
	NodeClaim    string `json:"nodeClaim,omitempty"`
	GPUPool      string `json:"gpuPool"`
	NodePool     string `json:"nodePool"`
	InstanceType string `json:"instanceType,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
	Zone         string `json:"zone,omitempty"`
	// Layout is the MIG layout.
	Layout string `json:"layout,omitempty"`
	GPUs   int    `json:"gpus"`
	// State is Launching before there is a Node, Deleting once it goes, and else one of the
	// states of package readiness.
	State string `json:"state"`
	// Reason and Message are the agent's, or those of the NodeClaim's condition. Empty for
	// nodes that are well.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// AgeSeconds is the time since the NodeClaim, or the Node, was created.
	AgeSeconds int64 `json:"ageSeconds"`
}

// Title is the name by which a person finds the node.
func (n Node) Title() string { return cmp.Or(n.Name, n.NodeClaim) }

// Problem is something that a person should look at.
type Problem struct {
	// Object is kind and name.
	Object string `json:"object"`
	// Reason is a word, Message a sentence.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// New makes the overview. It is deterministic for equal input.
func New(in Input) *Overview {
	o := &Overview{GPUPools: []Pool{}, Nodes: []Node{}, Problems: []Problem{}}
	var price v1alpha1.Price
	pools := slices.SortedFunc(slices.Values(in.GPUPools), func(a, b *v1alpha1.GPUPool) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range pools {
		members := memberNames(in.NodePools, p.Name)
		nodes, real := in.nodesOf(p.Name, members)
		pool := describe(p, members)
		pool.Resources = resourcesOf(real, in.Pods)
		o.GPUPools = append(o.GPUPools, pool)
		o.Nodes = append(o.Nodes, nodes...)
		o.Problems = append(o.Problems, poolProblems(p)...)
		o.Total.add(pool)
		if paid, err := v1alpha1.ParsePrice(p.Status.PricePerHour); err == nil {
			price = price.Add(paid)
		}
	}
	o.Total.PricePerHour = price.String()
	for _, n := range o.Nodes {
		o.Problems = append(o.Problems, nodeProblems(n)...)
	}
	return o
}

func (t *Total) add(p Pool) {
	t.Nodes += p.Nodes
	t.GPUs.Ready += p.GPUs.Ready
	t.GPUs.Provisioning += p.GPUs.Provisioning
	t.GPUs.Warm += p.GPUs.Warm
	t.GPUs.Unhealthy += p.GPUs.Unhealthy
	t.GPUs.Total += p.GPUs.Total
}

// Only narrows the input to the pools of these names; with no name it keeps all. It
// returns the names that no pool has.
func (in *Input) Only(names ...string) (unknown []string) {
	if len(names) == 0 {
		return nil
	}
	have := map[string]bool{}
	for _, p := range in.GPUPools {
		have[p.Name] = true
	}
	in.GPUPools = slices.DeleteFunc(slices.Clone(in.GPUPools), func(p *v1alpha1.GPUPool) bool { return !slices.Contains(names, p.Name) })
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return have[n] })
}

func memberNames(nodePools []*karpv1.NodePool, pool string) []string {
	out := []string{}
	for _, np := range nodePools {
		if np.Labels[v1alpha1.PoolLabelKey] == pool {
			out = append(out, np.Name)
		}
	}
	slices.Sort(out)
	return out
}
