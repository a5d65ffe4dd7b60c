package node

import (
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// migParted is what mig-manager reads of a mig-parted file.
type migParted struct {
	Configs map[string][]migEntry `yaml:"mig-configs"`
}

// migEntry says how some GPUs of some models are partitioned.
type migEntry struct {
	Filter  oneOrMany      `yaml:"device-filter"`
	Devices yaml.Node      `yaml:"devices"` // all, or a list of indices
	Enabled bool           `yaml:"mig-enabled"`
	Counts  map[string]int `yaml:"mig-devices"`
}

// oneOrMany is a string or a list of strings.
type oneOrMany []string

// UnmarshalYAML accepts both forms.
func (o *oneOrMany) UnmarshalYAML(value *yaml.Node) error {
	if value.Kind == yaml.ScalarNode {
		*o = oneOrMany{value.Value}
		return nil
	}
	return value.Decode((*[]string)(o))
}

// fromFile finds a layout by name in a mig-parted file and keeps the entries that apply to the
// model. ok is false where the file does not have the name.
func fromFile(file, name string, g *mig.Geometry, gpus int) (layout mig.NodeLayout, ok bool, err error) {
	var parsed migParted
	if err := yaml.Unmarshal([]byte(file), &parsed); err != nil {
		return mig.NodeLayout{}, false, fmt.Errorf("parsing mig-parted file, %w", err)
	}
	entries, ok := parsed.Configs[name]
	if !ok {
		return mig.NodeLayout{}, false, nil
	}
	var parts []mig.DeviceLayout
	for _, e := range entries {
		if len(e.Filter) > 0 && !slices.ContainsFunc(g.DeviceFilter(), func(id string) bool { return slices.Contains(e.Filter, id) }) {
			continue
		}
		part, err := e.part(g, gpus)
		if err != nil {
			return mig.NodeLayout{}, true, fmt.Errorf("applying layout %q, %w", name, err)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return mig.NodeLayout{}, true, fmt.Errorf("applying layout %q, the file has no entry for %s", name, g.Key())
	}
	layout, err = mig.NewNodeLayout("", parts...)
	return layout, true, err
}

func (e migEntry) part(g *mig.Geometry, gpus int) (mig.DeviceLayout, error) {
	layout, err := g.Layout(mig.AllDisabled)
	if e.Enabled {
		layout, err = g.LayoutOf("", e.Counts)
	}
	if err != nil {
		return mig.DeviceLayout{}, err
	}
	if e.Devices.Value == "all" {
		return mig.AllDevices(layout), nil
	}
	var indices []int
	if err := e.Devices.Decode(&indices); err != nil {
		return mig.DeviceLayout{}, fmt.Errorf("reading devices, %w", err)
	}
	if i := slices.IndexFunc(indices, func(i int) bool { return i >= gpus }); i >= 0 {
		return mig.DeviceLayout{}, fmt.Errorf("there is no GPU %d", indices[i])
	}
	return mig.Devices(layout, indices...), nil
}

// LayoutsOf returns the layout of each GPU of a machine of the built-in catalogue; nil where MIG is
// off on all or the layout is unknown.
func LayoutsOf(instanceType, layout, file string) []mig.Layout {
	shape, ok := catalog.Default().Shape(instanceType)
	if !ok || layout == "" {
		return nil
	}
	found, err := layoutOf(shape, Partition{Layout: layout, File: file})
	if err != nil || found.Geometry() == nil {
		return nil
	}
	layouts, err := found.Layouts(shape.GPUs)
	if err != nil {
		return nil
	}
	return layouts
}
