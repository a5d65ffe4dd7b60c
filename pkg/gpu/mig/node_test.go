package mig_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

func layout(t testing.TB, key, name string) mig.Layout {
	t.Helper()
	l, err := geometry(t, key).Layout(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func node(t testing.TB, name string, parts ...mig.DeviceLayout) mig.NodeLayout {
	t.Helper()
	n, err := mig.NewNodeLayout(name, parts...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNewNodeLayout(t *testing.T) {
	off, ones := layout(t, "h100-80gb", "all-disabled"), layout(t, "h100-80gb", "all-1g.10gb")
	for name, tc := range map[string]struct {
		name     string
		parts    []mig.DeviceLayout
		wantName string
		wantErr  string
	}{
		"one layout everywhere has its name":   {parts: []mig.DeviceLayout{mig.AllDevices(ones)}, wantName: "all-1g.10gb"},
		"whole GPUs beside partitions":         {parts: []mig.DeviceLayout{mig.Devices(ones, 5, 4, 7), mig.Devices(off, 0, 1, 2, 3, 6)}, wantName: "gpu0-3.6_all-disabled_gpu4-5.7_all-1g.10gb"},
		"a name of one's own":                  {name: "half", parts: []mig.DeviceLayout{mig.Devices(off, 0), mig.Devices(ones, 1)}, wantName: "half"},
		"a long generated name keeps a digest": {parts: []mig.DeviceLayout{mig.Devices(ones, 0), mig.Devices(off, 1), mig.Devices(ones, 2), mig.Devices(off, 3)}, wantName: "gpu0_all-1g.10gb_gpu1_all-disabled_gpu2_all-1g_efffb0278c7f39a6"},
		"nothing":                              {wantErr: "it has no part; give it at least AllDevices"},
		"a part without layout":                {parts: []mig.DeviceLayout{{}}, wantErr: "parts[0] has no layout"},
		"a part without devices":               {parts: []mig.DeviceLayout{mig.Devices(ones)}, wantErr: "parts[0] has no device"},
		"all devices beside others":            {parts: []mig.DeviceLayout{mig.Devices(off, 0), mig.AllDevices(ones)}, wantErr: "parts[1] is for all devices beside others"},
		"a device twice":                       {parts: []mig.DeviceLayout{mig.Devices(off, 0, 1), mig.Devices(ones, 1)}, wantErr: "parts[1] has device 1"},
		"a device that cannot be":              {parts: []mig.DeviceLayout{mig.Devices(off, -1)}, wantErr: "parts[0] has device -1"},
		"two models":                           {parts: []mig.DeviceLayout{mig.Devices(off, 0), mig.Devices(layout(t, "a30-24gb", "all-1g.6gb"), 1)}, wantErr: "parts[1] is for a30-24gb and parts[0] for h100-80gb"},
		"mig-parted's name for a part":         {name: "all-1g.10gb", parts: []mig.DeviceLayout{mig.Devices(ones, 0)}, wantErr: "mig-parted gives that name to 7×1g.10gb on all GPUs"},
		"mig-parted's name for another":        {name: "all-balanced", parts: []mig.DeviceLayout{mig.AllDevices(ones)}, wantErr: "mig-parted gives that name to 2×1g.10gb, 1×2g.20gb, 1×3g.40gb"},
		"a name that is no label value":        {name: "a b", parts: []mig.DeviceLayout{mig.AllDevices(ones)}, wantErr: "must be a label value"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := mig.NewNodeLayout(tc.name, tc.parts...)
			if wantError(t, err, tc.wantErr) {
				return
			}
			if n.Name() != tc.wantName || !labelValue.MatchString(n.Name()) {
				t.Errorf("got %q, want %q", n.Name(), tc.wantName)
			}
		})
	}
}

func TestNodeResources(t *testing.T) {
	off, ones := layout(t, "h100-80gb", "all-disabled"), layout(t, "h100-80gb", "all-1g.10gb")
	balanced, threes := layout(t, "h100-80gb", "all-balanced"), layout(t, "h100-80gb", "all-3g.40gb")
	half := node(t, "half", mig.Devices(off, 0, 1), mig.Devices(ones, 2, 3))
	for name, tc := range map[string]struct {
		node     mig.NodeLayout
		strategy mig.Strategy
		gpus     int
		want     map[string]int
		wantErr  string
	}{
		"eight GPUs alike":                 {node(t, "", mig.AllDevices(balanced)), mig.Mixed, 8, map[string]int{"nvidia.com/mig-1g.10gb": 16, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.40gb": 8}, ""},
		"whole GPUs beside partitions":     {half, mig.Mixed, 4, map[string]int{"nvidia.com/gpu": 2, "nvidia.com/mig-1g.10gb": 14}, ""},
		"single with one profile":          {node(t, "", mig.AllDevices(ones)), mig.Single, 8, map[string]int{"nvidia.com/gpu": 56}, ""},
		"single with MIG off":              {node(t, "", mig.AllDevices(off)), mig.Single, 8, map[string]int{"nvidia.com/gpu": 8}, ""},
		"single cannot tell whole from 1g": {half, mig.Single, 4, nil, "its GPUs offer nvidia.com/gpu and nvidia.com/mig-1g.10gb; use one profile or strategy mixed"},
		"single cannot tell 3g from 1g":    {node(t, "x", mig.Devices(ones, 0), mig.Devices(threes, 1)), mig.Single, 2, nil, "nvidia.com/mig-1g.10gb and nvidia.com/mig-3g.40gb"},
		"single with several profiles":     {node(t, "", mig.AllDevices(balanced)), mig.Single, 1, nil, "laying out all-balanced, advertising layout all-balanced under strategy single"},
		"a GPU that no part covers":        {half, mig.Mixed, 8, nil, "laying out half on 8 GPUs, no part covers device 4; give it a layout, such as all-disabled"},
		"a GPU that is not there":          {half, mig.Mixed, 3, nil, "there is no device 3; use it on larger nodes only"},
		"no GPU":                           {half, mig.Mixed, 0, nil, "the node has 0 GPUs, want 1 to 64"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.node.Resources(tc.strategy, tc.gpus)
			if wantError(t, err, tc.wantErr) {
				return
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// migParted is the format that mig-parted reads, as its documentation gives it.
type migParted struct {
	Version string                      `yaml:"version"`
	Configs map[string][]migPartedEntry `yaml:"mig-configs"`
}

type migPartedEntry struct {
	Filter  any            `yaml:"device-filter,omitempty"`
	Devices any            `yaml:"devices"`
	Enabled bool           `yaml:"mig-enabled"`
	Held    map[string]int `yaml:"mig-devices,omitempty"`
}

func TestPartedConfig(t *testing.T) {
	h100 := func(name string) mig.Layout { return layout(t, "h100-80gb", name) }
	inference, err := geometry(t, "h100-80gb").LayoutOf("inference", mig.Demand{"3g.40gb": 1, "1g.10gb+me": 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		nodes   []mig.NodeLayout
		want    map[string][]migPartedEntry
		wantErr string
	}{
		"nothing but the fallback": {},
		"a layout of one's own": {nodes: []mig.NodeLayout{node(t, "", mig.AllDevices(inference))},
			want: map[string][]migPartedEntry{"inference": {{Devices: "all", Enabled: true, Held: map[string]int{"3g.40gb": 1, "1g.10gb+me": 1}}}}},
		"MIG on without partitions": {nodes: []mig.NodeLayout{node(t, "", mig.AllDevices(h100("all-enabled")))},
			want: map[string][]migPartedEntry{"all-enabled": {{Devices: "all", Enabled: true, Held: map[string]int{}}}}},
		"whole GPUs beside partitions": {nodes: []mig.NodeLayout{node(t, "half", mig.Devices(h100("all-disabled"), 0, 1), mig.Devices(inference, 2, 3))},
			want: map[string][]migPartedEntry{"half": {{Devices: []any{0, 1}}, {Devices: []any{2, 3}, Enabled: true, Held: map[string]int{"3g.40gb": 1, "1g.10gb+me": 1}}}}},
		"models that agree need no filter": {nodes: []mig.NodeLayout{node(t, "", mig.AllDevices(h100("all-balanced"))), node(t, "", mig.AllDevices(layout(t, "a100-80gb", "all-balanced")))},
			want: map[string][]migPartedEntry{"all-balanced": {{Devices: "all", Enabled: true, Held: map[string]int{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}}}},
		"models that differ have filters": {nodes: []mig.NodeLayout{
			node(t, "", mig.AllDevices(h100("all-1g.10gb"))), node(t, "", mig.AllDevices(layout(t, "a100-40gb", "all-1g.10gb"))), node(t, "", mig.AllDevices(layout(t, "a100-80gb", "all-1g.10gb")))},
			want: map[string][]migPartedEntry{"all-1g.10gb": {
				{Filter: []any{"0x20B010DE", "0x20B110DE", "0x20F110DE", "0x20F610DE"}, Devices: "all", Enabled: true, Held: map[string]int{"1g.10gb": 4}},
				{Filter: []any{"0x20B210DE", "0x20B510DE", "0x20F310DE", "0x20F510DE", "0x232210DE", "0x232410DE", "0x233010DE", "0x233110DE"}, Devices: "all", Enabled: true, Held: map[string]int{"1g.10gb": 7}},
			}}},
		"a model without filter": {nodes: []mig.NodeLayout{node(t, "", mig.AllDevices(layout(t, "rtxpro5000-48gb", "all-1g.24gb"))), node(t, "", mig.AllDevices(layout(t, "rtxpro6000-96gb", "all-1g.24gb")))},
			wantErr: `rendering mig-parted configuration "all-1g.24gb", rtxpro5000-48gb has no known device filter`},
		"two contents for one filter": {nodes: []mig.NodeLayout{node(t, "", mig.AllDevices(layout(t, "gb200-186gb", "all-balanced"))), node(t, "", mig.AllDevices(layout(t, "gb200-189gb", "all-balanced")))},
			wantErr: "devices 0x294110DE (gb200-189gb) have two contents; give one of them another name"},
		"an empty one": {nodes: []mig.NodeLayout{{}}, wantErr: "layouts[0] is empty; make it with NewNodeLayout"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := mig.PartedConfig(tc.nodes)
			if wantError(t, err, tc.wantErr) {
				return
			}
			var got migParted
			dec := yaml.NewDecoder(strings.NewReader(string(out)))
			dec.KnownFields(true)
			if err := dec.Decode(&got); err != nil {
				t.Fatalf("%v in\n%s", err, out)
			}
			want := migParted{Version: "v1", Configs: map[string][]migPartedEntry{"all-disabled": {{Devices: "all"}}}}
			for name, entries := range tc.want {
				want.Configs[name] = entries
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s\n%s", d, out)
			}
		})
	}
}

// TestPartedConfigHoldsEveryLayout renders all named layouts of all models
// with a filter, as one ConfigMap for a mixed cluster, in two orders.
func TestPartedConfigHoldsEveryLayout(t *testing.T) {
	var nodes, reversed []mig.NodeLayout
	for _, g := range mig.Geometries() {
		if len(g.DeviceFilter()) == 0 {
			continue
		}
		for _, name := range g.LayoutNames() {
			n := node(t, "", mig.AllDevices(layout(t, g.Key(), name)))
			nodes, reversed = append(nodes, n), append([]mig.NodeLayout{n}, reversed...)
		}
	}
	out, err := mig.PartedConfig(nodes)
	again, errAgain := mig.PartedConfig(reversed)
	var got migParted
	if err := errors.Join(err, errAgain, yaml.Unmarshal(out, &got)); err != nil || string(out) != string(again) {
		t.Fatalf("the order of the input shows, or %v", err)
	}
	for _, n := range nodes {
		l := n.Parts()[0].Layout()
		e, found := entryFor(got.Configs[n.Name()], l.Geometry().DeviceFilter()[0])
		if !found || e.Enabled != l.MIGEnabled() || mig.Demand(e.Held).String() != l.Counts().String() {
			t.Errorf("%s of %s is not in the configuration: %v", n.Name(), l.Geometry().Key(), got.Configs[n.Name()])
		}
	}
}

// entryFor finds the entry that mig-parted applies to a device.
func entryFor(entries []migPartedEntry, id string) (migPartedEntry, bool) {
	for _, e := range entries {
		if filter, filtered := e.Filter.([]any); !filtered || slices.Contains(filter, any(id)) {
			return e, true
		}
	}
	return migPartedEntry{}, false
}
