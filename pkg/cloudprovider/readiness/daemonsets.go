package readiness

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// Role is what a DaemonSet does for a node before it can be verified.
type Role string

// The roles. GPU Feature Discovery and DCGM are none: nothing waits for them.
const (
	RoleAgent      Role = "GPU agent"
	RoleDriver     Role = "driver"
	RoleToolkit    Role = "container toolkit"
	RoleValidator  Role = "operator validator"
	RolePlugin     Role = "device plugin"
	RoleMPS        Role = "MPS control daemon"
	RoleMIGManager Role = "MIG manager"
	RoleNFD        Role = "NFD worker"
)

// sign is how a DaemonSet of a role is recognized: by the values of the labels app,
// app.kubernetes.io/name or app.kubernetes.io/component (a trailing * stands for any rest),
// by a part of its name, or by a part of an image.
type sign struct {
	role          Role
	apps          []string
	names, images []string
}

// signs are tried in order; a role of "" ends the search. Values are those of the charts of
// NVIDIA/gpu-operator v26, NVIDIA/k8s-device-plugin v0.20, node-feature-discovery v0.18, of
// GKE's driver installer and of our own agent.
var signs = []sign{
	{RoleAgent, []string{"gpu-agent", "karpenter-gpu-agent"}, nil, []string{"karpenter-gpu/agent", "/gpu-agent"}},
	// The device plugin's image carries GPU Feature Discovery and the MPS daemon too.
	{"", []string{"gpu-feature-discovery"}, []string{"gpu-feature-discovery"}, nil},
	{RoleMPS, []string{"nvidia-device-plugin-mps-control-daemon"}, []string{"mps-control-daemon"}, nil},
	{RoleDriver, []string{"nvidia-driver-daemonset*", "nvidia-driver-installer"}, []string{"nvidia-driver"}, []string{"nvidia/driver:", "nvidia-driver-installer"}},
	{RoleToolkit, []string{"nvidia-container-toolkit-daemonset"}, nil, []string{"/container-toolkit:"}},
	{RoleValidator, []string{"nvidia-operator-validator"}, nil, nil},
	{RoleMIGManager, []string{"nvidia-mig-manager"}, []string{"mig-manager"}, []string{"/k8s-mig-manager"}},
	{RolePlugin, []string{"nvidia-device-plugin*", "nvidia-gpu-device-plugin"}, []string{"nvidia-device-plugin"}, []string{"/k8s-device-plugin"}},
	{RoleNFD, []string{"nfd-worker"}, []string{"node-feature-discovery-worker", "nfd-worker"}, nil},
}

// operatorOperandLabel is the prefix of the node labels by which the GPU Operator places
// its DaemonSets; it sets them once NFD has found the card.
const operatorOperandLabel = "nvidia.com/gpu.deploy."

// RoleOf recognizes a DaemonSet; ok is false for those that nothing waits for.
func RoleOf(ds *appsv1.DaemonSet) (role Role, ok bool) {
	for _, s := range signs {
		if s.matches(ds) {
			return s.role, s.role != ""
		}
	}
	return "", false
}

func (s sign) matches(ds *appsv1.DaemonSet) bool {
	for _, labels := range []map[string]string{ds.Labels, ds.Spec.Template.Labels} {
		for _, key := range []string{"app", "app.kubernetes.io/name", "app.kubernetes.io/component"} {
			if slices.ContainsFunc(s.apps, func(app string) bool { return fits(app, labels[key]) }) {
				return true
			}
		}
	}
	if slices.ContainsFunc(s.names, func(part string) bool { return strings.Contains(ds.Name, part) }) {
		return true
	}
	return slices.ContainsFunc(ds.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(s.images, func(part string) bool { return strings.Contains(c.Image, part) })
	})
}

func fits(pattern, value string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(value, prefix)
	}
	return value == pattern
}

// Blocker is a DaemonSet that a node needs to be verified and that does not tolerate what
// the node carries until then.
type Blocker struct {
	Role            Role
	Namespace, Name string
	Taint           corev1.Taint
	// Fix is a command that adds the toleration.
	Fix string
}

// String names the DaemonSet, what is missing and the command.
func (b Blocker) String() string {
	return fmt.Sprintf("DaemonSet %s/%s (%s) does not tolerate %s:%s; run: %s", b.Namespace, b.Name, b.Role, b.Taint.Key, b.Taint.Effect, b.Fix)
}

