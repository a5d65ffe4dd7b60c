//go:build linux

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

// TestLife follows one node from its launch on: what it is given to do and what goes wrong with it.
func TestLife(t *testing.T) {
	w := newWorld(t, "g5.12xlarge", scenario.Settings{})
	w.apply(t, "runtime.yaml", "nodeclass.yaml", "plugin.yaml", "pool.yaml")
	w.installAgent(t, "policy.clear=3s", "policy.raise=2s")
	w.resolved(t)
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"a node is launched, gated, verified and put to work", w.testJoin},
		{"the agent may write its own node only", w.testToken},
		{"the agent is killed at any time", w.testAgentKilled},
		{"a device is lost while a pod runs", w.testDeviceLost},
		{"the kubelet restarts and the plugin registers again", w.testKubeletRestart},
		{"the device plugin restarts", w.testPluginRestart},
		{"XID errors strike", w.testXID},
		{"the machine reboots", w.testReboot},
	} {
		if !t.Run(step.name, step.run) {
			return // what comes after begins from what this one leaves
		}
	}
	w.clean(t, 1)
}

func (w *world) testJoin(t *testing.T) {
	w.setPlugin(t, 4)
	w.scale(t, 1)
	eventually(t, "the machine has joined", func(ctx context.Context) error { _, err := w.node(ctx); return err })
	joined := time.Now()
	n, err := w.node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if id := w.launcher.Instance(); !strings.HasSuffix(n.Spec.ProviderID, "/"+id) || n.Labels[corev1.LabelInstanceTypeStable] != w.shape.Name {
		t.Errorf("the node is of instance %s and has provider ID %s, labels %v", id, n.Spec.ProviderID, n.Labels)
	}
	eventually(t, "the agent has found the GPUs", w.condition(corev1.ConditionTrue, "Verified"))
	found := time.Now()
	eventually(t, "the gate tells what it waits for", w.event("Node", "GPUNotVerified", `ResourcesMissing.*nvidia.com/gpu: 0 of 4`))
	steadily(t, "the node is gated and the pod waits", 2*time.Second, func(ctx context.Context) error {
		return errors.Join(w.gated(ctx), w.running("app=work", 0)(ctx))
	})
	w.setPlugin(t, 0)
	registered := time.Now()
	eventually(t, "the node is verified", w.verified)
	opened := time.Now()
	eventually(t, "the pod runs", w.running("app=work", 1))
	t.Logf("measured: joined to agent's verdict %s, plugin's registration to gate open %s, to pod running %s",
		seconds(found.Sub(joined)), seconds(opened.Sub(registered)), seconds(time.Since(registered)))
	w.measureAgent(t)
	if err := w.event("Node", "GPUVerified", "the GPUs are what was bought")(t.Context()); err != nil {
		t.Error(err)
	}
	w.hasItsGPU(t)
}

// hasItsGPU looks into the container: device and library are there, and nobody else's device.
func (w *world) hasItsGPU(t *testing.T) {
	t.Helper()
	list, err := w.machine.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if len(p.Command) < 2 || p.Command[0] != "/guest" || p.Command[1] != "work" {
			continue
		}
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/dev", p.PID))
		if err != nil {
			t.Fatal(err)
		}
		var devices []string
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "nvidia") {
				devices = append(devices, e.Name())
			}
		}
		if len(devices) != 2 || devices[1] != "nvidiactl" {
			t.Errorf("the pod has the devices %v, want one GPU and nvidiactl", devices)
		}
		return
	}
	t.Error("the pod's process is not there")
}

