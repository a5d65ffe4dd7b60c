//go:build linux

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

// TestPluginThatDoesNotTolerate has a device plugin that the gate would keep away for ever, as one
// that was installed before karpenter-gpu: the pool tells how to mend it and does not gate until then.
func TestPluginThatDoesNotTolerate(t *testing.T) {
	w := newWorld(t, "g5.12xlarge", scenario.Settings{})
	w.apply(t, "runtime.yaml", "nodeclass.yaml", "pool.yaml")
	if err := w.Apply(t.Context(), intolerant(t)); err != nil {
		t.Fatal(err)
	}
	w.installAgent(t)
	w.setPlugin(t, 0)
	pool := scenario.Ref{Kind: "GPUPool", Name: "real"}
	var told string
	eventually(t, "the pool tells of the DaemonSet", func(ctx context.Context) error {
		c, err := w.conditionOf(ctx, pool, "GateSafe")
		if err != nil {
			return err
		}
		told = c.Message
		const want = "DaemonSet gpu-operator/nvidia-device-plugin (device plugin) does not tolerate readiness.karpenter-gpu.dev/unverified:NoSchedule; run: kubectl "
		if c.Status != "False" || c.Reason != "TaintNotTolerated" || !strings.HasPrefix(told, want) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if err := w.event("GPUPool", "GateUnsafe", `device plugin\) does not tolerate .* Until then nodes of the pool are not gated`)(t.Context()); err != nil {
		t.Error(err)
	}
	w.scale(t, 1)
	eventually(t, "the machine has joined", func(ctx context.Context) error { _, err := w.node(ctx); return err })
	eventually(t, "the pod runs: nothing deadlocks", w.running("app=work", 1))

	w.runTold(t, told)
	eventually(t, "what was told mends it", w.safe(pool, "True"))
	eventually(t, "the node is verified", w.verified)
	steadily(t, "the pod that ran runs on", 2*time.Second, func(ctx context.Context) error {
		return errors.Join(w.verified(ctx), w.running("app=work", 1)(ctx))
	})

	// The next instance has the taint before the plugin loses its toleration.
	w.setPlugin(t, 4)
	w.replaceNode(t)
	eventually(t, "another node is gated", w.gated)
	w.patchPlugin(t, "gpu-operator", "nvidia-device-plugin", `[{"op":"remove","path":"/spec/template/spec/tolerations"}]`)
	eventually(t, "the pool tells again", w.safe(pool, "False"))
	eventually(t, "the node is let go, which is told", w.event("Node", "GPUNotGated", `takes work unverified .*gpu pool real does not gate now, see its condition GateSafe`))
	w.setPlugin(t, 0)
	eventually(t, "the pod runs", w.running("app=work", 1))
}

// safe demands a status of the condition GateSafe.
func (w *world) safe(pool scenario.Ref, status string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := w.conditionOf(ctx, pool, "GateSafe")
		if err == nil && c.Status != status {
			err = fmt.Errorf("%+v", c)
		}
		return err
	}
}

// replaceNode has the node's instance terminated; the machine, its disk wiped, becomes the next.
func (w *world) replaceNode(t *testing.T) {
	t.Helper()
	first, old := w.launcher.Instance(), w.machine.Name()
	snapshot, err := w.Observe(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.scale(t, 0) // or the next instance boots while the machine is still this one's
	for _, claim := range snapshot.NodeClaims {
		if err := w.Delete(t.Context(), scenario.Ref{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: claim}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the machine is free", func(context.Context) error {
		if id := w.launcher.Instance(); id != "" {
			return fmt.Errorf("it is that of %s", id)
		}
		return nil
	})
	w.scale(t, 1)
	eventually(t, "the machine is another instance's", func(ctx context.Context) error {
		if next := w.launcher.Instance(); next == "" || next == first {
			return fmt.Errorf("instance %q", next)
		}
		if name := w.machine.Name(); name == old {
			return fmt.Errorf("node %s", name)
		}
		_, err := w.node(ctx)
		return err
	})
}

// intolerant is the plugin's manifest without tolerations.
func intolerant(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("manifests", "plugin.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tolerations := regexp.MustCompile(`(?m)^      tolerations:\n(        .*\n)+`)
	if !tolerations.Match(data) {
		t.Fatal("the manifest has no tolerations to take away")
	}
	return tolerations.ReplaceAllString(string(data), "")
}

// runTold does what the command in a message does: a JSON patch of a DaemonSet.
func (w *world) runTold(t *testing.T, message string) {
	t.Helper()
	command := regexp.MustCompile(`kubectl -n (\S+) patch daemonset (\S+) --type=json -p '([^']+)'`).FindStringSubmatch(message)
	if command == nil {
		t.Fatalf("no command in %q", message)
	}
	w.patchPlugin(t, command[1], command[2], command[3])
}

func (w *world) patchPlugin(t *testing.T, namespace, name, patch string) {
	t.Helper()
	if _, err := w.kube.AppsV1().DaemonSets(namespace).Patch(t.Context(), name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
