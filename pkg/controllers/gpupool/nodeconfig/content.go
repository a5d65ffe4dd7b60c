// Package nodeconfig publishes what NVIDIA's software on the nodes reads: the
// layouts for mig-manager and the sharing configurations for the device plugin,
// each in a ConfigMap in the namespace of the GPU Operator.
//
// Nodes refer to an entry by name for as long as they live, and read it again when
// they boot. So an entry stays for as long as a NodeClaim names it, also when its
// pool has gone or no longer wants it.
package nodeconfig

import (
	"fmt"
	"maps"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

const (
	// LayoutsKey is the key that mig-manager reads.
	LayoutsKey = "config.yaml"
	// DefaultPluginConfig is the configuration of nodes that name none. The device
	// plugin's fallback takes a ConfigMap's only entry for all nodes, so there must be
	// one that shares nothing.
	DefaultPluginConfig = "default"
)

// Content is what the ConfigMaps are made from.
type Content struct {
	// Pools want their layouts and sharing configurations there.
	Pools []*pools.Pool
	// Layouts and PluginConfigs are the names that NodeClaims carry.
	Layouts, PluginConfigs []string
}

// needed says whether any pool or node reads the ConfigMaps.
func (c Content) needed() (layouts, plugin bool) {
	layouts, plugin = len(c.Layouts) > 0, len(c.PluginConfigs) > 0
	for _, p := range c.Pools {
		layouts = layouts || p.MIG != nil
		plugin = plugin || p.Sharing.Enabled()
	}
	return layouts, plugin
}

// migParted is mig-parted's configuration, with contents left as they are.
type migParted struct {
	Version string               `yaml:"version"`
	Configs map[string]yaml.Node `yaml:"mig-configs"`
}

// layouts renders mig-manager's ConfigMap; before is what it held.
func (c Content) layouts(before map[string]string) (map[string]string, error) {
	var all []mig.NodeLayout
	for _, p := range c.Pools {
		all = append(all, p.MIG.All()...)
	}
	rendered, err := mig.PartedConfig(all)
	if err != nil {
		return nil, err
	}
	var now, old migParted
	if err := yaml.Unmarshal(rendered, &now); err != nil {
		return nil, fmt.Errorf("reading the rendered layouts, %w", err)
	}
	if err := yaml.Unmarshal([]byte(before[LayoutsKey]), &old); err != nil {
		// Somebody broke it. What nodes carry beyond our pools is lost; the rest heals.
		old = migParted{}
	}
	kept := false
	for name, content := range old.Configs {
		if _, ok := now.Configs[name]; !ok && slices.Contains(c.Layouts, name) {
			now.Configs[name] = content
			kept = true
		}
	}
	if kept {
		if rendered, err = yaml.Marshal(now); err != nil {
			return nil, fmt.Errorf("rendering layouts, %w", err)
		}
	}
	return map[string]string{LayoutsKey: string(rendered)}, nil
}

// plugin renders the device plugin's ConfigMap; before is what it held.
func (c Content) plugin(before map[string]string) map[string]string {
	data := maps.Clone(before)
	maps.DeleteFunc(data, func(name, _ string) bool { return !slices.Contains(c.PluginConfigs, name) })
	if data == nil {
		data = map[string]string{}
	}
	data[DefaultPluginConfig] = "version: v1\n"
	for _, p := range c.Pools {
		if p.Sharing.Enabled() {
			data[p.Sharing.ConfigName()] = p.Sharing.Config()
		}
	}
	return data
}
