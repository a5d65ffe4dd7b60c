package planner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"
	clock "k8s.io/utils/clock/testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/planner"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

func plan(t *testing.T, documents ...string) (*planner.Plan, error) {
	t.Helper()
	in, err := manifest.Load([]string{manifest.StandardInput}, strings.NewReader(strings.Join(documents, "\n---\n")))
	if err != nil {
		t.Fatal(err)
	}
	return planner.Run(context.Background(), in, planner.Options{
		Cloud: catalogprovider.DefaultOptions(), CompareStock: true, Clock: clock.NewFakeClock(time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC))})
}

func must(t *testing.T, documents ...string) *planner.Plan {
	t.Helper()
	p, err := plan(t, documents...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func pool(name, spec string) string {
	return fmt.Sprintf("apiVersion: karpenter-gpu.dev/v1alpha1\nkind: GPUPool\nmetadata: {name: %s}\nspec: %s", name, spec)
}

// nodePool joins the pool of its own name.
func nodePool(name, requirements, rest string) string {
	return fmt.Sprintf(`apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: %s, labels: {karpenter-gpu.dev/pool: %[1]s}}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [%s]
%s`, name, requirements, rest)
}

func families(names ...string) string {
	return fmt.Sprintf("{key: karpenter.k8s.aws/instance-family, operator: In, values: [%s]}, {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}", strings.Join(names, ", "))
}

func workload(name string, replicas int, resources, more string) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s}\nspec: {replicas: %d, selector: {}, template: {metadata: {labels: {app: %[1]s}}, spec: {%[3]s containers: [{name: main, image: main, resources: {limits: {%[4]s}}}]}}}",
		name, replicas, more, resources)
}

var nodeClass = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: default}\nspec: {amiFamily: AL2023}"

func shapes(d planner.Decision) []string {
	return lo.Map(d.Nodes, func(n planner.Node, _ int) string { return fmt.Sprintf("%s %d pods", n.InstanceType, len(n.Pods)) })
}

func TestWithoutNodePoolsThereIsNothingToPlan(t *testing.T) {
	if _, err := plan(t, workload("a", 1, "cpu: 1", "")); !errors.Is(err, planner.ErrNoNodePools) {
		t.Errorf("got %v", err)
	}
}

func TestOneGPUPodsGetOneGPUNodes(t *testing.T) {
	p := must(t, nodeClass, pool("gpu", "{}"), nodePool("gpu", families("g6"), ""), workload("a", 3, "cpu: 2, memory: 8Gi, nvidia.com/gpu: 1", ""))
	if d := cmp.Diff([]string{"g6.xlarge 1 pods", "g6.xlarge 1 pods", "g6.xlarge 1 pods"}, shapes(p.Decision)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"g6.12xlarge 3 pods"}, shapes(*p.Stock)); d != "" {
		t.Error(d)
	}
	if p.Decision.UnusedGPUs != 0 || p.Stock.UnusedGPUs != 1 {
		t.Errorf("%d and %d GPUs unused", p.Decision.UnusedGPUs, p.Stock.UnusedGPUs)
	}
	if want := 3 * 0.8048; *p.LowerBound > want+1e-6 || *p.LowerBound < want-1e-3 || p.Decision.PricePerHour != 2.4144 {
		t.Errorf("$%v with a bound of $%v, want $%v", p.Decision.PricePerHour, *p.LowerBound, want)
	}
}

func TestDaemonSetsTakeRoom(t *testing.T) {
	daemon := "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: heavy}\nspec: {selector: {}, template: {spec: {containers: [{name: main, image: main, resources: {requests: {cpu: 2}}}]}}}"
	with := []string{nodeClass, pool("gpu", "{}"), nodePool("gpu", families("g6"), ""), workload("a", 1, "cpu: 3, nvidia.com/gpu: 1", "")}
	if d := cmp.Diff([]string{"g6.xlarge 1 pods"}, shapes(must(t, with...).Decision)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"g6.2xlarge 1 pods"}, shapes(must(t, append(with, daemon)...).Decision)); d != "" {
		t.Error(d)
	}
}

