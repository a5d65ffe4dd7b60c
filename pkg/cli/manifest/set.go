package manifest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

// Set is what a plan is made from, each list in the order of the input.
type Set struct {
	NodePools   []*karpv1.NodePool
	GPUPools    []*v1alpha1.GPUPool
	NodeClasses []*catalogprovider.NodeClass
	// Pods wait for a node, those of workloads included. Their annotation
	// WorkloadAnnotation says which workload they are of.
	Pods []*corev1.Pod
	// Objects are what the scheduler looks up: DaemonSets, volumes, namespaces; and of
	// a cluster its nodes, NodeClaims and running pods.
	Objects []client.Object
	// Ignored has no part in a plan.
	Ignored []Ignored
}

// Ignored is an object that has no part in a plan.
type Ignored struct {
	// Kind with its group, and name with its namespace.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// From is the file and document, or empty for an object of a cluster.
	From string `json:"from,omitempty"`
	// Reason says why.
	Reason string `json:"reason"`
}

// Append adds everything of other.
func (s *Set) Append(other *Set) {
	s.NodePools = append(s.NodePools, other.NodePools...)
	s.GPUPools = append(s.GPUPools, other.GPUPools...)
	s.NodeClasses = append(s.NodeClasses, other.NodeClasses...)
	s.Pods = append(s.Pods, other.Pods...)
	s.Objects = append(s.Objects, other.Objects...)
	s.Ignored = append(s.Ignored, other.Ignored...)
}

// Override adds everything of other; what it shares with s by kind and name takes the
// place of what s has.
func (s *Set) Override(other *Set) {
	s.NodePools = Replace(s.NodePools, other.NodePools)
	s.GPUPools = Replace(s.GPUPools, other.GPUPools)
	s.NodeClasses = Replace(s.NodeClasses, other.NodeClasses)
	s.Pods = Replace(s.Pods, other.Pods)
	s.Objects = Replace(s.Objects, other.Objects)
	s.Ignored = append(s.Ignored, other.Ignored...)
}

// Replace adds with to have; what has the kind, namespace and name of an object of with
// makes room for it.
func Replace[T client.Object](have, with []T) []T {
	key := func(o T) string { return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName()) }
	newer := map[string]T{}
	for _, o := range with {
		newer[key(o)] = o
	}
	var out []T
	for _, o := range have {
		if _, ok := newer[key(o)]; !ok {
			out = append(out, o)
		}
	}
	return append(out, with...)
}

// place is where an object was read.
type place struct {
	file     string
	document int // from 1
	item     int // in a List, from 1; 0 outside of one
}

func (p place) String() string {
	if p.item > 0 {
		return fmt.Sprintf("%s, document %d, item %d", p.file, p.document, p.item)
	}
	return fmt.Sprintf("%s, document %d", p.file, p.document)
}
