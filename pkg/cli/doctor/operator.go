package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/nodeconfig"
)

const (
	clusterPolicy = "clusterpolicies.nvidia.com"
	// operatorStrategy is the MIG strategy of the GPU Operator's chart, pluginStrategy that
	// of the device plugin's.
	operatorStrategy, pluginStrategy = "single", "none"
)

// operator compares the GPU Operator's configuration with what pools need of it.
func (e *examination) operator() {
	for _, policy := range e.ClusterPolicies {
		for _, pool := range e.pools {
			e.operands(policy, pool)
			if pool.MIG != nil {
				e.strategy(policy, pool)
				e.layouts(policy, pool)
			}
			if pool.Sharing.Enabled() {
				e.pluginConfig(policy, pool)
			}
		}
	}
}

// field reads a string of an object.
func field(u *unstructured.Unstructured, path string) string {
	value, _, _ := unstructured.NestedString(u.Object, strings.Split(path, ".")...)
	return value
}

// operands looks for parts of the operator that the pool needs and that are off.
func (e *examination) operands(policy *unstructured.Unstructured, pool *pools.Pool) {
	needed := map[string]bool{"devicePlugin": true, "migManager": pool.MIG != nil}
	for _, name := range []string{"devicePlugin", "migManager"} {
		on, set, _ := unstructured.NestedBool(policy.Object, "spec", name, "enabled")
		if !needed[name] || !set || on || name == "devicePlugin" && len(e.standalone(pool)) > 0 {
			continue
		}
		path := "spec." + name + ".enabled"
		e.add(Finding{Severity: Error, Reason: ReasonOperandDisabled, Object: title("ClusterPolicy", policy),
			Message: fmt.Sprintf("%s is false, and nodes of GPUPool %s need it to offer their GPUs", path, pool.Name()), Command: merge(clusterPolicy, policy, nested(path, true))})
	}
}

// wanted is the device plugin's name of the pool's strategy.
func wanted(pool *pools.Pool) string { return strings.ToLower(string(pool.MIG.Strategy)) }

// strategyMessage says what comes of a strategy that is not the pool's.
func strategyMessage(pool *pools.Pool, where, have string) string {
	shown := lo.Ternary(wanted(pool) == "mixed", v1alpha1.ResourceMIGPrefix+"PROFILE", string(v1alpha1.ResourceGPU))
	return fmt.Sprintf("%s is %s and GPUPool %s has strategy %s: its nodes never show %s, which their pods wait for", where, have, pool.Name(), pool.GPUPool.Spec.Partitioning.MIG.GetStrategy(), shown)
}

func (e *examination) strategy(policy *unstructured.Unstructured, pool *pools.Pool) {
	if have := cmp.Or(field(policy, "spec.mig.strategy"), operatorStrategy); have != wanted(pool) {
		e.add(Finding{Severity: Error, Reason: ReasonMIGStrategyDiffers, Object: title("ClusterPolicy", policy), Message: strategyMessage(pool, "spec.mig.strategy", have),
			Command: merge(clusterPolicy, policy, nested("spec.mig.strategy", wanted(pool)))})
	}
}

// layouts looks whether mig-manager will know the layouts that nodes are launched with.
func (e *examination) layouts(policy *unstructured.Unstructured, pool *pools.Pool) {
	name := field(policy, "spec.migManager.config.name")
	if name == nodeconfig.LayoutsName {
		return // looked at with the ConfigMap
	}
	missing := layoutNames(pool)
	planned := pool.GPUPool.Spec.Partitioning.MIG.FromDemand()
	if cm := e.configMap(e.operatorNamespaceOf(policy), name); cm != nil {
		missing = lo.Without(missing, layoutsIn(cm)...)
	} else if !planned {
		return // names of mig-parted, which the operator generates
	}
	if len(missing) == 0 {
		return
	}
	e.add(Finding{Severity: Error, Reason: ReasonMIGLayoutsMissing, Object: title("ClusterPolicy", policy),
		Message: fmt.Sprintf("spec.migManager.config.name is %q, where mig-manager does not find %s of GPUPool %s: nodes that are launched with them are never partitioned",
			name, listed(missing), pool.Name()),
		Command: merge(clusterPolicy, policy, nested("spec.migManager.config", map[string]any{"name": nodeconfig.LayoutsName, "default": "all-disabled"}))})
}