func TestLayoutsAndSharingOfAPool(t *testing.T) {
	mig := must(t, nodeClass, pool("gpu", "{partitioning: {mig: {profiles: [1g.5gb, 3g.20gb]}}}"), nodePool("gpu", families("p4d"), ""), workload("a", 56, "cpu: 1, nvidia.com/mig-1g.5gb: 1", ""))
	if len(mig.Decision.Nodes) != 1 || mig.Decision.Nodes[0].Layout == "" || mig.Decision.UnusedGPUs != 0 || mig.Stock.Unplaced != 56 {
		t.Errorf("56 small partitions are planned as %+v, stock leaves %d", mig.Decision.Nodes, mig.Stock.Unplaced)
	}
	shared := must(t, nodeClass, pool("gpu", "{partitioning: {timeSlicing: {replicas: 4}}}"), nodePool("gpu", families("g6"), ""), workload("a", 4, "cpu: 500m, nvidia.com/gpu: 1", ""))
	if d := cmp.Diff([]string{"g6.xlarge 4 pods"}, shapes(shared.Decision)); d != "" {
		t.Error(d)
	}
	if n := shared.Decision.Nodes[0]; n.GPUs != 1 || n.UnusedGPUs != 0 {
		t.Errorf("%d of %d GPUs unused", n.UnusedGPUs, n.GPUs)
	}
}

