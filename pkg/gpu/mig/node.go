package mig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxNodeGPUs bounds the device indices of a node layout.
const maxNodeGPUs = 64

// DeviceLayout is a layout for some or all GPUs of a node. AllDevices and
// Devices make it.
type DeviceLayout struct {
	layout  Layout
	indices []int // nil: all
}

// AllDevices gives every GPU of a node the layout.
func AllDevices(l Layout) DeviceLayout { return DeviceLayout{layout: l} }

// Devices gives the GPUs with these NVML indices the layout.
func Devices(l Layout, indices ...int) DeviceLayout {
	sorted := slices.Sorted(slices.Values(indices))
	return DeviceLayout{layout: l, indices: append([]int{}, sorted...)}
}

// Layout returns the layout.
func (d DeviceLayout) Layout() Layout { return d.layout }

// Indices returns the NVML indices, sorted; false for all devices. The caller
// owns the slice.
func (d DeviceLayout) Indices() ([]int, bool) { return slices.Clone(d.indices), d.indices != nil }

// NodeLayout says which GPUs of a node carry which layout, as an entry of
// mig-parted's configuration does. GPUs with MIG off and GPUs with partitions
// can sit in one node. It is immutable; the zero NodeLayout is none.
type NodeLayout struct {
	name  string
	parts []DeviceLayout
}

// NewNodeLayout checks the parts: one model, either all devices at once or
// indices of which none comes twice. An empty name asks for the layout's own,
// or for a generated one where there are several parts. mig-parted's names are
// kept for what they mean.
func NewNodeLayout(name string, parts ...DeviceLayout) (NodeLayout, error) {
	n := NodeLayout{name: name, parts: slices.Clone(parts)}
	if err := n.validateParts(); err != nil {
		return NodeLayout{}, fmt.Errorf("making node layout %q, %w", name, err)
	}
	if name == "" {
		n.name = n.generatedName()
	}
	if !layoutNamePattern.MatchString(n.name) {
		return NodeLayout{}, fmt.Errorf("making node layout %q, the name must be a label value: at most %d letters, digits, '.', '_', '-' with a letter or digit at both ends", name, maxLabelValue)
	}
	if known, ok := n.Geometry().layouts[n.name]; ok && !n.everywhere(known) {
		return NodeLayout{}, fmt.Errorf("making node layout %q, mig-parted gives that name to %s on all GPUs; choose another", name, known.describe())
	}
	return n, nil
}

func (n NodeLayout) validateParts() error {
	if len(n.parts) == 0 {
		return errors.New("it has no part; give it at least AllDevices of one layout")
	}
	taken := map[int]bool{}
	for i, p := range n.parts {
		if err := n.validatePart(p, taken); err != nil {
			return fmt.Errorf("parts[%d] %w", i, err)
		}
	}
	return nil
}

func (n NodeLayout) validatePart(p DeviceLayout, taken map[int]bool) error {
	switch {
	case p.layout.IsZero():
		return errors.New("has no layout; take one from a geometry")
	case p.layout.geometry != n.Geometry():
		return fmt.Errorf("is for %s and parts[0] for %s; make a node layout for each model", p.layout.geometry.key, n.Geometry().keyOrNone())
	case p.indices == nil && len(n.parts) > 1:
		return errors.New("is for all devices beside others; give every part its devices")
	case p.indices != nil && len(p.indices) == 0:
		return errors.New("has no device; drop it or give it devices")
	}
	for _, gpu := range p.indices {
		if gpu < 0 || gpu >= maxNodeGPUs || taken[gpu] {
			return fmt.Errorf("has device %d, which is out of 0 to %d or there twice; list each device once", gpu, maxNodeGPUs-1)
		}
		taken[gpu] = true
	}
	return nil
}

// Name returns the name, a key of mig-parted's configuration and a label value.
func (n NodeLayout) Name() string { return n.name }