// pluginConfig looks whether the device plugin will know the sharing configuration.
func (e *examination) pluginConfig(policy *unstructured.Unstructured, pool *pools.Pool) {
	name := field(policy, "spec.devicePlugin.config.name")
	if name == nodeconfig.PluginName {
		return // looked at with the ConfigMap
	}
	key := pool.Sharing.ConfigName()
	if cm := e.configMap(e.operatorNamespaceOf(policy), name); cm != nil {
		if _, ok := cm.Data[key]; !ok {
			e.add(Finding{Severity: Error, Reason: ReasonDevicePluginConfigMissing, Object: title("ConfigMap", cm),
				Message: fmt.Sprintf("the device plugin reads it, and it has no entry %s, which nodes of GPUPool %s ask for: they offer no GPU", key, pool.Name()),
				Command: merge("configmap", cm, map[string]any{"data": map[string]any{key: pool.Sharing.Config()}})})
		}
		return
	}
	if name != "" && !e.complete("ConfigMap") {
		return // it may be there, with the entry
	}
	e.add(Finding{Severity: Error, Reason: ReasonDevicePluginConfigUnset, Object: title("ClusterPolicy", policy),
		Message: fmt.Sprintf("spec.devicePlugin.config.name is %q, so that the device plugin does not find %s, which nodes of GPUPool %s ask for: GPUs are not shared", name, key, pool.Name()),
		Command: merge(clusterPolicy, policy, nested("spec.devicePlugin.config", map[string]any{"name": nodeconfig.PluginName, "default": nodeconfig.DefaultPluginConfig}))})
}

// operandsOf are the DaemonSets that the operator has made for a ClusterPolicy.
func (e *examination) operandsOf(policy *unstructured.Unstructured) []*appsv1.DaemonSet {
	return lo.Filter(e.DaemonSets, func(ds *appsv1.DaemonSet, _ int) bool {
		return lo.SomeBy(ds.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Kind == "ClusterPolicy" && o.Name == policy.GetName()
		})
	})
}

func (e *examination) hasOperands(policy *unstructured.Unstructured) bool {
	return len(e.operandsOf(policy)) > 0
}

// operatorNamespaceOf is where the operator's DaemonSets run; without any, where the
// controller takes them to be.
func (e *examination) operatorNamespaceOf(policy *unstructured.Unstructured) string {
	if operands := e.operandsOf(policy); len(operands) > 0 {
		return operands[0].Namespace
	}
	return e.controller.operatorNamespace()
}

// tolerates reads the tolerations that the operator gives all its DaemonSets.
func tolerates(policy *unstructured.Unstructured, t corev1.Taint) bool {
	list, _, _ := unstructured.NestedSlice(policy.Object, "spec", "daemonsets", "tolerations")
	for _, item := range list {
		fields, ok := item.(map[string]any)
		var toleration corev1.Toleration
		if ok && runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &toleration) == nil && scheduling.Taints([]corev1.Taint{t}).Tolerates([]corev1.Toleration{toleration}) == nil {
			return true
		}
	}
	return false
}

// tolerate is the command that adds a toleration. Where the ClusterPolicy has none the
// operator's own, for nvidia.com/gpu, would go with the first that is written.
func tolerate(policy *unstructured.Unstructured, t corev1.Taint) string {
	ours := map[string]any{"key": t.Key, "operator": "Exists", "effect": t.Effect}
	if list, _, _ := unstructured.NestedSlice(policy.Object, "spec", "daemonsets", "tolerations"); len(list) > 0 {
		return steps(clusterPolicy, policy, operation{"add", "/spec/daemonsets/tolerations/-", ours})
	}
	return merge(clusterPolicy, policy, nested("spec.daemonsets.tolerations", []any{map[string]any{"key": string(v1alpha1.ResourceGPU), "operator": "Exists", "effect": "NoSchedule"}, ours}))
}

func (e *examination) configMap(namespace, name string) *corev1.ConfigMap {
	cm, _ := lo.Find(e.ConfigMaps, func(c *corev1.ConfigMap) bool { return c.Namespace == namespace && c.Name == name })
	return cm
}

// standalone are device plugins of the pool's nodes that no operator owns, by name.
func (e *examination) standalone(pool *pools.Pool) []*appsv1.DaemonSet {
	members := e.members(pool.Name())
	out := lo.Filter(e.DaemonSets, func(ds *appsv1.DaemonSet, _ int) bool {
		role, ok := readiness.RoleOf(ds)
		owned := lo.SomeBy(ds.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "ClusterPolicy" })
		return ok && role == readiness.RolePlugin && !owned && readiness.RunsOn(ds, members)
	})
	slices.SortFunc(out, func(a, b *appsv1.DaemonSet) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return out
}