func TestReasonsAndFixes(t *testing.T) {
	for name, tc := range map[string]struct {
		pool, nodePool, workload string
		why, fix                 string
	}{
		"a taint": {pool("gpu", "{}"), nodePool("gpu", families("g6"), "      taints: [{key: gpu, value: only, effect: NoExecute}]"), workload("a", 2, "nvidia.com/gpu: 1", ""),
			"it does not tolerate the taint gpu=only:NoExecute of NodePool gpu", "add a toleration for gpu=only:NoExecute to the pod"},
		"a zone that the NodePool does not allow": {pool("gpu", "{}"), nodePool("gpu", families("g6")+", {key: topology.kubernetes.io/zone, operator: In, values: [us-east-1a]}", ""),
			workload("a", 1, "nvidia.com/gpu: 1", "nodeSelector: {topology.kubernetes.io/zone: us-east-1b},"),
			"it selects topology.kubernetes.io/zone In [us-east-1b], and NodePool gpu allows only topology.kubernetes.io/zone In [us-east-1a]",
			"select topology.kubernetes.io/zone: us-east-1a, or allow it in spec.template.spec.requirements of NodePool gpu"},
		"a label of nobody": {pool("gpu", "{}"), nodePool("gpu", families("g6"), ""), workload("a", 1, "nvidia.com/gpu: 1", "nodeSelector: {nvidia.com/gpu.produkt: NVIDIA-L4},"),
			"it selects nvidia.com/gpu.produkt In [NVIDIA-L4], a label that nodes of NodePool gpu do not have",
			"perhaps nvidia.com/gpu.product: NVIDIA-L4 was meant; or add nvidia.com/gpu.produkt to spec.template.metadata.labels of NodePool gpu"},
		"a product of another family": {pool("gpu", "{}"), nodePool("gpu", families("g6"), ""), workload("a", 1, "nvidia.com/gpu: 1", "nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S},"),
			"it selects nvidia.com/gpu.product In [NVIDIA-L40S], which no instance type of NodePool gpu satisfies",
			"nearest that there is: nvidia.com/gpu.product: NVIDIA-L4; or allow g6e.xlarge ($1.861/h on demand) in spec.template.spec.requirements of NodePool gpu"},
		"more memory than there is": {pool("gpu", "{}"), nodePool("gpu", families("g5"), ""), workload("a", 1, "nvidia.com/gpu: 1, memory: 900Gi", ""),
			"it asks for 900Gi memory, and the most that a node of NodePool gpu has left for pods is 723299Mi (g5.48xlarge)",
			"ask for at most 723299Mi; or allow g7e.24xlarge ($16.57216/h on demand) in spec.template.spec.requirements of NodePool gpu"},
		"a profile of no GPU": {pool("gpu", "{}"), nodePool("gpu", families("p4d"), ""), workload("a", 1, "nvidia.com/mig-5g.11gb: 1", ""),
			"it asks for nvidia.com/mig-5g.11gb, which no node of NodePool gpu has", "no GPU has the profile 5g.11gb; nvidia-smi mig -lgip lists those of a GPU"},
		"replicas that nobody makes": {pool("gpu", "{}"), nodePool("gpu", families("g6"), ""), workload("a", 1, "nvidia.com/gpu.shared: 1", ""),
			"it asks for nvidia.com/gpu.shared, which no node of NodePool gpu has", "join the NodePool to a GPUPool whose spec.partitioning.timeSlicing or .mps has renameByDefault: true"},
		"a limit of the pool": {pool("gpu", "{limits: {gpus: 0}}"), nodePool("gpu", families("g6"), ""), workload("a", 1, "nvidia.com/gpu: 1", ""), "GPULimit", ""},
		"a claim that is missing": {pool("gpu", "{}"), nodePool("gpu", families("g6"), ""), workload("a", 1, "nvidia.com/gpu: 1", "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}],"),
			"its PersistentVolumeClaim default/data is not among the input", "give the file that has it"},
	} {
		t.Run(name, func(t *testing.T) {
			p := must(t, nodeClass, tc.pool, tc.nodePool, tc.workload)
			if len(p.Unplaced) != 1 {
				t.Fatalf("unplaced: %+v", p.Unplaced)
			}
			if tc.why == "GPULimit" {
				if u := p.Unplaced[0]; !strings.Contains(u.Reason, "spec.limits.gpus") || !strings.Contains(u.Reason, "GPUPool gpu") {
					t.Errorf("the reason names no limit: %s", u.Reason)
				}
				return
			}
			if d := cmp.Diff([]string{tc.why, tc.fix}, []string{p.Unplaced[0].Reason, p.Unplaced[0].Fix}); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestWhatIsAssumedIsNoted(t *testing.T) {
	p := must(t, pool("other", "{}"), nodePool("gpu", families("g6"), ""), workload("a", 1, "nvidia.com/gpu: 1", "nodeSelector: {karpenter.k8s.aws/instance-ebs-bandwidth: '5000'},"))
	want := []string{
		"EC2NodeClass default is not among the input: AL2023 with a disk of 20Gi and default kubelet settings is assumed",
		"no NodePool has joined GPUPool other: a NodePool joins by the label karpenter-gpu.dev/pool: other",
		"GPUPool gpu is not among the input: NodePools that name it (gpu) are planned as plain Karpenter",
		"karpenter.k8s.aws/instance-ebs-bandwidth is not known offline: what Deployment default/a asks of it excludes nothing here",
	}
	if d := cmp.Diff(want, p.Notes); d != "" {
		t.Error(d)
	}
}

// TestPlansAreBoundedAndRepeatable plans random workloads: no plan costs less than its
// bound or, with as many pods placed, more than stock, and equal input gives equal plans.
func TestPlansAreBoundedAndRepeatable(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range 8 {
		documents := []string{nodeClass, pool("gpu", "{}"), nodePool("gpu", families([][]string{{"g6"}, {"g4dn", "g5"}, {"g6", "g6e", "p5"}}[rng.IntN(3)]...), "")}
		for w := range 1 + rng.IntN(3) {
			documents = append(documents, workload(fmt.Sprintf("w%d", w), 1+rng.IntN(9),
				fmt.Sprintf("cpu: %d, memory: %dGi, nvidia.com/gpu: %d", 1+rng.IntN(12), 1+rng.IntN(48), []int{1, 1, 1, 2, 4}[rng.IntN(5)]), ""))
		}
		p := must(t, documents...)
		switch {
		case p.LowerBound == nil || *p.LowerBound > p.Decision.PricePerHour+1e-6:
			t.Errorf("plan %d costs %v, its bound is %v", i, p.Decision.PricePerHour, p.LowerBound)
		case p.Decision.Unplaced == p.Stock.Unplaced && p.Decision.PricePerHour > p.Stock.PricePerHour+1e-6:
			t.Errorf("plan %d costs %v, stock %v", i, p.Decision.PricePerHour, p.Stock.PricePerHour)
		case *p.LowerBound <= 0:
			t.Errorf("plan %d has no bound", i)
		}
		first, _ := json.Marshal(p)
		second, _ := json.Marshal(must(t, documents...))
		if d := cmp.Diff(string(first), string(second)); d != "" {
			t.Errorf("plan %d is another one the second time:\n%s", i, d)
		}
	}
}
