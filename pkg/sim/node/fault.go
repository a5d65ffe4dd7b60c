package node

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Kinds of faults.
const (
	// DriverLate adds Delay to the driver's load time, DriverNever keeps it from loading; on a node
	// where it had loaded it is unloaded.
	DriverLate  = "driver-late"
	DriverNever = "driver-never"
	// PluginLate adds Delay to the device plugin's start, PluginNever keeps it down.
	PluginLate  = "plugin-late"
	PluginNever = "plugin-never"
	// PluginPartial makes the device plugin register only GPUs of the node's GPUs.
	PluginPartial = "plugin-partial"
	// GPULost takes GPUs off the bus: capacity stays, allocatable falls, as with devices that the
	// plugin marks unhealthy.
	GPULost = "gpu-lost"
	// LabelsLate adds Delay to GFD's first labels, LabelsNever keeps them away.
	LabelsLate  = "labels-late"
	LabelsNever = "labels-never"
	// MIGLate adds Delay to a reconfiguration, MIGFailed ends it in failed, MIGStuck in pending.
	MIGLate   = "mig-late"
	MIGFailed = "mig-failed"
	MIGStuck  = "mig-stuck"
)

// need says which parameter a kind of fault takes.
var need = map[string]string{
	DriverLate: "delay", PluginLate: "delay", LabelsLate: "delay", MIGLate: "delay",
	PluginPartial: "gpus", GPULost: "gpus",
	DriverNever: "", PluginNever: "", LabelsNever: "", MIGFailed: "", MIGStuck: "",
}

// Fault is something that goes wrong with the software or the GPUs of matching nodes.
type Fault struct {
	// Name identifies the fault for its end; the kind when empty.
	Name string `yaml:"name"`
	// Kind is one of the constants.
	Kind string `yaml:"kind"`
	// Match selects nodes; the zero Match selects all.
	Match Match `yaml:"match"`
	// Delay is the parameter of the kinds that end in -late.
	Delay Delay `yaml:"delay"`
	// GPUs is the parameter of plugin-partial (how many register) and gpu-lost (how many go).
	GPUs int `yaml:"gpus"`
}

// Match selects nodes; empty fields match all, and all fields must match.
type Match struct {
	InstanceType string `yaml:"instanceType"`
	Zone         string `yaml:"zone"`
	// Node is a name or a pattern as of path.Match, for example idc-*.
	Node string `yaml:"node"`
	// Nth selects the nth node of its instance type in the order of registration, from 1.
	Nth int `yaml:"nth"`
	// FirstN selects the first n nodes of their instance type.
	FirstN int `yaml:"firstN"`
}

// ID returns the name that ends the fault.
func (f Fault) ID() string {
	if f.Name != "" {
		return f.Name
	}
	return f.Kind
}

// Validate refuses unknown kinds and missing parameters.
func (f Fault) Validate() error {
	parameter, ok := need[f.Kind]
	if !ok {
		return fmt.Errorf("kind %q is no node fault; known: %s", f.Kind, strings.Join(slices.Sorted(maps.Keys(need)), ", "))
	}
	if parameter == "delay" && f.Delay == (Delay{}) {
		return fmt.Errorf("a fault of kind %s needs a delay, for example delay: 90s", f.Kind)
	}
	if parameter == "gpus" && f.GPUs < 0 || f.Kind == GPULost && f.GPUs == 0 {
		return fmt.Errorf("a fault of kind %s needs gpus, the number of GPUs", f.Kind)
	}
	if _, err := path.Match(f.Match.Node, ""); err != nil {
		return fmt.Errorf("match.node %q is no pattern, %w", f.Match.Node, err)
	}
	return nil
}

func (m Match) selects(x *Machine) bool {
	if m.InstanceType != "" && m.InstanceType != x.instanceType || m.Zone != "" && m.Zone != x.zone {
		return false
	}
	if m.Nth != 0 && m.Nth != x.nth || m.FirstN != 0 && x.nth > m.FirstN {
		return false
	}
	if m.Node == "" {
		return true
	}
	ok, err := path.Match(m.Node, x.name)
	return err == nil && ok
}

// troubles is the sum of the faults that match one machine.
type troubles struct {
	extra  map[string]time.Duration
	kinds  map[string]bool
	lost   int
	usable int // -1 when all GPUs register
}

func troublesOf(x *Machine, faults []Fault) troubles {
	t := troubles{extra: map[string]time.Duration{}, kinds: map[string]bool{}, usable: -1}
	for _, f := range faults {
		if !f.Match.selects(x) {
			continue
		}
		t.kinds[f.Kind] = true
		t.extra[f.Kind] += f.Delay.For(x.seed, x.name+"/"+f.ID())
		switch f.Kind {
		case GPULost:
			t.lost += f.GPUs
		case PluginPartial:
			t.usable = f.GPUs
		}
	}
	return t
}
