package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/nodeconfig"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// devicePlugins compares device plugins that run without the GPU Operator with the pools.
func (e *examination) devicePlugins() {
	for _, pool := range e.pools {
		for _, ds := range e.standalone(pool) {
			if pool.MIG != nil {
				e.pluginStrategy(ds, pool)
			}
			if pool.Sharing.Enabled() && !e.readsConfig(ds, pool) {
				e.add(Finding{Severity: Error, Reason: ReasonDevicePluginConfigUnset, Object: title("DaemonSet", ds),
					Message: fmt.Sprintf("it mounts no ConfigMap with %s, which nodes of GPUPool %s ask for: GPUs are not shared", pool.Sharing.ConfigName(), pool.Name()),
					Fix: fmt.Sprintf("upgrade its chart with config.name=%s and config.default=%s, in the namespace that the controller's gpu.operator.namespace names",
						nodeconfig.PluginName, nodeconfig.DefaultPluginConfig)})
			}
		}
	}
}

func (e *examination) pluginStrategy(ds *appsv1.DaemonSet, pool *pools.Pool) {
	have := pluginStrategy
	var container string
	for _, c := range ds.Spec.Template.Spec.Containers {
		if v, ok := lo.Find(c.Env, func(v corev1.EnvVar) bool { return v.Name == "MIG_STRATEGY" }); ok {
			have, container = cmp.Or(v.Value, have), c.Name
		}
		for _, arg := range append(slices.Clone(c.Command), c.Args...) {
			if value, ok := strings.CutPrefix(arg, "--mig-strategy="); ok {
				have, container = value, c.Name
			}
		}
		container = cmp.Or(container, c.Name)
	}
	if have != wanted(pool) {
		e.add(Finding{Severity: Error, Reason: ReasonMIGStrategyDiffers, Object: title("DaemonSet", ds), Message: strategyMessage(pool, "MIG_STRATEGY", have),
			Command: fmt.Sprintf("kubectl set env daemonset/%s --namespace %s --containers %s MIG_STRATEGY=%s", ds.Name, ds.Namespace, container, wanted(pool))})
	}
}

// readsConfig says whether a ConfigMap that the DaemonSet mounts is ours, or has the
// entry. One that is not among the facts counts as having it.
func (e *examination) readsConfig(ds *appsv1.DaemonSet, pool *pools.Pool) bool {
	return lo.SomeBy(ds.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
		if v.ConfigMap == nil {
			return false
		}
		cm := e.configMap(ds.Namespace, v.ConfigMap.Name)
		if v.ConfigMap.Name == nodeconfig.PluginName || cm == nil {
			return true
		}
		_, ok := cm.Data[pool.Sharing.ConfigName()]
		return ok
	})
}

// configMaps looks at the ConfigMaps that the controller writes and at where it writes them.
func (e *examination) configMaps() {
	if !e.complete("ConfigMap", "Namespace", "ClusterPolicy", "DaemonSet") || e.controller == nil {
		return
	}
	readers := lo.Filter(e.pools, func(p *pools.Pool, _ int) bool { return p.MIG != nil || p.Sharing.Enabled() })
	if len(readers) == 0 || !e.operatorNamespaceFits(readers) {
		return
	}
	for _, pool := range readers {
		e.published(pool)
	}
}

// published looks whether what a pool needs is in the controller's ConfigMaps, where the
// operator reads them.
func (e *examination) published(pool *pools.Pool) {
	namespace := e.controller.operatorNamespace()
	if pool.MIG != nil && e.reads("spec.migManager.config.name", nodeconfig.LayoutsName) {
		have := layoutsIn(e.configMap(namespace, nodeconfig.LayoutsName))
		e.unpublished(ReasonMIGLayoutsMissing, namespace, nodeconfig.LayoutsName, pool, lo.Without(layoutNames(pool), have...))
	}
	if pool.Sharing.Enabled() && e.reads("spec.devicePlugin.config.name", nodeconfig.PluginName) {
		var have []string
		if cm := e.configMap(namespace, nodeconfig.PluginName); cm != nil {
			have = slices.Collect(maps.Keys(cm.Data))
		}
		e.unpublished(ReasonDevicePluginConfigMissing, namespace, nodeconfig.PluginName, pool, lo.Without([]string{pool.Sharing.ConfigName()}, have...))
	}
}

// reads says whether a ClusterPolicy has that value.
func (e *examination) reads(path, value string) bool {
	for _, p := range e.ClusterPolicies {
		if field(p, path) == value {
			return true
		}
	}
	return false
}

// operatorNamespaceFits looks whether the controller writes to where the operator reads.
func (e *examination) operatorNamespaceFits(readers []*pools.Pool) bool {
	namespace := e.controller.operatorNamespace()
	names := listed(lo.Map(readers, func(p *pools.Pool, _ int) string { return p.Name() }))
	f := Finding{Severity: Error, Reason: ReasonOperatorNamespaceDiffers, Object: title("Deployment", e.controller.Deployment)}
	for _, policy := range e.ClusterPolicies {
		if at := e.operatorNamespaceOf(policy); at != namespace {
			f.Message = fmt.Sprintf("it writes what mig-manager and the device plugin read into the namespace %s, and the GPU Operator runs in %s: nodes of the GPUPools %s do not find it", namespace, at, names)
			f.Command = e.controller.upgrade("gpu.operator.namespace=" + at)
			e.add(f)
			return false
		}
	}
	if lo.SomeBy(e.Namespaces, func(n *corev1.Namespace) bool { return n.Name == namespace }) {
		return true
	}
	f.Message = fmt.Sprintf("it writes what mig-manager and the device plugin read into the namespace %s, which does not exist: nodes of the GPUPools %s do not find it", namespace, names)
	f.Fix, f.Command = "install the GPU Operator there, or name its namespace in place of NAMESPACE", e.controller.upgrade("gpu.operator.namespace=NAMESPACE")
	e.add(f)
	return false
}

// unpublished tells that the controller has not written what it should have.
func (e *examination) unpublished(reason Reason, namespace, name string, pool *pools.Pool, missing []string) {
	if len(missing) == 0 {
		return
	}
	e.add(Finding{Severity: Error, Reason: reason, Object: fmt.Sprintf("ConfigMap %s/%s", namespace, name),
		Message: fmt.Sprintf("the controller has not written %s of GPUPool %s into it, so that nodes that ask for it offer no GPU", listed(missing), pool.Name()),
		Fix:     "let the controller write it; the event ConfigurationNotPublished of the pool says what stands in the way",
		Command: e.controller.upgrade("gpu.operator.writeConfigMaps=true")})
}

// layoutNames are the layouts of a pool, sorted. all-disabled is in every configuration.
func layoutNames(pool *pools.Pool) []string {
	names := lo.Map(pool.MIG.All(), func(l mig.NodeLayout, _ int) string { return l.Name() })
	slices.Sort(names)
	return lo.Without(slices.Compact(names), "all-disabled")
}

// layoutsIn are the names in a configuration of mig-parted. A nil ConfigMap, and one that
// cannot be read, have none.
func layoutsIn(cm *corev1.ConfigMap) []string {
	if cm == nil {
		return nil
	}
	var content struct {
		Configs map[string]any `json:"mig-configs"`
	}
	if err := yaml.Unmarshal([]byte(cm.Data[nodeconfig.LayoutsKey]), &content); err != nil {
		return nil
	}
	return slices.Collect(maps.Keys(content.Configs))
}
