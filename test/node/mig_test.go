//go:build linux

package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/deviceplugin"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

// TestMIG has eight GPUs in seven partitions each, and a driver that comes late, which NVIDIA's
// container runtime answers in its own way.
func TestMIG(t *testing.T) {
	const partition corev1.ResourceName = "nvidia.com/mig-1g.5gb"
	w := newWorld(t, "p4d.24xlarge", scenario.Settings{})
	w.apply(t, "runtime.yaml", "nodeclass.yaml", "gpu-operator.yaml", "plugin.yaml", "mig.yaml")
	w.installAgent(t, "policy.clear=3s")
	w.resolved(t)
	w.facts.Driver = false
	w.setGPUs(t)
	w.scale(t, 2)
	eventually(t, "the machine has joined", func(ctx context.Context) error { _, err := w.node(ctx); return err })
	eventually(t, "NVIDIA's runtime makes no container without a driver", w.event("Pod", "Failed", `nvml error: driver not loaded`))
	eventually(t, "the gate tells that there is no report", w.event("Node", "GPUNotVerified", `takes no work yet \(NoReport\)`))

	w.facts.Driver = true // and the GPUs are whole
	w.setGPUs(t)
	loaded := time.Now()
	eventually(t, "the agent finds GPUs without partitions", w.condition(corev1.ConditionTrue, "Verified"))
	t.Logf("measured: driver's load to the agent's verdict, over the kubelet's back-off %s", seconds(time.Since(loaded)))
	eventually(t, "the gate misses the partitions", w.event("Node", "GPUNotVerified", `PartitionsDiffer`))

	w.facts.Layout = "all-1g.5gb"
	w.setGPUs(t)
	eventually(t, "the gate misses the resources", w.event("Node", "GPUNotVerified", `ResourcesMissing.*nvidia.com/mig-1g.5gb: 0 of 56`))
	var devices []deviceplugin.Device
	for _, g := range w.pictured().GPUs {
		for _, in := range g.MIG.Instances {
			devices = append(devices, deviceplugin.Device{ID: in.UUID})
		}
	}
	steadily(t, "the node is gated and the pods wait", 2*time.Second, func(ctx context.Context) error {
		return errors.Join(w.gated(ctx), w.running("app=work", 0)(ctx))
	})
	w.script(t, deviceplugin.Script{Delay: deviceplugin.Duration(time.Second), Resources: map[string][]deviceplugin.Device{string(partition): devices}})
	eventually(t, "the plugin shows 56 partitions", w.allocatable(partition, 56))
	eventually(t, "the node is verified", w.verified)
	eventually(t, "both pods run", w.running("app=work", 2))
	w.hasItsGPU(t)
	w.clean(t, 1)
}