// testToken uses the token that the kubelet has mounted into the agent's own container.
func (w *world) testToken(t *testing.T) {
	token := w.agentToken(t)
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another"}}
	if _, err := w.kube.CoreV1().Nodes().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.kube.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), "another", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	agent := kubernetes.NewForConfigOrDie(w.plane.TokenConfig(token)).CoreV1().Nodes()
	own := w.machine.Name()
	patch := func(node, text string) error {
		_, err := agent.Patch(t.Context(), node, types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	if err := patch(own, `{"metadata":{"annotations":{"karpenter-gpu.dev/report":"x"}}}`); err != nil {
		t.Errorf("its own report: %v", err)
	}
	for _, tc := range []struct{ node, patch, want string }{
		{"another", `{"metadata":{"annotations":{"karpenter-gpu.dev/report":"x"}}}`, "the GPU agent of node " + own + " may change its own node only, not another"},
		{own, `{"spec":{"unschedulable":true}}`, "the GPU agent may not change the spec of a node, taints and cordons included"},
		{own, `{"metadata":{"labels":{"a":"b"}}}`, "the GPU agent may not change labels, finalizers or other metadata of a node"},
	} {
		if err := patch(tc.node, tc.patch); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("patching %s with %s: got %v, want %q", tc.node, tc.patch, err, tc.want)
		}
	}
}

// agentToken reads the token in the agent's container, and has the API server say whose it is.
func (w *world) agentToken(t *testing.T) string {
	t.Helper()
	p, err := w.agentProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/var/run/secrets/kubernetes.io/serviceaccount/token", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: string(token)}}
	review, err = w.kube.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil || review.Status.User.Username != "system:serviceaccount:karpenter:gpu-agent" {
		t.Fatalf("the token is %v's, %v", review.Status.User, err)
	}
	return string(token)
}

// testAgentKilled ends the agent a few times, at moments that differ, and looks whether it comes
// back to the same verdict without an interruption of the node's work.
func (w *world) testAgentKilled(t *testing.T) {
	for _, after := range []time.Duration{0, 70 * time.Millisecond, 1300 * time.Millisecond} {
		var killed int
		eventually(t, fmt.Sprintf("the agent runs, to be killed %s later", after), func(ctx context.Context) error {
			p, err := w.agentProcess(ctx)
			killed = p.PID
			return err
		})
		time.Sleep(after)
		if err := syscall.Kill(killed, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		steadily(t, "the node works on", time.Second, func(ctx context.Context) error {
			return errors.Join(w.verified(ctx), w.running("app=work", 1)(ctx))
		})
	}
	eventually(t, "the agent is back", w.running("app.kubernetes.io/name=gpu-agent", 1))
	before := heartbeat(t, w)
	w.facts.LostGPUs = 1
	w.setGPUs(t)
	eventually(t, "and judges", w.condition(corev1.ConditionFalse, "GPULost"))
	w.facts.LostGPUs = 0
	w.setGPUs(t)
	eventually(t, "both ways", w.condition(corev1.ConditionTrue, "Verified"))
	if !heartbeat(t, w).After(before) {
		t.Error("the condition is an old one")
	}
	eventually(t, "the node is open again", w.verified)
}

func heartbeat(t *testing.T, w *world) time.Time {
	t.Helper()
	n, err := w.node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "karpenter-gpu.dev/GPUReady" {
			return c.LastHeartbeatTime.Time
		}
	}
	return time.Time{}
}

func (w *world) testDeviceLost(t *testing.T) {
	w.facts.LostGPUs = 1
	w.setGPUs(t)
	w.setPlugin(t, 0, 3)
	eventually(t, "the kubelet has one device less", w.allocatable(gpu, 3))
	eventually(t, "the node is fenced", w.gated)
	eventually(t, "with the reason", w.event("Node", "GPUFenced", `GPULost`))
	w.scale(t, 2)
	steadily(t, "the pod that ran runs on, and no other comes", 3*time.Second, w.running("app=work", 1))
	w.facts.LostGPUs = 0
	w.setGPUs(t)
	w.setPlugin(t, 0)
	eventually(t, "the node is opened again", w.verified)
	eventually(t, "both pods run", w.running("app=work", 2))
}

func (w *world) testKubeletRestart(t *testing.T) {
	before := w.registrations(t)
	if err := w.machine.KillService(t.Context(), "kubelet"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kubelet is back", func(ctx context.Context) error {
		list, err := w.machine.Services(ctx)
		if err != nil {
			return err
		}
		for _, s := range list {
			if s.Name == "kubelet" && s.PID != 0 && s.Starts == 2 {
				return nil
			}
		}
		return fmt.Errorf("%+v", list)
	})
	eventually(t, "the plugin has registered again", func(context.Context) error {
		if n := w.registrations(t); n != before+1 {
			return fmt.Errorf("%d registrations, %d before", n, before)
		}
		return nil
	})
	eventually(t, "its devices are back", w.allocatable(gpu, 4))
	steadily(t, "the node works on", 3*time.Second, func(ctx context.Context) error {
		return errors.Join(w.verified(ctx), w.running("app=work", 2)(ctx))
	})
}

