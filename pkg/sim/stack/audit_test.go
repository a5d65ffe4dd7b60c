package stack

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

type state struct {
	version          int
	boot, verified   string
	tainted, foreign bool
}

func (s state) node() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: strconv.Itoa(s.version), Labels: map[string]string{"karpenter.sh/nodepool": "gpu"}}}
	if s.foreign {
		n.Labels = nil
	}
	n.Annotations = map[string]string{v1alpha1.VerifiedBootAnnotationKey: s.verified}
	n.Status.NodeInfo.BootID = s.boot
	if s.tainted {
		n.Spec.Taints = []corev1.Taint{v1alpha1.UnverifiedTaint()}
	}
	return n
}

func podAt(version int, gpus string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(version), UID: types.UID(strconv.Itoa(version)), ResourceVersion: strconv.Itoa(version)},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)}}}}},
	}
}

func TestAudit(t *testing.T) {
	life := []state{
		{version: 10, boot: "1", tainted: true},
		{version: 20, boot: "1", verified: "1"},
		{version: 30, boot: "1", verified: "1", tainted: true}, // fenced
		{version: 40, boot: "2", verified: "1", tainted: true},
		{version: 50, boot: "2", verified: "2"},
	}
	for name, tc := range map[string]struct {
		life []state
		pods []*corev1.Pod
		want []string
	}{
		"before, after, and on the next boot":  {life, []*corev1.Pod{podAt(15, "1"), podAt(25, "1"), podAt(45, "1"), podAt(55, "1")}, []string{"15", "45"}},
		"just after a fence":                   {life, []*corev1.Pod{podAt(31, "1")}, nil},
		"without GPUs":                         {life, []*corev1.Pod{podAt(15, "0")}, nil},
		"on a machine that is not Karpenter's": {[]state{{version: 10, foreign: true}}, []*corev1.Pod{podAt(15, "1")}, nil},
		"on a node that nobody verifies":       {[]state{{version: 10, boot: "1"}}, []*corev1.Pod{podAt(15, "1")}, []string{"15"}},
		"without a taint and not verified":     {[]state{{version: 10, boot: "1"}, {version: 20, boot: "1", verified: "1"}}, []*corev1.Pod{podAt(15, "1")}, []string{"15"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAudit()
			for _, p := range tc.pods { // the pods' watch is faster than the nodes'
				a.see(p)
			}
			for _, s := range tc.life {
				a.see(s.node())
				a.see(s.node())
			}
			var got []string
			for _, p := range a.unverified() {
				got = append(got, p.Name)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
