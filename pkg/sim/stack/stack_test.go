package stack

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

func TestDelaysMeanTheSameToTheCloud(t *testing.T) {
	for _, tc := range []struct {
		give node.Delay
		want aws.Delay
	}{
		{node.Fixed(2 * time.Second), aws.Fixed(2 * time.Second)},
		{node.Delay{Min: time.Second, Max: time.Minute}, aws.Uniform(time.Second, time.Minute)},
		{node.Delay{}, aws.Fixed(0)},
	} {
		if got := awsDelay(tc.give); got.String() != tc.want.String() {
			t.Errorf("%s: got %s, want %s", tc.give, got, tc.want)
		}
	}
	if got := awsDelay(node.Delay{Median: 40 * time.Second, P95: 80 * time.Second}).String(); !strings.HasPrefix(got, "lognormal(40s,0.42") {
		t.Errorf("got %s", got)
	}
}

func TestLocalNodesHaveTheHardwareAndNoGPUsYet(t *testing.T) {
	shape, ok := catalog.Default().Shape("p4d.24xlarge")
	if !ok {
		t.Fatal("no shape")
	}
	n := localNode(scenario.LocalNodes{Name: "idc", Zone: "z", Like: shape.Name, Labels: map[string]string{"rack": "7"}}, shape, "idc-1")
	want := map[string]string{
		"kubernetes.io/hostname": "idc-1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		"node.kubernetes.io/instance-type": "idc", "topology.kubernetes.io/zone": "z", "rack": "7",
	}
	if diff := cmp.Diff(want, n.Labels); diff != "" {
		t.Error(diff)
	}
	if cpu := n.Status.Allocatable.Cpu().Value(); cpu != 96 {
		t.Errorf("cpu %d", cpu)
	}
	if _, ok := n.Status.Allocatable["nvidia.com/gpu"]; ok {
		t.Error("GPUs before the device plugin has registered them")
	}
}

// pretended returns a directory with the binaries of the control plane and a pretended controller.
func pretended(t *testing.T) string {
	t.Helper()
	bin := binDir(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, target := range map[string]string{"controller": exe, "controlplane": filepath.Join(bin, "controlplane")} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestStart needs binaries, and a program in the controller's place that serves /readyz.
func TestStart(t *testing.T) {
	dir := pretended(t)
	var phases []string
	s, err := Start(t.Context(), Options{
		Dir: filepath.Join(dir, "data"), BinDir: dir, Log: logr.Discard(), Progress: func(p string) { phases = append(phases, p) },
		Settings: scenario.Settings{Env: map[string]string{pretend: "1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	want := []string{"control plane", "custom resource definitions", "access", "simulated AWS", "watches", "simulated node software", "ours controller"}
	if diff := cmp.Diff(want, phases); diff != "" {
		t.Error(diff)
	}
	play(t, s, `name: parts
localNodes: [{name: idc, count: 2, like: p4d.24xlarge, zone: idc}]
manifests:
  - inline: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web}
      spec:
        replicas: 1
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec:
            containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: "4"}}}]
steps:
  - scale: {kind: Deployment, name: web, replicas: 5}
  - expect:
      pods: [{selector: app=web, phase: Running, onNodes: topology.kubernetes.io/zone=idc, count: 4}]
      events: [{kind: Pod, reason: FailedScheduling, message: Insufficient nvidia.com/gpu}]
      conditions: [{kind: Deployment, name: web, type: Available, status: "True"}]
      launches: 0
  - nodeFault: {name: bus, kind: gpu-lost, gpus: 1, match: {node: idc-2}}
  - expect: {nodes: [{selector: kubernetes.io/hostname=idc-2, allocatable: {nvidia.com/gpu: 7}, count: 1}]}
  - healNode: bus
  - killController: {}
  - startController: {}
  - delete: {kind: Deployment, name: web}
  - expect: {pods: [{count: 0}], noOrphans: true, noEvictions: {}}
`)
	err = s.Apply(t.Context(), `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: nowhere}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}]
`)
	if err == nil || !strings.Contains(err.Error(), `names EC2NodeClass "nowhere", which does not exist`) {
		t.Errorf("got %v", err)
	}
}

func play(t *testing.T, s *Stack, text string) {
	t.Helper()
	story, err := scenario.Parse("parts.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	result, err := scenario.NewPlayer(s, clock.RealClock{}, nil).Play(t.Context(), story)
	if err != nil || !result.Passed {
		t.Fatal(err, result.Failure)
	}
}