// needed tells which roles nodes of the pool wait for.
func needed(role Role, pool *v1alpha1.GPUPool, operator bool) bool {
	switch role {
	case RoleMIGManager:
		return pool.Spec.Partitioning.Kind() == v1alpha1.PartitioningMIG
	case RoleMPS:
		return pool.Spec.Partitioning.Kind() == v1alpha1.PartitioningMPS
	case RoleNFD:
		return operator
	}
	return true
}

// Blockers lists, by namespace and name, the DaemonSets that would deadlock with the gate of
// the pool. agent tells whether one of the DaemonSets is an agent that runs on its nodes.
func Blockers(pool *v1alpha1.GPUPool, nodePools []*karpv1.NodePool, daemonSets []appsv1.DaemonSet) (blockers []Blocker, agent bool) {
	operator := slices.ContainsFunc(daemonSets, func(ds appsv1.DaemonSet) bool { return operand(&ds) })
	for i := range daemonSets {
		ds := &daemonSets[i]
		role, ok := RoleOf(ds)
		if !ok || !needed(role, pool, operator) || !RunsOn(ds, nodePools) {
			continue
		}
		agent = agent || role == RoleAgent
		if taint, ok := refused(ds, pool, role); ok {
			blockers = append(blockers, Blocker{Role: role, Namespace: ds.Namespace, Name: ds.Name, Taint: taint, Fix: fix(ds, taint)})
		}
	}
	slices.SortFunc(blockers, func(a, b Blocker) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return blockers, agent
}

func operand(ds *appsv1.DaemonSet) bool {
	for key := range ds.Spec.Template.Spec.NodeSelector {
		if strings.HasPrefix(key, operatorOperandLabel) {
			return true
		}
	}
	return false
}

// refused returns the first taint that keeps the DaemonSet's pods away. With gate
// Registration a node keeps Karpenter's own taint until its hardware is verified; the device
// plugin comes later.
func refused(ds *appsv1.DaemonSet, pool *v1alpha1.GPUPool, role Role) (corev1.Taint, bool) {
	taints := []corev1.Taint{v1alpha1.UnverifiedTaint()}
	if pool.Spec.Readiness.GetGate() == v1alpha1.GateRegistration && role != RolePlugin && role != RoleMPS {
		taints = append(taints, karpv1.UnregisteredNoExecuteTaint)
	}
	for _, t := range taints {
		if scheduling.Taints([]corev1.Taint{t}).Tolerates(ds.Spec.Template.Spec.Tolerations) != nil {
			return t, true
		}
	}
	return corev1.Taint{}, false
}

// RunsOn tells whether pods of the DaemonSet go to nodes of any of the NodePools. Labels
// that the NodePools do not fix may have any value.
func RunsOn(ds *appsv1.DaemonSet, nodePools []*karpv1.NodePool) bool {
	pod := &corev1.Pod{Spec: ds.Spec.Template.Spec}
	wants := scheduling.NewPodRequirements(pod)
	return slices.ContainsFunc(nodePools, func(np *karpv1.NodePool) bool {
		has := scheduling.NewNodeSelectorRequirementsWithMinValues(np.Spec.Template.Spec.Requirements...)
		has.Add(scheduling.NewLabelRequirements(np.Spec.Template.Labels).Values()...)
		return has.Intersects(wants) == nil && scheduling.Taints(np.Spec.Template.Spec.Taints).Tolerates(pod.Spec.Tolerations) == nil
	})
}

// fix writes the command. What the GPU Operator owns is changed in its ClusterPolicy:
// it undoes changes of the DaemonSets themselves.
func fix(ds *appsv1.DaemonSet, t corev1.Taint) string {
	value := fmt.Sprintf(`{"key":%q,"operator":"Exists","effect":%q}`, t.Key, t.Effect)
	for _, owner := range ds.OwnerReferences {
		if owner.Kind == "ClusterPolicy" {
			return fmt.Sprintf(`kubectl patch clusterpolicies.nvidia.com %s --type=json -p '[{"op":"add","path":"/spec/daemonsets/tolerations/-","value":%s}]'`, owner.Name, value)
		}
	}
	path := "/spec/template/spec/tolerations/-"
	if len(ds.Spec.Template.Spec.Tolerations) == 0 {
		path, value = strings.TrimSuffix(path, "/-"), "["+value+"]"
	}
	return fmt.Sprintf(`kubectl -n %s patch daemonset %s --type=json -p '[{"op":"add","path":"%s","value":%s}]'`, ds.Namespace, ds.Name, path, value)
}
