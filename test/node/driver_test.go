//go:build linux

package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

// TestDriver has the agent look for a driver in the host's own files, in a privileged container:
// the one way that works before there is a driver.
func TestDriver(t *testing.T) {
	w := newWorld(t, "g5.12xlarge", scenario.Settings{})
	w.apply(t, "runtime.yaml", "nodeclass.yaml", "plugin.yaml", "pool.yaml")
	w.installAgent(t, "driver.access=Host", "driver.hostRoot=/run/machine/gpu", "driver.library=/host/libnvidia-ml.so.1",
		"env[0].name=KPGPU_FAKE_NVML", "env[0].value=/host/nvml.conf", "policy.clear=3s", "policy.raise=2s")
	w.resolved(t)
	w.facts.Driver = false
	w.setGPUs(t)
	w.scale(t, 1)
	eventually(t, "the machine has joined", func(ctx context.Context) error { _, err := w.node(ctx); return err })

	eventually(t, "the agent finds no driver", w.condition(corev1.ConditionUnknown, "DriverNotLoaded"))
	eventually(t, "the gate says so", w.event("Node", "GPUNotVerified", `takes no work yet \(DriverNotLoaded\).*replaced at`))
	lib := w.gpus.Library
	w.gpus.Library = ""
	w.setGPUs(t)
	eventually(t, "the agent finds no library", w.condition(corev1.ConditionUnknown, "LibraryMissing"))
	steadily(t, "the node is gated and the pod waits", 2*time.Second, func(ctx context.Context) error {
		return errors.Join(w.gated(ctx), w.running("app=work", 0)(ctx))
	})

	w.gpus.Library, w.facts.Driver = lib, true
	w.setGPUs(t)
	loaded := time.Now()
	eventually(t, "the driver is there, and the agent sees it", w.condition(corev1.ConditionTrue, "Verified"))
	t.Logf("measured: driver's load to the agent's verdict %s", seconds(time.Since(loaded)))
	w.setPlugin(t, 1)
	eventually(t, "the plugin shows three of four", w.allocatable(gpu, 3))
	eventually(t, "which the gate tells", w.event("Node", "GPUNotVerified", `ResourcesMissing.*nvidia.com/gpu: 3 of 4`))
	steadily(t, "the node is gated and the pod waits", 2*time.Second, func(ctx context.Context) error {
		return errors.Join(w.gated(ctx), w.running("app=work", 0)(ctx))
	})
	w.setPlugin(t, 0)
	eventually(t, "the node is verified", w.verified)
	eventually(t, "the pod runs", w.running("app=work", 1))

	w.facts.Mismatch = true // a library of another version than the kernel module, as after an upgrade
	w.setGPUs(t)
	eventually(t, "the agent tells of the mismatch", w.condition(corev1.ConditionFalse, "DriverLibraryMismatch"))
	eventually(t, "the node is fenced", w.gated)
	eventually(t, "with the reason", w.event("Node", "GPUFenced", `DriverLibraryMismatch`))
	steadily(t, "the pod that ran runs on", 2*time.Second, w.running("app=work", 1))
	w.facts.Mismatch = false
	w.setGPUs(t)
	eventually(t, "the node is opened again", w.verified)
	w.clean(t, 1)
}
