package doctor

import (
	"fmt"
	"slices"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
)

// ClusterPolicyGVK is the GPU Operator's configuration.
var ClusterPolicyGVK = schema.GroupVersionKind{Group: "nvidia.com", Version: "v1", Kind: "ClusterPolicy"}

// Facts are what is examined. Objects of one kind and name stand in them once.
type Facts struct {
	// Cluster says that the facts are all that a cluster has, so that what is absent is
	// missing.
	Cluster bool
	// Unread maps the kinds that could not be read from the cluster to the reason. What is
	// absent of them is not missing.
	Unread map[string]string

	CRDs        []*apiextensionsv1.CustomResourceDefinition
	Deployments []*appsv1.Deployment
	DaemonSets  []*appsv1.DaemonSet
	// Workloads create pods: Deployments too, StatefulSets, Jobs, CronJobs and Pods that
	// nobody else here creates.
	Workloads       []client.Object
	GPUPools        []*v1alpha1.GPUPool
	NodePools       []*karpv1.NodePool
	NodeClasses     []*unstructured.Unstructured
	ClusterPolicies []*unstructured.Unstructured
	ConfigMaps      []*corev1.ConfigMap
	Namespaces      []*corev1.Namespace
	Nodes           []*corev1.Node
	// Pods run on nodes.
	Pods []*corev1.Pod

	// Invalid are objects that could not be read.
	Invalid []Invalid
	// From maps the kind and name of an object of a file to the file and document.
	From map[string]string
}

// Invalid is an object that an API server would refuse.
type Invalid struct {
	// Object is kind and name.
	Object string
	From   string
	Err    error
	// Old says that it is of v1beta1, which kubectl gpupool convert reads.
	Old bool
}

// title is kind and name, by which findings speak of objects.
func title(kind string, o client.Object) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return fmt.Sprintf("%s %s/%s", kind, o.GetNamespace(), o.GetName())
}

// Override adds what other has; what it shares with f by kind and name takes the place of
// what f has.
func (f *Facts) Override(other *Facts) {
	f.CRDs = manifest.Replace(f.CRDs, other.CRDs)
	f.Deployments = manifest.Replace(f.Deployments, other.Deployments)
	f.DaemonSets = manifest.Replace(f.DaemonSets, other.DaemonSets)
	f.Workloads = manifest.Replace(f.Workloads, other.Workloads)
	f.GPUPools = manifest.Replace(f.GPUPools, other.GPUPools)
	f.NodePools = manifest.Replace(f.NodePools, other.NodePools)
	f.NodeClasses = manifest.Replace(f.NodeClasses, other.NodeClasses)
	f.ClusterPolicies = manifest.Replace(f.ClusterPolicies, other.ClusterPolicies)
	f.ConfigMaps = manifest.Replace(f.ConfigMaps, other.ConfigMaps)
	f.Namespaces = manifest.Replace(f.Namespaces, other.Namespaces)
	f.Invalid = append(f.Invalid, other.Invalid...)
	f.From = lo.Assign(f.From, other.From)
}

// ConfigNamespaces are where NVIDIA's software reads ConfigMaps, as far as the Deployments
// and DaemonSets among the facts tell, sorted.
func (f *Facts) ConfigNamespaces() []string {
	out := []string{findController(f.Deployments).operatorNamespace()}
	for _, ds := range f.DaemonSets {
		if role, ok := readiness.RoleOf(ds); ok && role != readiness.RoleAgent {
			out = append(out, ds.Namespace)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// complete says whether the facts have all that the cluster has of these kinds.
func (f *Facts) complete(kinds ...string) bool {
	return f.Cluster && !lo.SomeBy(kinds, func(k string) bool { return f.Unread[k] != "" })
}

// counts of what is looked at, for the reader to see that it is what was meant.
func (f *Facts) counts() []Count {
	all := []Count{
		{"GPUPool", len(f.GPUPools)}, {"NodePool", len(f.NodePools)}, {"EC2NodeClass", len(f.NodeClasses)}, {"Node", len(f.Nodes)},
		{"DaemonSet", len(f.DaemonSets)}, {"workload", len(f.Workloads)}, {"ClusterPolicy", len(f.ClusterPolicies)},
	}
	return slices.DeleteFunc(all, func(c Count) bool { return c.Number == 0 })
}
