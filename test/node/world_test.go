//go:build linux

package node_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/gpuagent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/deviceplugin"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/stack"
)

const namespace = "karpenter"

// world is a sandbox in which the first instance is a real machine.
type world struct {
	*stack.Stack
	plane    *controlplane.ControlPlane
	kube     kubernetes.Interface
	machine  *realnode.Machine
	launcher *realnode.Launcher
	record   *record

	shape catalog.Shape
	gpus  realnode.GPUs
	facts node.Facts
}

// newWorld starts a sandbox for machines of an instance type, with a driver that is loaded.
func newWorld(t *testing.T, instanceType string, settings scenario.Settings) *world {
	t.Helper()
	need(t)
	assets(t)
	shape, ok := catalog.Default().Shape(instanceType)
	if !ok {
		t.Fatalf("the catalogue has no %s", instanceType)
	}
	lib, err := library()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{shape: shape, facts: node.Facts{Driver: true, Found: -1}}
	list, libraryDir := images(t, lib)
	w.gpus = realnode.GPUs{Library: lib, LibraryDir: libraryDir}
	dir := t.TempDir()
	w.Stack, err = stack.Start(t.Context(), stack.Options{
		Dir: filepath.Join(dir, "sandbox"), BinDir: filepath.Dir(bin(t, "controller")), Settings: settings, Log: logr.Discard(),
		Launcher: func(plane *controlplane.ControlPlane, api client.Client) (_ aws.NodeLauncher, err error) {
			w.plane = plane
			w.machine, err = realnode.New(realnode.Options{Guest: bin(t, "guest"), Kubelet: bin(t, "controlplane/kubelet"), API: plane, Images: list})
			if err != nil {
				return nil, err
			}
			w.launcher = realnode.NewLauncher(w.machine, api)
			return w.launcher, nil
		},
	})
	t.Cleanup(func() { w.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	w.kube = kubernetes.NewForConfigOrDie(w.RESTConfig())
	w.record = startRecord(t, w.kube)
	w.setGPUs(t)
	return w
}

func (w *world) stop(t *testing.T) {
	if t.Failed() {
		w.tell(t)
	}
	ctx := context.Background()
	var errs []error
	if w.machine != nil {
		errs = append(errs, w.machine.Stop(ctx))
	}
	if w.Stack != nil {
		errs = append(errs, w.Stack.Stop(ctx)) //nolint:staticcheck // the sandbox's, not ours
	}
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// tell writes what a person needs to see why a test failed.
func (w *world) tell(t *testing.T) {
	if w.kube == nil {
		return
	}
	if snapshot, err := w.Observe(context.Background(), nil); err == nil {
		for _, e := range snapshot.Events {
			t.Logf("event %s %s %s: %s", e.Kind, e.Name, e.Reason, e.Message)
		}
		for _, n := range snapshot.Nodes {
			t.Logf("node %+v", n)
		}
		for _, p := range snapshot.Pods {
			t.Logf("pod %+v", p)
		}
	}
	for _, name := range []string{"machine.log", "kubelet.log", "containerd.log"} {
		data, err := os.ReadFile(filepath.Join(w.machine.Logs(), name))
		if err == nil {
			lines := strings.Split(strings.TrimSpace(string(data)), "\n")
			t.Logf("%s:\n%s", name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	}
	t.Logf("the agent's log:\n%s", w.agentLog(t))
}

// setGPUs makes the machine's GPUs what the facts say.
func (w *world) setGPUs(t *testing.T) {
	t.Helper()
	w.gpus.Loaded = w.facts.Driver
	w.gpus.Machine = gpuagent.Picture(w.shape, "", w.facts)
	if err := w.machine.SetGPUs(t.Context(), w.gpus); err != nil {
		t.Fatal(err)
	}
}

// setPlugin lets the device plugin show GPUs, all that NVML shows but the last missing ones.
func (w *world) setPlugin(t *testing.T, missing int, unhealthy ...int) {
	t.Helper()
	devices := realnode.WholeGPUs(w.pictured(), unhealthy...)
	w.script(t, deviceplugin.Script{Resources: map[string][]deviceplugin.Device{"nvidia.com/gpu": devices[:len(devices)-missing]}})
}

// pictured is the machine without faults.
func (w *world) pictured() nvml.Machine {
	return gpuagent.Picture(w.shape, "", node.Facts{Driver: true, Found: -1, Layout: w.facts.Layout})
}

func (w *world) script(t *testing.T, s deviceplugin.Script) {
	t.Helper()
	if err := w.machine.SetPlugin(s); err != nil {
		t.Fatal(err)
	}
}

// apply writes files of manifests, and those of the scenarios by their names.
func (w *world) apply(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join("manifests", file))
		if err != nil {
			data, err = os.ReadFile(filepath.Join("..", "scenarios", "manifests", file))
		}
		if err == nil {
			err = w.Apply(t.Context(), string(data))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// installAgent installs the chart as users do. The sandbox has the agent's access already.
func (w *world) installAgent(t *testing.T, values ...string) {
	t.Helper()
	args := []string{"upgrade", "--install", "gpu-agent", filepath.Join("..", "..", "charts", "gpu-agent"), "--namespace=" + namespace,
		"--take-ownership", "--force-conflicts", "--set=image.repository=" + agentImage, "--set=image.tag=" + imageTag, "--set=image.pullPolicy=Never", "--set=check.interval=3s"}
	for _, v := range values {
		args = append(args, "--set="+v)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), bin(t, "helm"), args...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + w.Kubeconfig(), "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func (w *world) scale(t *testing.T, replicas int) {
	t.Helper()
	if err := w.Scale(t.Context(), scenario.Ref{Kind: "Deployment", Name: "work"}, replicas); err != nil {
		t.Fatal(err)
	}
}

// node is the Node of the machine.
func (w *world) node(ctx context.Context) (*corev1.Node, error) {
	name := w.machine.Name()
	if name == "" {
		return nil, errors.New("the machine has not booted")
	}
	return w.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// verified tells whether the node takes work in the boot that the machine is in.
func (w *world) verified(ctx context.Context) error {
	n, err := w.node(ctx)
	if err != nil {
		return err
	}
	if tainted(n) || n.Annotations[v1alpha1.VerifiedBootAnnotationKey] != w.machine.BootID() || n.Status.NodeInfo.BootID != w.machine.BootID() {
		return fmt.Errorf("taints %v, boot %s, verified %q, %s", n.Spec.Taints, n.Status.NodeInfo.BootID, n.Annotations[v1alpha1.VerifiedBootAnnotationKey], conditionText(n))
	}
	return nil
}

func tainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.UnverifiedTaintKey })
}

func conditionText(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodeConditionGPUReady {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return "no condition"
}

// condition demands a status and reason of the agent's condition.
func (w *world) condition(status corev1.ConditionStatus, reason string) func(context.Context) error {
	return func(ctx context.Context) error {
		n, err := w.node(ctx)
		if err != nil {
			return err
		}
		if text := conditionText(n); !strings.HasPrefix(text, fmt.Sprintf("%s %s: ", status, reason)) {
			return errors.New(text)
		}
		return nil
	}
}

// gated demands that the node takes no work.
func (w *world) gated(ctx context.Context) error {
	n, err := w.node(ctx)
	if err != nil {
		return err
	}
	if !tainted(n) {
		return fmt.Errorf("the node is open, %s", conditionText(n))
	}
	return nil
}

// allocatable demands an amount of a resource.
func (w *world) allocatable(name corev1.ResourceName, want int64) func(context.Context) error {
	return func(ctx context.Context) error {
		n, err := w.node(ctx)
		if err != nil {
			return err
		}
		if q := n.Status.Allocatable[name]; q.Value() != want {
			return fmt.Errorf("%s: %s, want %d", name, q.String(), want)
		}
		return nil
	}
}

// running demands a number of running pods of a label on the machine.
func (w *world) running(selector string, want int) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := w.pods(ctx, selector)
		if err != nil {
			return err
		}
		n, states := 0, []string{}
		for _, p := range pods {
			if p.Status.Phase == corev1.PodRunning && ready(&p) && p.Spec.NodeName == w.machine.Name() {
				n++
			}
			states = append(states, fmt.Sprintf("%s %s %s", p.Name, p.Status.Phase, p.Status.Reason))
		}
		if n != want {
			return fmt.Errorf("%d run, want %d: %v", n, want, states)
		}
		return nil
	}
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (w *world) pods(ctx context.Context, selector string) ([]corev1.Pod, error) {
	list, err := w.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

// event demands an event of a reason whose message matches.
func (w *world) event(kind, reason, message string) func(context.Context) error {
	pattern := regexp.MustCompile(message)
	return func(ctx context.Context) error {
		snapshot, err := w.Observe(ctx, nil)
		if err != nil {
			return err
		}
		var near []string
		for _, e := range snapshot.Events {
			if e.Kind == kind && e.Reason == reason {
				if pattern.MatchString(e.Message) {
					return nil
				}
				near = append(near, e.Message)
			}
		}
		return fmt.Errorf("no event %s of %s with %q, but %q", reason, kind, message, near)
	}
}

// resolved waits until the pool gates.
func (w *world) resolved(t *testing.T) {
	t.Helper()
	for _, want := range []struct{ kind, name, condition string }{{"NodePool", "real", "Ready"}, {"GPUPool", "real", "GateSafe"}} {
		ref := scenario.Ref{Kind: want.kind, Name: want.name}
		eventually(t, want.kind+" is "+want.condition, func(ctx context.Context) error {
			c, err := w.conditionOf(ctx, ref, want.condition)
			if err == nil && c.Status != "True" {
				err = fmt.Errorf("%+v", c)
			}
			return err
		})
	}
}

func (w *world) conditionOf(ctx context.Context, ref scenario.Ref, name string) (scenario.Condition, error) {
	snapshot, err := w.Observe(ctx, []scenario.Ref{ref})
	if err != nil {
		return scenario.Condition{}, err
	}
	for _, c := range snapshot.Conditions[ref] {
		if c.Type == name {
			return c, nil
		}
	}
	return scenario.Condition{}, fmt.Errorf("%s has no condition %s", ref, name)
}

// agentProcess is the agent's, as the host sees it.
func (w *world) agentProcess(context.Context) (realnode.Process, error) {
	list, err := w.machine.Processes()
	if err != nil {
		return realnode.Process{}, err
	}
	for _, p := range list {
		if p.Command[0] == "/agent" {
			return p, nil
		}
	}
	return realnode.Process{}, errors.New("the agent does not run")
}

// agentLog is what all agents on the machine have written, oldest first.
func (w *world) agentLog(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(w.machine.Disk(), "log/pods", namespace+"_gpu-agent-*", "agent", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(files, func(a, b string) int {
		x, errX := os.Stat(a)
		y, errY := os.Stat(b)
		if errX != nil || errY != nil {
			return cmp.Compare(a, b)
		}
		return x.ModTime().Compare(y.ModTime())
	})
	var out strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(data)
	}
	return out.String()
}

// clean demands that the record is one of a gate that held, and that nothing was bought twice.
func (w *world) clean(t *testing.T, launches int) {
	t.Helper()
	snapshot, err := w.Observe(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(snapshot.Unverified) > 0 {
		t.Errorf("pods were bound to a node before it was verified: %+v", snapshot.Unverified)
	}
	if n := len(snapshot.Cloud.Instances); n != launches || len(snapshot.Cloud.Orphans) > 0 || len(snapshot.Cloud.DoubleLaunches) > 0 {
		t.Errorf("%d launches, want %d; orphans %v, double launches %v", n, launches, snapshot.Cloud.Orphans, snapshot.Cloud.DoubleLaunches)
	}
	entries, err := w.machine.PluginRecord()
	if err != nil {
		t.Fatal(err)
	}
	w.record.check(t, entries)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }
