package overview_test

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/overview"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/printer"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

var update = flag.Bool("update", false, "rewrite the golden file")

var now = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func nodePool(name, pool string) *karpv1.NodePool {
	return &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.PoolLabelKey: pool}}}
}

func labels(nodePool, instanceType, layout string) map[string]string {
	out := map[string]string{karpv1.NodePoolLabelKey: nodePool, corev1.LabelInstanceTypeStable: instanceType, karpv1.CapacityTypeLabelKey: "on-demand", corev1.LabelTopologyZone: "us-east-1a"}
	if layout != "" {
		out[v1alpha1.LayoutLabelKey] = layout
	}
	return out
}

// pair is a NodeClaim and its Node, verified.
func pair(name string, labels map[string]string, age time.Duration, allocatable corev1.ResourceList) (*karpv1.NodeClaim, *corev1.Node) {
	id := "aws:///us-east-1a/" + name
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: ago(age)}, Status: karpv1.NodeClaimStatus{ProviderID: id}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ip-" + name, Labels: labels, CreationTimestamp: ago(age), Annotations: map[string]string{v1alpha1.VerifiedBootAnnotationKey: "boot-1"}},
		Spec: corev1.NodeSpec{ProviderID: id}, Status: corev1.NodeStatus{Allocatable: allocatable, NodeInfo: corev1.NodeSystemInfo{BootID: "boot-1"}}}
	return claim, node
}

func gpus(name, n string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(n), corev1.ResourceCPU: resource.MustParse("8")}
}

func running(name, node, resourceName, n string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning}, Spec: corev1.PodSpec{NodeName: node,
		Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse(n)}}}}}}
}

// fleet is a cluster with a bit of everything.
func fleet() overview.Input {
	in := overview.Input{Catalog: catalog.Default(), Now: now, NodePools: []*karpv1.NodePool{nodePool("training", "whole"), nodePool("serving-b", "partitions"), nodePool("serving-a", "partitions"), nodePool("cpu", "")}}
	in.GPUPools = []*v1alpha1.GPUPool{
		{ObjectMeta: metav1.ObjectMeta{Name: "whole", Generation: 1}, Spec: v1alpha1.GPUPoolSpec{Limits: v1alpha1.Limits{GPUs: lo.ToPtr(int32(32)), PricePerHour: lo.ToPtr("40")}},
			Status: v1alpha1.GPUPoolStatus{ObservedGeneration: 1, Nodes: 4, PricePerHour: "6.40", GPUs: v1alpha1.GPUCounts{Ready: 1, Provisioning: 2, Unhealthy: 1, Warm: 1, Total: 4},
				Warm: []v1alpha1.WarmStatus{{Name: "day", Unit: v1alpha1.WarmUnitGPUs, Wanted: 2, Ready: 1, Provisioning: 1, NextChange: lo.ToPtr(metav1.NewTime(now.Add(10 * time.Hour))), Message: "one node is in trial"}},
				Conditions: []status.Condition{
					{Type: status.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"},
					{Type: v1alpha1.ConditionTypeGPUsHealthy, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNodesFenced, Message: "1 node is fenced because of GPU faults, such as ip-w2"},
				}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "partitions", Generation: 3}, Spec: v1alpha1.GPUPoolSpec{Partitioning: &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Layouts: []string{"all-balanced"}}}},
			Status: v1alpha1.GPUPoolStatus{ObservedGeneration: 3, Nodes: 2, PricePerHour: "110.08", GPUs: v1alpha1.GPUCounts{Ready: 16, Total: 16}, Layouts: []v1alpha1.LayoutStatus{{Name: "all-balanced", Nodes: 2}},
				Conditions: []status.Condition{{Type: status.ConditionReady, Status: metav1.ConditionFalse, Reason: "UnhealthyDependents"},
					{Type: v1alpha1.ConditionTypeGateSafe, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTaintNotTolerated, Message: "DaemonSet kube-system/nvidia-device-plugin (device plugin) does not tolerate readiness.karpenter-gpu.dev/unverified:NoSchedule; run: kubectl -n kube-system patch daemonset nvidia-device-plugin --type=json -p '[…]'. Until then nodes of the pool are not gated"}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "unseen", Generation: 1}, Spec: v1alpha1.GPUPoolSpec{Partitioning: &v1alpha1.Partitioning{MPS: &v1alpha1.MPS{Replicas: 4}}}},
	}
	add := func(c *karpv1.NodeClaim, n *corev1.Node) {
		in.NodeClaims = append(in.NodeClaims, c)
		if n != nil {
			in.Nodes = append(in.Nodes, n)
		}
	}
	balanced := corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("16"), "nvidia.com/mig-2g.20gb": resource.MustParse("8"), "nvidia.com/mig-3g.40gb": resource.MustParse("8")}
	add(pair("p1", labels("serving-a", "p5.48xlarge", "all-balanced"), 50*time.Hour, balanced))
	add(pair("p2", labels("serving-a", "p5.48xlarge", "all-balanced"), 2*time.Hour, balanced))
	add(pair("w1", labels("training", "g6.xlarge", ""), 26*time.Minute, gpus("nvidia.com/gpu", "1")))
	broken, faulty := pair("w2", labels("training", "g6.xlarge", ""), 3*time.Hour, gpus("nvidia.com/gpu", "0"))
	faulty.Spec.Taints = []corev1.Taint{v1alpha1.UnverifiedTaint()}
	faulty.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeConditionGPUReady, Status: corev1.ConditionFalse, Reason: "XID", Message: "XID 79: GPU 0 has fallen off the bus"}}
	add(broken, faulty)
	trial, fresh := pair("w3", labels("training", "g6.xlarge", ""), 70*time.Second, nil)
	fresh.Annotations = nil
	add(trial, fresh)
	stuck, _ := pair("w4", labels("training", "", ""), 40*time.Second, nil)
	stuck.Status.ProviderID = ""
	stuck.Status.Conditions = []status.Condition{{Type: karpv1.ConditionTypeLaunched, Status: metav1.ConditionUnknown, Reason: "InsufficientCapacity", Message: "no g6.xlarge in us-east-1a"}}
	add(stuck, nil)
	leaving, gone := pair("w5", labels("training", "g6.xlarge", ""), time.Hour, gpus("nvidia.com/gpu", "1"))
	leaving.DeletionTimestamp = lo.ToPtr(ago(time.Minute))
	add(leaving, gone)
	add(pair("c1", labels("cpu", "m7i.large", ""), time.Hour, nil))
	in.Pods = []*corev1.Pod{
		running("a", "ip-p1", "nvidia.com/mig-1g.10gb", "3"), running("b", "ip-p2", "nvidia.com/mig-3g.40gb", "1"), running("c", "ip-w1", "nvidia.com/gpu", "1"),
		running("elsewhere", "ip-c1", "nvidia.com/gpu", "1"), running("ended", "ip-p1", "nvidia.com/mig-1g.10gb", "2"),
	}
	in.Pods[4].Status.Phase = corev1.PodSucceeded
	return in
}

