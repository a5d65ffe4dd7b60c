package gpuagent_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/gpuagent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
)

// TestPictures lets the agent's own sampler and judge look at the pictures.
func TestPictures(t *testing.T) {
	up := node.Facts{Driver: true, Found: -1}
	with := func(change func(*node.Facts)) node.Facts { f := up; change(&f); return f }
	for name, tc := range map[string]struct {
		instanceType string
		facts        node.Facts
		state        health.State
		reason       health.Reason
		// differ are the reasons in which the report differs from what was bought.
		differ []health.MismatchReason
	}{
		"a sound machine":   {"p5.48xlarge", up, health.Ready, health.ReasonVerified, nil},
		"a sound small one": {"g5.xlarge", up, health.Ready, health.ReasonVerified, nil},
		"no driver yet":     {"p5.48xlarge", node.Facts{}, health.Starting, health.DriverNotLoaded, []health.MismatchReason{health.MismatchState, health.MismatchCount}},
		"a driver that differs": {"p5.48xlarge", with(func(f *node.Facts) { f.Mismatch = true }), health.Unhealthy, health.DriverLibraryMismatch,
			[]health.MismatchReason{health.MismatchState, health.MismatchCount}},
		"fewer GPUs than bought":           {"p5.48xlarge", with(func(f *node.Facts) { f.Found = 7 }), health.Ready, health.ReasonVerified, []health.MismatchReason{health.MismatchCount}},
		"no GPU":                           {"p5.48xlarge", with(func(f *node.Facts) { f.Found = 0 }), health.Starting, health.NoGPUs, []health.MismatchReason{health.MismatchState, health.MismatchCount}},
		"a lost GPU":                       {"p5.48xlarge", with(func(f *node.Facts) { f.LostGPUs = 1 }), health.Unhealthy, health.GPULost, []health.MismatchReason{health.MismatchState, health.MismatchLost}},
		"an XID that is the application's": {"p5.48xlarge", with(func(f *node.Facts) { f.XIDs = node.XID{Code: 31}.String() }), health.Ready, health.ReasonVerified, nil},
		"a layout": {"p5.48xlarge", with(func(f *node.Facts) { f.Layout = "all-balanced" }), health.Ready, health.ReasonVerified, []health.MismatchReason{
			health.MismatchPartitions, health.MismatchPartitions, health.MismatchPartitions, health.MismatchPartitions,
			health.MismatchPartitions, health.MismatchPartitions, health.MismatchPartitions, health.MismatchPartitions}},
		"MIG off": {"p5.48xlarge", with(func(f *node.Facts) { f.Layout = "all-disabled" }), health.Ready, health.ReasonVerified, nil},
	} {
		t.Run(name, func(t *testing.T) {
			shape, _ := catalog.Default().Shape(tc.instanceType)
			clk := clocktesting.NewFakeClock(time.Unix(0, 0))
			lib := nvml.NewLibrary(clk, gpuagent.Picture(shape, "boot-1", tc.facts))
			report, verdict, _ := agent.Once(t.Context(), agent.NewSampler(lib, lib, clk, agent.SamplerOptions{}), health.Policy{}, health.Memory{}, clk.Now())
			if verdict.State != tc.state || verdict.Reason != tc.reason {
				t.Errorf("judged %s %s, want %s %s", verdict.State, verdict.Reason, tc.state, tc.reason)
			}
			var differ []health.MismatchReason
			for _, m := range health.Compare(report, health.Expectation{
				BootID: "boot-1", GPUs: shape.GPUs, Products: []string{shape.Model.Product}, MemoryMiB: shape.GPUMemoryMiB, Partitions: []map[string]int{{}},
			}) {
				differ = append(differ, m.Reason)
			}
			if diff := cmp.Diff(tc.differ, differ); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestPartitionsOfALayout(t *testing.T) {
	shape, _ := catalog.Default().Shape("p5.48xlarge")
	m := gpuagent.Picture(shape, "boot-1", node.Facts{Driver: true, Found: -1, Layout: "all-balanced"})
	for i, g := range m.GPUs {
		counts := map[string]int{}
		for _, in := range g.MIG.Instances {
			counts[in.Profile]++
		}
		if diff := cmp.Diff(map[string]int{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}, counts); diff != "" {
			t.Errorf("GPU %d (-want +got)\n%s", i, diff)
		}
	}
}
