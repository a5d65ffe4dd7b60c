package selector_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/pod/selector"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

const productKey = "nvidia.com/gpu.product"

func TestFinder(t *testing.T) {
	f := selector.NewFinder()
	f.AddNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{productKey: "NVIDIA-L4", "nvidia.com/gpu.count": "1"}}})
	f.AddNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{productKey: "NVIDIA-A10G", "nvidia.com/gpu.count": "4"}},
		Status: corev1.NodeStatus{Capacity: corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("7")}}})
	asks := func(labels map[string]string, resources ...corev1.ResourceName) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: labels, Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}}}}
		for _, r := range resources {
			p.Spec.Containers[0].Resources.Requests[r] = resource.MustParse("1")
		}
		return p
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want selector.Problem
	}{
		"nothing of ours": {asks(map[string]string{"team": "a"}), selector.Problem{}},
		"what a node has": {asks(map[string]string{productKey: "NVIDIA-L4"}, "nvidia.com/mig-1g.10gb"), selector.Problem{}},
		"a product that nobody sells": {asks(map[string]string{productKey: "A10"}), selector.Problem{
			Message:  "No node of any NodePool can have nvidia.com/gpu.product In [A10]; nearest possible is nvidia.com/gpu.product=NVIDIA-A10G",
			Selector: catalog.Selector{Key: productKey, Operator: "In", Values: []string{"A10"}}, Nearest: catalog.Suggestion{Key: productKey, Value: "NVIDIA-A10G"}}},
		"two labels that no node has together": {asks(map[string]string{productKey: "NVIDIA-L4", "nvidia.com/gpu.count": "4"}), selector.Problem{
			Message: "No node of any NodePool can have all of nvidia.com/gpu.count In [4], nvidia.com/gpu.product In [NVIDIA-L4] together"}},
		"a partition before a product": {asks(map[string]string{productKey: "A10"}, "nvidia.com/mig-2g.20gb"), selector.Problem{
			Message: "No GPUPool offers nvidia.com/mig-2g.20gb; offered are nvidia.com/mig-1g.10gb", Partition: "nvidia.com/mig-2g.20gb"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := f.Problem(tc.pod)
			if d := cmp.Diff(tc.want, got); d != "" || ok != (tc.want.Message != "") {
				t.Error(ok, d)
			}
		})
	}
}