func table(t *testing.T, o *overview.Overview, s printer.Style) string {
	t.Helper()
	var b bytes.Buffer
	if err := printer.Status(&b, o, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestTableOfAFleet compares the whole table, which the reference shows too.
func TestTableOfAFleet(t *testing.T) {
	const golden, page = "testdata/fleet.txt", "../../../docs/reference/kubectl-gpupool.md"
	got := table(t, overview.New(fleet()), printer.Style{})
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("run go test -update in this package and read the difference:\n%s", d)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```text\n"+got+"```") {
		t.Error("the reference does not show this table; put testdata/fleet.txt into " + page)
	}
}

func TestColorsChangeNothingThatIsSaid(t *testing.T) {
	o := overview.New(fleet())
	colored := table(t, o, printer.Colors())
	stripped := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(colored, "")
	if d := cmp.Diff(table(t, o, printer.Style{}), strings.TrimLeft(stripped, "\n")); d != "" || colored == stripped {
		t.Error("colors change what is said", d)
	}
}

func TestOrderOfInputDoesNotMatter(t *testing.T) {
	in := fleet()
	want := overview.New(in)
	slices.Reverse(in.GPUPools)
	slices.Reverse(in.NodePools)
	slices.Reverse(in.NodeClaims)
	slices.Reverse(in.Nodes)
	slices.Reverse(in.Pods)
	if d := cmp.Diff(want, overview.New(in)); d != "" {
		t.Error(d)
	}
}

func TestProblems(t *testing.T) {
	problem := func(object, reason, message string) overview.Problem {
		return overview.Problem{Object: object, Reason: reason, Message: message}
	}
	for name, tc := range map[string]struct {
		change func(*overview.Input)
		want   overview.Problem
	}{
		"a controller that lags": {func(in *overview.Input) { in.GPUPools[0].Generation = 2 },
			problem("GPUPool whole", overview.ReasonStatusOutdated, "the status speaks of an earlier spec; if this stays, run kubectl gpupool doctor to see whether karpenter-gpu runs")},
		"mig-manager that failed": {func(in *overview.Input) {
			in.Nodes[4].Labels[v1alpha1.MIGConfigLabelKey], in.Nodes[4].Labels[v1alpha1.MIGConfigStateLabelKey] = "all-balanced", "failed"
		}, problem("Node ip-w3", "MIGConfigFailed", "mig-manager could not apply the layout all-balanced; its log on the node says why")},
		"a fenced node whose agent says nothing": {func(in *overview.Input) { in.Nodes[3].Status.Conditions[0].Status = corev1.ConditionTrue },
			problem("Node ip-w2", "Faulty", "the node is fenced; kubectl describe node says why")},
		"a condition without a message": {func(in *overview.Input) { in.GPUPools[0].Status.Conditions[1].Message = "" },
			problem("GPUPool whole", v1alpha1.ReasonNodesFenced, "GPUsHealthy is False")},
	} {
		t.Run(name, func(t *testing.T) {
			in := fleet()
			tc.change(&in)
			if got := overview.New(in).Problems; !slices.Contains(got, tc.want) {
				t.Errorf("%+v is not among %+v", tc.want, got)
			}
		})
	}
}

func TestOnlySomePools(t *testing.T) {
	in := fleet()
	if unknown := in.Only("whole", "no-such"); !slices.Equal(unknown, []string{"no-such"}) {
		t.Errorf("unknown: %v", unknown)
	}
	o := overview.New(in)
	if len(o.GPUPools) != 1 || o.GPUPools[0].Name != "whole" || len(o.Nodes) != 5 || o.Total.Nodes != 4 || o.Total.PricePerHour != "6.40" {
		t.Errorf("%+v", o)
	}
	none := fleet()
	if unknown := none.Only(); unknown != nil || len(none.GPUPools) != 3 {
		t.Errorf("no name narrows to %d pools", len(none.GPUPools))
	}
}

func TestNoPools(t *testing.T) {
	if got, want := table(t, overview.New(overview.Input{Catalog: catalog.Default(), Now: now}), printer.Style{}), "There is no GPUPool. All NodePools behave as plain Karpenter.\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
