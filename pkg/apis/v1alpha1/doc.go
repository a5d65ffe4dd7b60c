// Package v1alpha1 is the API of karpenter-gpu: one cluster-scoped kind, GPUPool.
//
// A GPUPool says how the GPUs of some NodePools are handed out, chosen, verified,
// repaired, kept warm and bounded in number and money. A NodePool joins a pool by
// the label karpenter-gpu.dev/pool in its metadata, so it is in one pool at most by
// construction; a NodePool without the label is plain Karpenter. Requirements,
// NodeClass, disruption budgets and taints stay on the NodePool.
//
// The rules of the API stand in three places, each doing what the others cannot:
// CEL rules in the CRD, whose messages tell the reader what to write instead;
// RuntimeValidate for names that live in data files, cron and time zones; and
// status conditions for what depends on the cluster. The package decides nothing
// else: it imports no other package of this module.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter-gpu.dev
package v1alpha1 // doc.go is discovered by controller-gen

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Group is the API group, and the prefix of every label and annotation of ours.
const Group = "karpenter-gpu.dev"

// SchemeGroupVersion is the group and version of the kinds in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme adds the kinds of this package to a scheme. The process-wide scheme
// of client-go has them from init on, because operatorpkg looks kinds up there.
func AddToScheme(s *runtime.Scheme) error {
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	s.AddKnownTypes(SchemeGroupVersion, &GPUPool{}, &GPUPoolList{})
	return nil
}

func init() {
	// AddToScheme never returns an error: AddKnownTypes panics on a conflict.
	_ = AddToScheme(scheme.Scheme)
}