func (w *world) registrations(t *testing.T) int {
	t.Helper()
	entries, err := w.machine.PluginRecord()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if e.Event == "registered" {
			n++
		}
	}
	return n
}

func (w *world) testPluginRestart(t *testing.T) {
	before := w.registrations(t)
	pods, err := w.pods(t.Context(), "app.kubernetes.io/name=nvidia-device-plugin")
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d plugins, %v", len(pods), err)
	}
	if err := w.kube.CoreV1().Pods(pods[0].Namespace).Delete(t.Context(), pods[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another plugin has registered", func(context.Context) error {
		if n := w.registrations(t); n != before+1 {
			return fmt.Errorf("%d registrations, %d before", n, before)
		}
		return nil
	})
	eventually(t, "its devices are back", w.allocatable(gpu, 4))
	steadily(t, "the node works on", 2*time.Second, func(ctx context.Context) error {
		return errors.Join(w.verified(ctx), w.running("app=work", 2)(ctx))
	})
}

func (w *world) testXID(t *testing.T) {
	w.facts.XIDs = "31/0" // code and partition, 0 for the whole GPU
	w.setGPUs(t)
	steadily(t, "an error of the application fences nothing", 5*time.Second, w.verified)
	w.facts.XIDs = "31/0 95/0"
	w.setGPUs(t)
	eventually(t, "one that a reboot cures fences the node", w.gated)
	eventually(t, "and says so", w.event("Node", "GPUFenced", `XIDNeedsReboot.*XID 95`))
	steadily(t, "the pods that ran run on", 2*time.Second, w.running("app=work", 2))
}

// testReboot reboots the machine as its own operating system would. The device plugin is back at
// once and the driver is not, so that nothing but the gate keeps work away. Pods that were bound
// before do not start again: the kubelet admits them anew before any plugin has registered, and
// rejects them.
func (w *world) testReboot(t *testing.T) {
	first := w.machine.BootID()
	w.facts.XIDs, w.facts.Driver = "", false
	w.setGPUs(t)
	if n, err := w.Reboot(t.Context(), scenario.Targets{}); err != nil || n != 1 {
		t.Fatalf("%d machines reboot, %v", n, err)
	}
	eventually(t, "the kubelet tells of a new boot", func(ctx context.Context) error {
		n, err := w.node(ctx)
		if err != nil {
			return err
		}
		if id := n.Status.NodeInfo.BootID; id == first || id != w.machine.BootID() {
			return fmt.Errorf("boot %s", id)
		}
		return nil
	})
	eventually(t, "it has rejected the pods of the last boot", w.rejected(2))
	eventually(t, "the plugin has registered", w.allocatable(gpu, 4))
	eventually(t, "the gate says what it waits for", w.event("Node", "GPUNotVerified", `takes no work yet \(BootDiffers\): the report is of an earlier boot`))
	steadily(t, "the node is gated and no pod runs", 3*time.Second, func(ctx context.Context) error {
		return errors.Join(w.gated(ctx), w.running("app=work", 0)(ctx))
	})
	w.facts.Driver = true
	w.setGPUs(t)
	loaded := time.Now()
	eventually(t, "the node is verified in this boot", w.verified)
	opened := time.Now()
	eventually(t, "two pods run", w.running("app=work", 2))
	t.Logf("measured: driver's load to gate open, over the kubelet's back-off %s, to two pods running %s", seconds(opened.Sub(loaded)), seconds(time.Since(loaded)))
}

// rejected demands a number of pods that the kubelet did not admit.
func (w *world) rejected(want int) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := w.pods(ctx, "app=work")
		if err != nil {
			return err
		}
		n := 0
		for _, p := range pods {
			if p.Status.Phase == corev1.PodFailed && p.Status.Reason == "UnexpectedAdmissionError" {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d pods are rejected, want %d", n, want)
		}
		return nil
	}
}
