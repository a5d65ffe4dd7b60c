package mig

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// PartedConfig renders node layouts in mig-parted's format, for the
// ConfigMap that mig-manager reads. Entries are sorted by name; all-disabled is
// always among them, because mig-manager falls back to it.
//
// Layouts of one name for several models become one entry each, told apart by
// device filters, where their contents differ, as all-balanced does. A model
// without a known filter, or two contents for one filter, are errors then.
func PartedConfig(layouts []NodeLayout) ([]byte, error) {
	byName := map[string][]NodeLayout{}
	for i, n := range layouts {
		if n.Geometry() == nil {
			return nil, fmt.Errorf("rendering mig-parted configuration, layouts[%d] is empty; make it with NewNodeLayout", i)
		}
		byName[n.name] = append(byName[n.name], n)
	}
	if _, ok := byName[AllDisabled]; !ok {
		byName[AllDisabled] = nil
	}
	var out bytes.Buffer
	out.WriteString("version: v1\nmig-configs:\n")
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		fmt.Fprintf(&out, "  %q:\n", name)
		if name == AllDisabled {
			out.WriteString("    - devices: all\n      mig-enabled: false\n")
			continue
		}
		if err := writeEntries(&out, byName[name]); err != nil {
			return nil, fmt.Errorf("rendering mig-parted configuration %q, %w", name, err)
		}
	}
	return out.Bytes(), nil
}

// writeEntries writes the contents of one name: once where all models agree,
// else once per contents with the filters of its models.
func writeEntries(out *bytes.Buffer, same []NodeLayout) error {
	filters := map[string][]string{}
	owner := map[string]string{}
	for _, n := range same {
		body := n.body("")
		filters[body] = append(filters[body], n.Geometry().spec.DeviceFilter...)
	}
	if len(filters) == 1 {
		out.WriteString(same[0].body(""))
		return nil
	}
	for _, n := range same {
		g, body := n.Geometry(), n.body("")
		if len(g.spec.DeviceFilter) == 0 {
			return fmt.Errorf("%s has no known device filter to tell it from other models; give its layout a name of its own", g.key)
		}
		for _, id := range g.spec.DeviceFilter {
			if other, ok := owner[id]; ok && other != body {
				return fmt.Errorf("devices %s (%s) have two contents; give one of them another name", id, g.key)
			}
			owner[id] = body
		}
	}
	written := map[string]bool{}
	for _, n := range sortedByFilter(same) {
		body := n.body("")
		if written[body] {
			continue
		}
		written[body] = true
		ids := slices.Compact(slices.Sorted(slices.Values(filters[body])))
		out.WriteString(n.body(fmt.Sprintf("[%s]", strings.Join(quoted(ids), ", "))))
	}
	return nil
}

func sortedByFilter(layouts []NodeLayout) []NodeLayout {
	sorted := slices.Clone(layouts)
	slices.SortStableFunc(sorted, func(a, b NodeLayout) int {
		return strings.Compare(a.Geometry().spec.DeviceFilter[0], b.Geometry().spec.DeviceFilter[0])
	})
	return sorted
}

// body renders the entries of a node layout, each with the filter unless empty.
func (n NodeLayout) body(filter string) string {
	var out strings.Builder
	for _, p := range n.parts {
		lead := "    - "
		if filter != "" {
			fmt.Fprintf(&out, "%sdevice-filter: %s\n", lead, filter)
			lead = "      "
		}
		fmt.Fprintf(&out, "%sdevices: %s\n", lead, p.devices())
		fmt.Fprintf(&out, "      mig-enabled: %t\n", p.layout.MIGEnabled())
		if !p.layout.MIGEnabled() {
			continue
		}
		held := p.layout.Counts()
		if len(held) == 0 {
			out.WriteString("      mig-devices: {}\n")
			continue
		}
		out.WriteString("      mig-devices:\n")
		for _, name := range held.names() {
			fmt.Fprintf(&out, "        %q: %d\n", name, held[name])
		}
	}
	return out.String()
}

func (d DeviceLayout) devices() string {
	if d.indices == nil {
		return "all"
	}
	var parts []string
	for _, i := range d.indices {
		parts = append(parts, fmt.Sprint(i))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func quoted(all []string) []string {
	var q []string
	for _, s := range all {
		q = append(q, fmt.Sprintf("%q", s))
	}
	return q
}
