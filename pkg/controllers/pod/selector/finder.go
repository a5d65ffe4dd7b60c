package selector

import (
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// Finder answers the controller's question for whoever has nodes, NodePools and instance
// types at hand and no controller: what does a pod ask for that no node can have? It is
// not safe for concurrent use.
type Finder struct{ known possible }

// NewFinder returns a Finder that knows of no node.
func NewFinder() *Finder { return &Finder{known: newPossible()} }

// AddNode adds what a node has.
func (f *Finder) AddNode(node *corev1.Node) { f.known.addNode(node) }

// AddTypes adds what new nodes of a NodePool could have; its are those that the decorated
// CloudProvider names for it.
func (f *Finder) AddTypes(n *karpv1.NodePool, its []*corecloudprovider.InstanceType) {
	f.known.addTypes(n, its)
}

// Problem is what a pod asks for in vain.
type Problem struct {
	// Message is the sentence of the event NoSuchGPU.
	Message string
	// Partition is the resource that nothing offers; empty where a selector is to blame.
	Partition string
	// Selector is the one to blame and Nearest what comes nearest to it; both are zero where
	// a partition is missing, or where only all selectors together cannot be met.
	Selector catalog.Selector
	Nearest  catalog.Suggestion
}

// Problem looks at one pod; ok is false where some node can have all that it asks for.
func (f *Finder) Problem(pod *corev1.Pod) (p Problem, ok bool) {
	p.Message = f.known.problem(pod)
	if p.Message == "" {
		return p, false
	}
	for _, name := range partitionsOf(pod) {
		if !f.known.partitions[name] {
			p.Partition = name
			return p, true
		}
	}
	p.Selector, p.Nearest, _ = f.known.blame(termsOf(pod)[0])
	return p, true
}
