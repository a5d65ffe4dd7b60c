package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reconcile brings one node to what its machine shows and returns when to look again.
func (s *Stack) reconcile(ctx context.Context, name string) (time.Duration, error) {
	node, err := s.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		s.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("getting node, %w", err)
	}
	r := s.resident(ctx, node)
	if r == nil {
		return 0, nil
	}
	now := s.Clock.Now()
	r.file = s.layoutsFile()
	if err := r.steer(node.Labels[LabelMIGConfig], s.pluginConfig(node), now); err != nil {
		s.Log.Info("device plugin config is invalid, the former stays in effect", "Node", name, "error", err.Error())
	}
	s.mu.Lock()
	faults := s.faults
	s.mu.Unlock()
	v := r.advance(now, s.Settings, faults, s.Hardware)
	if err := s.write(ctx, node, r, v); err != nil {
		return 0, err
	}
	r.setFacts(v.facts)
	if v.next.IsZero() {
		return 0, nil
	}
	return v.next.Sub(now), nil
}

// resident returns the machine of a node, nil when the node is none of ours. A node that came back
// under the same name is another machine, and so is one that has rebooted, which keeps its place
// among the nodes of its type.
func (s *Stack) resident(ctx context.Context, node *corev1.Node) *resident {
	instanceType := node.Annotations[AnnotationHardware]
	if instanceType == "" {
		instanceType = node.Labels[corev1.LabelInstanceTypeStable]
	}
	if _, kwok := node.Annotations[AnnotationKWOK]; !kwok || s.Hardware.GPUs(instanceType) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	nth, written := 0, map[string]bool{}
	if r := s.machines[node.Name]; r != nil {
		same := r.uid == string(node.UID)
		if same && r.boot == node.Status.NodeInfo.BootID {
			return r
		}
		r.stop()
		if same {
			nth, written = r.nth, r.written
		}
	}
	if nth == 0 {
		s.seen[instanceType]++
		nth = s.seen[instanceType]
	}
	m := newMachine(node.Name, instanceType, node.Labels[corev1.LabelTopologyZone], nth, s.Settings.Seed, s.Clock.Now())
	m.boot = node.Status.NodeInfo.BootID
	ctx, stop := context.WithCancel(ctx)
	r := &resident{Machine: m, uid: string(node.UID), written: written, stop: stop}
	s.machines[node.Name] = r
	for _, o := range s.Operands {
		s.running.Go(func() { o.Run(ctx, m) })
	}
	return r
}

func (s *Stack) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.machines[name]; r != nil {
		r.stop()
		delete(s.machines, name)
	}
}

// pluginConfig returns the config that the node's label selects; without a label, or while the
// ConfigMap has no such key, it is empty: the plugin's defaults.
func (s *Stack) pluginConfig(node *corev1.Node) string {
	key := node.Labels[LabelPluginConfig]
	if key == "" {
		return ""
	}
	configs, err := s.configs.ConfigMaps(PluginConfigNamespace).Get(PluginConfigName)
	if err != nil {
		return ""
	}
	return configs.Data[key]
}

// layoutsFile returns mig-manager's file; empty for the one that it generates.
func (s *Stack) layoutsFile() string {
	configs, err := s.configs.ConfigMaps(PluginConfigNamespace).Get(LayoutsConfigName)
	if err != nil {
		return ""
	}
	return configs.Data[layoutsKey]
}

// write patches labels first: mig-manager reports before the plugin registers.
func (s *Stack) write(ctx context.Context, node *corev1.Node, r *resident, v view) error {
	if labels := r.labelPatch(node.Labels, v.labels); len(labels) > 0 {
		body := map[string]any{"metadata": map[string]any{"labels": labels}}
		if err := s.patch(ctx, node.Name, body); err != nil {
			return fmt.Errorf("patching node labels, %w", err)
		}
	}
	status := map[string]any{}
	if d := resourcePatch(node.Status.Capacity, v.capacity); len(d) > 0 {
		status["capacity"] = d
	}
	if d := resourcePatch(node.Status.Allocatable, v.allocatable); len(d) > 0 {
		status["allocatable"] = d
	}
	if len(status) == 0 {
		return nil
	}
	if err := s.patch(ctx, node.Name, map[string]any{"status": status}, "status"); err != nil {
		return fmt.Errorf("patching node status, %w", err)
	}
	return nil
}

func (s *Stack) patch(ctx context.Context, name string, body any, subresources ...string) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = s.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
	if apierrors.IsNotFound(err) {
		return nil // the watch will tell
	}
	return err
}

// labelPatch returns the labels to set and, as nil, those to take back: what the stack wrote
// before and no longer shows. Labels that others wrote are not taken back.
func (r *resident) labelPatch(have, want map[string]string) map[string]any {
	patch := map[string]any{}
	for k, v := range want {
		r.written[k] = true
		if got, ok := have[k]; !ok || got != v {
			patch[k] = v
		}
	}
	for k := range r.written {
		if _, ok := want[k]; ok {
			continue
		}
		if _, ok := have[k]; ok {
			patch[k] = nil
		}
	}
	return patch
}

// resourcePatch returns the NVIDIA resources to set. The kubelet keeps a resource whose plugin went
// away at zero; so does this.
func resourcePatch(have corev1.ResourceList, want map[string]int64) map[string]string {
	patch := map[string]string{}
	for name, n := range want {
		got, ok := have[corev1.ResourceName(name)]
		if !ok && n > 0 || ok && got.Value() != n {
			patch[name] = strconv.FormatInt(n, 10)
		}
	}
	for name, got := range have {
		if _, ok := want[string(name)]; !ok && strings.HasPrefix(string(name), "nvidia.com/") && got.Value() != 0 {
			patch[string(name)] = "0"
		}
	}
	return patch
}
