package readiness_test

import (
	"fmt"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

const (
	boot   = "11111111-1111-4111-8111-111111111111"
	reboot = "22222222-2222-4222-8222-222222222222"
)

var (
	verifier = readiness.NewVerifier(catalog.Default())
	t0       = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
)

// h100s is the report of a sound node with 8 H100, in the given boot.
func h100s(boot string) health.Report {
	r := health.Report{
		Version: health.ReportVersion, BootID: boot, State: health.Ready, Reason: health.ReasonVerified,
		Verified: true, Known: 8, Driver: "550.54.15", Library: "12.550.54.15", CUDA: "12.4",
	}
	for i := range 8 {
		r.GPUs = append(r.GPUs, health.ReportGPU{
			Index: i, UUID: fmt.Sprint("GPU-", i), Product: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, ComputeCapability: "9.0",
		})
	}
	return r
}

// p5 is a sound p5.48xlarge that waits for its gate to open.
func p5() readiness.Subject {
	gpus := corev1.ResourceList{
		"nvidia.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("192"), "vpc.amazonaws.com/efa": resource.MustParse("32"),
	}
	s := readiness.Subject{
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: "p5", Labels: map[string]string{karpv1.NodeRegisteredLabelKey: "true", karpv1.NodePoolLabelKey: "gpu"},
				Annotations: map[string]string{},
			},
			Spec:   corev1.NodeSpec{Taints: []corev1.Taint{v1alpha1.UnverifiedTaint()}},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: boot}, Allocatable: gpus.DeepCopy()},
		},
		Claim: &karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "p5", Labels: map[string]string{
				corev1.LabelInstanceTypeStable: "p5.48xlarge", corev1.LabelTopologyZone: "a", karpv1.NodePoolLabelKey: "gpu",
			}},
			Status: karpv1.NodeClaimStatus{Capacity: gpus.DeepCopy(), Allocatable: gpus.DeepCopy()},
		},
		Pool: &pools.Pool{GPUPool: &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "inference"}}, NodePools: []string{"gpu"}},
	}
	report(s.Node, h100s(boot))
	return s
}

// report writes a report as the agent does: annotation and condition.
func report(node *corev1.Node, r health.Report) {
	node.Annotations[v1alpha1.ReportAnnotationKey] = string(lo.Must(health.Encode(r)))
	status := map[health.State]corev1.ConditionStatus{
		health.Ready: corev1.ConditionTrue, health.Unhealthy: corev1.ConditionFalse, health.Starting: corev1.ConditionUnknown,
	}[r.State]
	message := "8 GPUs verified"
	if len(r.Findings) > 0 {
		message = r.Findings[0].Message
	}
	condition(node, corev1.NodeCondition{Type: v1alpha1.NodeConditionGPUReady, Status: status, Reason: string(r.Reason), Message: message, LastTransitionTime: metav1.NewTime(t0)})
}

func condition(node *corev1.Node, c corev1.NodeCondition) {
	node.Status.Conditions = append(lo.Reject(node.Status.Conditions, func(o corev1.NodeCondition, _ int) bool { return o.Type == c.Type }), c)
}

// broken turns a report into one with a fatal fault.
func broken(r health.Report, state health.State, f health.ReportFinding) health.Report {
	f.Severity = health.Fatal
	r.State, r.Reason, r.Findings = state, f.Reason, append(r.Findings, f)
	return r
}

// verified marks the node as one that was verified in its present boot and is at work.
func verified(s readiness.Subject) readiness.Subject {
	s.Node.Annotations[v1alpha1.VerifiedBootAnnotationKey] = s.Node.Status.NodeInfo.BootID
	readiness.Open(s.Node)
	return s
}
