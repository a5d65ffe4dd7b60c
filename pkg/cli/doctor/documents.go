package doctor

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

// typed are the kinds that are examined and have a Go type.
var typed = map[schema.GroupKind]func() client.Object{
	{Group: "karpenter.sh", Kind: "NodePool"}:                            func() client.Object { return &karpv1.NodePool{} },
	{Group: v1alpha1.Group, Kind: "GPUPool"}:                             func() client.Object { return &v1alpha1.GPUPool{} },
	{Group: "apps", Kind: "Deployment"}:                                  func() client.Object { return &appsv1.Deployment{} },
	{Group: "apps", Kind: "StatefulSet"}:                                 func() client.Object { return &appsv1.StatefulSet{} },
	{Group: "apps", Kind: "DaemonSet"}:                                   func() client.Object { return &appsv1.DaemonSet{} },
	{Group: "batch", Kind: "Job"}:                                        func() client.Object { return &batchv1.Job{} },
	{Group: "batch", Kind: "CronJob"}:                                    func() client.Object { return &batchv1.CronJob{} },
	{Kind: "Pod"}:                                                        func() client.Object { return &corev1.Pod{} },
	{Kind: "ConfigMap"}:                                                  func() client.Object { return &corev1.ConfigMap{} },
	{Kind: "Namespace"}:                                                  func() client.Object { return &corev1.Namespace{} },
	{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}: func() client.Object { return &apiextensionsv1.CustomResourceDefinition{} },
}

// FromDocuments sorts manifests into facts. Kinds that no check reads are passed over. An
// object that an API server would refuse becomes an Invalid.
func FromDocuments(documents []manifest.Document) *Facts {
	f := &Facts{From: map[string]string{}}
	for _, d := range documents {
		kind := d.Object.GroupVersionKind().GroupKind()
		object := title(kind.Kind, d.Object)
		var err error
		switch create, ok := typed[kind]; {
		case ok:
			err = f.take(d.Object, create())
		case kind == catalogprovider.NodeClassGVK.GroupKind():
			f.NodeClasses = manifest.Replace(f.NodeClasses, []*unstructured.Unstructured{d.Object})
		case kind == ClusterPolicyGVK.GroupKind():
			f.ClusterPolicies = manifest.Replace(f.ClusterPolicies, []*unstructured.Unstructured{d.Object})
		default:
			continue
		}
		if err != nil {
			f.Invalid = append(f.Invalid, Invalid{Object: object, From: d.From, Err: err, Old: d.Object.GroupVersionKind().Version == "v1beta1" && kind.Group == "karpenter.sh"})
			continue
		}
		f.From[title(kind.Kind, d.Object)] = d.From // with the namespace that it got
	}
	return f
}

func (f *Facts) take(u *unstructured.Unstructured, into client.Object) error {
	if u.GetName() == "" {
		return fmt.Errorf("metadata.name: missing; objects need a name")
	}
	if err := manifest.Decode(u.Object, into); err != nil {
		return err
	}
	if namespaced(into) && into.GetNamespace() == "" {
		into.SetNamespace(metav1.NamespaceDefault)
		u.SetNamespace(metav1.NamespaceDefault)
	}
	f.Add(into)
	if np, ok := into.(*karpv1.NodePool); ok {
		return np.RuntimeValidate(context.Background())
	}
	return nil
}

func namespaced(o client.Object) bool {
	switch o.(type) {
	case *karpv1.NodePool, *v1alpha1.GPUPool, *corev1.Namespace, *apiextensionsv1.CustomResourceDefinition, *corev1.Node:
		return false
	}
	return true
}

// Add puts an object where the checks look for it, in place of one of the same name.
func (f *Facts) Add(o client.Object) {
	switch t := o.(type) {
	case *karpv1.NodePool:
		f.NodePools = manifest.Replace(f.NodePools, []*karpv1.NodePool{t})
	case *v1alpha1.GPUPool:
		f.GPUPools = manifest.Replace(f.GPUPools, []*v1alpha1.GPUPool{t})
	case *appsv1.Deployment:
		f.Deployments = manifest.Replace(f.Deployments, []*appsv1.Deployment{t})
		f.Workloads = manifest.Replace(f.Workloads, []client.Object{t})
	case *appsv1.DaemonSet:
		f.DaemonSets = manifest.Replace(f.DaemonSets, []*appsv1.DaemonSet{t})
	case *corev1.ConfigMap:
		f.ConfigMaps = manifest.Replace(f.ConfigMaps, []*corev1.ConfigMap{t})
	case *corev1.Namespace:
		f.Namespaces = manifest.Replace(f.Namespaces, []*corev1.Namespace{t})
	case *apiextensionsv1.CustomResourceDefinition:
		f.CRDs = manifest.Replace(f.CRDs, []*apiextensionsv1.CustomResourceDefinition{t})
	default: // StatefulSet, Job, CronJob, Pod
		f.Workloads = manifest.Replace(f.Workloads, []client.Object{o})
	}
}