// Parts returns the layouts with their devices. The caller owns the slice.
func (n NodeLayout) Parts() []DeviceLayout { return slices.Clone(n.parts) }

// Geometry returns the model; nil for the zero NodeLayout.
func (n NodeLayout) Geometry() *Geometry {
	if len(n.parts) == 0 {
		return nil
	}
	return n.parts[0].layout.geometry
}

// LayoutAt returns the layout of one GPU; false where no part covers it.
func (n NodeLayout) LayoutAt(gpu int) (Layout, bool) {
	for _, p := range n.parts {
		if p.indices == nil || slices.Contains(p.indices, gpu) {
			return p.layout, true
		}
	}
	return Layout{}, false
}

// Layouts returns the layout of every GPU of a node with that many. Parts that
// leave a GPU out or name one that is not there are errors: what such a node
// will advertise is not known.
func (n NodeLayout) Layouts(gpus int) ([]Layout, error) {
	if gpus < 1 || gpus > maxNodeGPUs {
		return nil, fmt.Errorf("laying out %s, the node has %d GPUs, want 1 to %d", n.name, gpus, maxNodeGPUs)
	}
	var all []Layout
	for gpu := range gpus {
		l, ok := n.LayoutAt(gpu)
		if !ok {
			return nil, fmt.Errorf("laying out %s on %d GPUs, no part covers device %d; give it a layout, such as %s", n.name, gpus, gpu, AllDisabled)
		}
		all = append(all, l)
	}
	for _, p := range n.parts {
		if len(p.indices) > 0 && p.indices[len(p.indices)-1] >= gpus {
			return nil, fmt.Errorf("laying out %s on %d GPUs, there is no device %d; use it on larger nodes only", n.name, gpus, p.indices[len(p.indices)-1])
		}
	}
	return all, nil
}

// Resources returns the extended resources of a node with that many GPUs under
// a strategy. The single strategy needs one profile on all GPUs, or MIG off on
// all. The caller owns the map.
func (n NodeLayout) Resources(s Strategy, gpus int) (map[string]int, error) {
	layouts, err := n.Layouts(gpus)
	if err != nil {
		return nil, err
	}
	total := map[string]int{}
	kinds := map[string]bool{}
	for _, l := range layouts {
		r, err := l.ResourcesUnder(s)
		if err != nil {
			return nil, fmt.Errorf("laying out %s, %w", n.name, err)
		}
		for name, count := range r {
			total[name] += count
		}
		for name := range l.Resources() {
			kinds[name] = true
		}
	}
	if s == Single && len(kinds) > 1 {
		return nil, fmt.Errorf("laying out %s under strategy single, its GPUs offer %s; use one profile or strategy mixed", n.name, strings.Join(slices.Sorted(maps.Keys(kinds)), " and "))
	}
	return total, nil
}

func (n NodeLayout) everywhere(l Layout) bool {
	return len(n.parts) == 1 && n.parts[0].indices == nil &&
		n.parts[0].layout.counts == l.counts && n.parts[0].layout.disabled == l.disabled
}

// generatedName is the layout's name, or the parts in order of their first
// device, as in gpu0-3_all-disabled_gpu4-7_all-1g.10gb.
func (n NodeLayout) generatedName() string {
	if n.parts[0].indices == nil {
		return n.parts[0].layout.name
	}
	parts := slices.Clone(n.parts)
	slices.SortFunc(parts, func(a, b DeviceLayout) int { return a.indices[0] - b.indices[0] })
	var names []string
	for _, p := range parts {
		names = append(names, "gpu"+ranges(p.indices)+"_"+p.layout.name)
	}
	return shorten(strings.Join(names, "_"))
}

// ranges prints sorted numbers as in 0-3.6.
func ranges(v []int) string {
	var parts []string
	for i := 0; i < len(v); {
		j := i
		for j+1 < len(v) && v[j+1] == v[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(v[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", v[i], v[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ".")
}
