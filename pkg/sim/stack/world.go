package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

// Apply creates or updates objects, and tells of a NodePool whose NodeClass is missing: Karpenter
// itself says so only in a condition, and pods wait without a word.
func (s *Stack) Apply(ctx context.Context, manifests string) error {
	objects, err := s.objects.apply(ctx, manifests)
	if err != nil {
		return err
	}
	for _, o := range objects {
		var err error
		switch o.GetKind() {
		case "NodePool":
			err = s.checkNodeClass(ctx, o)
		case "Namespace":
			err = s.grantLater(ctx, o.GetName())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) checkNodeClass(ctx context.Context, pool *unstructured.Unstructured) error {
	ref, _, _ := unstructured.NestedStringMap(pool.Object, "spec", "template", "spec", "nodeClassRef") // the API server has checked its form
	_, err := s.objects.get(ctx, scenario.Ref{Kind: ref["kind"], Name: ref["name"]})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("NodePool %s: spec.template.spec.nodeClassRef names %s %q, which does not exist; apply it before the NodePool, or correct the name",
			pool.GetName(), ref["kind"], ref["name"])
	}
	return err
}

// Delete deletes an object; its dependents go in the background.
func (s *Stack) Delete(ctx context.Context, ref scenario.Ref) error {
	if err := s.objects.delete(ctx, ref); err != nil {
		return fmt.Errorf("deleting %s, %w", ref, err)
	}
	return nil
}

// Scale sets spec.replicas through the scale subresource.
func (s *Stack) Scale(ctx context.Context, ref scenario.Ref, replicas int) error {
	resource, err := s.objects.of(ref)
	if err != nil {
		return fmt.Errorf("scaling %s, %w", ref, err)
	}
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"replicas": replicas}})
	if err != nil {
		return err
	}
	if _, err := resource.Patch(ctx, ref.Name, types.MergePatchType, body, metav1.PatchOptions{}, "scale"); err != nil {
		return fmt.Errorf("scaling %s, %w", ref, err)
	}
	return nil
}

// AddLocalNodes creates machines that Karpenter does not manage. Their GPUs appear when the
// simulated device plugin registers them, as on any node.
func (s *Stack) AddLocalNodes(ctx context.Context, l scenario.LocalNodes) error {
	shape, ok := catalog.Default().Shape(l.Like)
	if !ok {
		return fmt.Errorf("like: %q is no EC2 instance type of the catalogue", l.Like)
	}
	for i := range max(l.Count, 1) {
		n := localNode(l, shape, fmt.Sprintf("%s-%d", l.Name, i+1))
		if _, err := s.kube.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating node %s, %w", n.Name, err)
		}
	}
	return nil
}

func localNode(l scenario.LocalNodes, shape catalog.Shape, name string) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:           name,
		corev1.LabelOSStable:           "linux",
		corev1.LabelArchStable:         shape.Arch,
		corev1.LabelInstanceTypeStable: l.Name,
		corev1.LabelTopologyZone:       l.Zone,
	}
	maps.Copy(labels, l.Labels)
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(shape.VCPU), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(shape.MemoryMiB)<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             *resource.NewQuantity(110, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: labels,
			Annotations: map[string]string{
				controlplane.NodeAnnotation: controlplane.NodeAnnotationValue,
				node.AnnotationHardware:     l.Like,
			},
		},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources.DeepCopy(),
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: name, SystemUUID: name, BootID: name + "-1", KernelVersion: "6.12.0", OSImage: "Ubuntu 24.04 LTS",
				ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: "v1.37.2", OperatingSystem: "linux", Architecture: shape.Arch,
			},
		},
	}
}

// Cordon makes nodes unschedulable, as kubectl cordon does.
func (s *Stack) Cordon(ctx context.Context, selector string) (int, error) {
	nodes, err := s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return 0, fmt.Errorf("listing nodes, %w", err)
	}
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		if _, err := s.kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); err != nil {
			return i, fmt.Errorf("cordoning node %s, %w", name, err)
		}
	}
	return len(nodes.Items), nil
}

// FailNode begins a fault of node software.
func (s *Stack) FailNode(f node.Fault) error { return s.nodes.Inject(f) }

// HealNode ends one by name.
func (s *Stack) HealNode(name string) error { return s.nodes.Heal(name) }
