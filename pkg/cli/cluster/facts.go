package cluster

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/doctor"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

// ReadFacts lists everything that an examination looks at. Kinds that the user may not
// read are noted in it. Who may read neither NodePools nor GPUPools gets an error: all
// that is examined follows from them.
func ReadFacts(ctx context.Context, c client.Reader) (*doctor.Facts, error) {
	f := &doctor.Facts{Cluster: true, Unread: map[string]string{}}
	for _, read := range []struct {
		kind string
		step func() error
	}{
		{"CustomResourceDefinition", func() error { return fill(ctx, c, &f.CRDs, definitions) }},
		{"Deployment", func() error { return fill(ctx, c, &f.Deployments, deployments) }},
		{"DaemonSet", func() error { return fill(ctx, c, &f.DaemonSets, daemonSets) }},
		{"GPUPool", func() error { return fill(ctx, c, &f.GPUPools, gpuPools) }},
		{"NodePool", func() error { return fill(ctx, c, &f.NodePools, nodePools) }},
		{"EC2NodeClass", func() error { return fill(ctx, c, &f.NodeClasses, ofKind(catalogprovider.NodeClassGVK)) }},
		{"ClusterPolicy", func() error { return fill(ctx, c, &f.ClusterPolicies, ofKind(doctor.ClusterPolicyGVK)) }},
		{"Namespace", func() error { return fill(ctx, c, &f.Namespaces, namespaces) }},
		{"ConfigMap", func() error { return readConfigMaps(ctx, c, f) }},
		{"Node", func() error { return fill(ctx, c, &f.Nodes, nodes) }},
		{"Pod", func() error { return fill(ctx, c, &f.Pods, pods) }},
		{"StatefulSet, Job or CronJob", func() error { return readWorkloads(ctx, c, f) }},
	} {
		err := read.step()
		if apierrors.IsForbidden(err) {
			f.Unread[read.kind] = err.Error()
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	if nodePools, gpuPools := f.Unread["NodePool"], f.Unread["GPUPool"]; nodePools != "" && gpuPools != "" {
		return nil, fmt.Errorf("neither NodePools nor GPUPools can be read, so that there is nothing to examine: %s; %s", nodePools, gpuPools)
	}
	addPods(f)
	return f, nil
}

// source makes a list and says how its items are taken out.
type source[T any] func() (client.ObjectList, func() []T)

func definitions() (client.ObjectList, func() []apiextensionsv1.CustomResourceDefinition) {
	l := &apiextensionsv1.CustomResourceDefinitionList{}
	return l, func() []apiextensionsv1.CustomResourceDefinition { return l.Items }
}

func deployments() (client.ObjectList, func() []appsv1.Deployment) {
	l := &appsv1.DeploymentList{}
	return l, func() []appsv1.Deployment { return l.Items }
}

func daemonSets() (client.ObjectList, func() []appsv1.DaemonSet) {
	l := &appsv1.DaemonSetList{}
	return l, func() []appsv1.DaemonSet { return l.Items }
}

func gpuPools() (client.ObjectList, func() []v1alpha1.GPUPool) {
	l := &v1alpha1.GPUPoolList{}
	return l, func() []v1alpha1.GPUPool { return l.Items }
}

func nodePools() (client.ObjectList, func() []karpv1.NodePool) {
	l := &karpv1.NodePoolList{}
	return l, func() []karpv1.NodePool { return l.Items }
}

func namespaces() (client.ObjectList, func() []corev1.Namespace) {
	l := &corev1.NamespaceList{}
	return l, func() []corev1.Namespace { return l.Items }
}

func nodes() (client.ObjectList, func() []corev1.Node) {
	l := &corev1.NodeList{}
	return l, func() []corev1.Node { return l.Items }
}

func pods() (client.ObjectList, func() []corev1.Pod) {
	l := &corev1.PodList{}
	return l, func() []corev1.Pod { return l.Items }
}

func ofKind(gvk schema.GroupVersionKind) source[unstructured.Unstructured] {
	return func() (client.ObjectList, func() []unstructured.Unstructured) {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(schema.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind + "List"})
		return l, func() []unstructured.Unstructured { return l.Items }
	}
}

func fill[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, into *[]P, from source[T]) (err error) {
	what, items := from()
	*into, err = list[T, P](ctx, c, what, items)
	return err
}

// readConfigMaps reads no namespace but those where NVIDIA's software has its settings.
func readConfigMaps(ctx context.Context, c client.Reader, f *doctor.Facts) error {
	for _, namespace := range f.ConfigNamespaces() {
		l := &corev1.ConfigMapList{}
		found, err := list(ctx, c, l, func() []corev1.ConfigMap { return l.Items }, client.InNamespace(namespace))
		if err != nil {
			return err
		}
		f.ConfigMaps = append(f.ConfigMaps, found...)
	}
	return nil
}

// readWorkloads adds what creates pods.
func readWorkloads(ctx context.Context, c client.Reader, f *doctor.Facts) error {
	sets, jobs, crons := &appsv1.StatefulSetList{}, &batchv1.JobList{}, &batchv1.CronJobList{}
	statefulSets, err := list(ctx, c, sets, func() []appsv1.StatefulSet { return sets.Items })
	if err != nil {
		return err
	}
	batch, err := list(ctx, c, jobs, func() []batchv1.Job { return jobs.Items })
	if err != nil {
		return err
	}
	cronJobs, err := list(ctx, c, crons, func() []batchv1.CronJob { return crons.Items })
	if err != nil {
		return err
	}
	f.Workloads = append(f.Workloads, objects(statefulSets)...)
	f.Workloads = append(f.Workloads, objects(cronJobs)...)
	for _, j := range batch {
		if owner := metav1.GetControllerOf(j); owner == nil || owner.Kind != "CronJob" {
			f.Workloads = append(f.Workloads, j)
		}
	}
	return nil
}

func objects[T client.Object](list []T) []client.Object {
	out := make([]client.Object, 0, len(list))
	for _, o := range list {
		out = append(out, o)
	}
	return out
}

// addPods adds Deployments, and the pods that no other workload speaks for.
func addPods(f *doctor.Facts) {
	f.Workloads = append(objects(f.Deployments), f.Workloads...)
	covered := []string{"ReplicaSet", "StatefulSet", "Job", "DaemonSet", "Node"}
	for _, p := range f.Pods {
		if owner := metav1.GetControllerOf(p); owner == nil || !slices.Contains(covered, owner.Kind) {
			f.Workloads = append(f.Workloads, p)
		}
	}
}
