package charts_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

const (
	requireAssets = "KPGPU_REQUIRE_ASSETS"
	namespace     = "karpenter"
	// patience bounds one step of Helm or of the cluster, on a machine that compiles meanwhile.
	patience = 3 * time.Minute
)

// cluster is a control plane with KWOK's kubelets and Helm beside it.
type cluster struct {
	*testenv.Environment
	helm runner
}

// startCluster starts a control plane with two machines for system pods, in two zones.
func startCluster(t *testing.T) cluster {
	t.Helper()
	newRunner(t, "") // skips before the plane starts
	env, err := testenv.Start(t.Context(), testenv.Options{ControlPlane: controlplane.Options{Components: controlplane.AllComponents()}})
	var missing *controlplane.MissingBinaryError
	if errors.As(err, &missing) && os.Getenv(requireAssets) == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c := cluster{Environment: env, helm: newRunner(t, env.ControlPlane.Kubeconfig())}
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for _, zone := range []string{"a", "b"} {
		c.create(t, machine("system-"+zone, map[string]string{corev1.LabelTopologyZone: zone}))
	}
	return c
}

// machine is a Node whose kubelet KWOK plays.
func machine(name string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("100"),
	}
	all := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}
	maps.Copy(all, labels)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all, Annotations: map[string]string{controlplane.NodeAnnotation: controlplane.NodeAnnotationValue}},
		Spec:       corev1.NodeSpec{Taints: taints, ProviderID: "aws:///zone/i-" + name},
		Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

func (c cluster) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := c.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// apply creates the objects of a manifest.
func (c cluster) apply(t *testing.T, manifest string) {
	t.Helper()
	for _, u := range parse(t, manifest) {
		c.eventually(t, "creating "+u.GetKind()+" "+u.GetName(), func(ctx context.Context) error { return c.Client.Create(ctx, u) })
	}
}

func (c cluster) eventually(t *testing.T, what string, try func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v, %v", what, err, last)
	}
}

// get reads an object; nil means that there is none.
func (c cluster) get(t *testing.T, gvk schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, u)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return u
}

// Kinds that the tests look at without their Go types.
var (
	nodePoolKind    = schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodePool"}
	nodeClaimKind   = schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodeClaim"}
	nodeClassKind   = schema.GroupVersionKind{Group: "karpenter.k8s.aws", Version: "v1", Kind: "EC2NodeClass"}
	gpuPoolKind     = schema.GroupVersionKind{Group: "karpenter-gpu.dev", Version: "v1alpha1", Kind: "GPUPool"}
	definitionKind  = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	deploymentKind  = appsv1.SchemeGroupVersion.WithKind("Deployment")
	serviceAcctKind = corev1.SchemeGroupVersion.WithKind("ServiceAccount")
	clusterRoleKind = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}
)

// state is what an upgrade must leave alone, by "Kind name": identity and content of
// Karpenter's objects, and of nodes and pods what their users see.
type state map[string]any

func (c cluster) state(t *testing.T) state {
	t.Helper()
	s := state{}
	for _, gvk := range []schema.GroupVersionKind{nodePoolKind, nodeClaimKind, nodeClassKind} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		if err := c.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for _, u := range list.Items {
			s[gvk.Kind+" "+u.GetName()] = u.Object
		}
	}
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	if err := errors.Join(c.Client.List(t.Context(), nodes), c.Client.List(t.Context(), pods, client.InNamespace("default"))); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		s["Node "+n.Name] = []any{n.UID, n.Labels, n.Annotations, n.Spec, n.DeletionTimestamp}
	}
	for _, p := range pods.Items {
		s["Pod "+p.Name] = []any{p.UID, p.Labels, p.Annotations, p.Spec, p.Status.Phase, p.DeletionTimestamp}
	}
	return s
}

// mustBe fails where the cluster's state differs.
func (s state) mustBe(t *testing.T, when string, now state) {
	t.Helper()
	if diff := cmp.Diff(s, now); diff != "" {
		t.Fatalf("%s (-before +after):\n%s", when, diff)
	}
}

// containers are the images of a Deployment's running pods, sorted.
func (c cluster) images(t *testing.T, labels map[string]string) (images []string) {
	t.Helper()
	pods := &corev1.PodList{}
	if err := c.Client.List(t.Context(), pods, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp.IsZero() {
			images = append(images, fmt.Sprintf("%s %s", p.Status.Phase, strings.SplitN(p.Spec.Containers[0].Image, "@", 2)[0]))
		}
	}
	slices.Sort(images)
	return images
}
