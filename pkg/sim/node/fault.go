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
	// MIGWrong makes mig-manager report success at once with Layout in effect, and reach the layout
	// that was asked for only after Delay.
	MIGWrong = "mig-wrong"
	// NVMLFewer makes the driver itself find only GPUs of the node's GPUs, 0 for
	// none; the plugin registers as many. NVMLLost takes GPUs off the bus without the plugin's notice.
	NVMLFewer = "nvml-fewer"
	NVMLLost  = "nvml-lost"
	// DriverMismatch makes library and kernel module differ in version; the plugin registers what
	// it enumerated before.
	DriverMismatch = "driver-mismatch"
	// XIDError is an XID error of Code on GPU number 0, in its MIG instance Instance unless that is
	// 0. It strikes machines that are up when it is injected, and is gone after a reboot. The device
	// plugin takes such an instance out of allocatable, unless PluginBlind turns its health checks off.
	XIDError    = "xid"
	PluginBlind = "plugin-blind"
)

// need says which parameter a kind of fault takes.
var need = map[string]string{
	DriverLate: "delay", PluginLate: "delay", LabelsLate: "delay", MIGLate: "delay",
	PluginPartial: "gpus", GPULost: "gpus", NVMLFewer: "gpus", NVMLLost: "gpus", MIGWrong: "layout", XIDError: "code",
	DriverMismatch: "", PluginBlind: "",
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
	// GPUs is the parameter of plugin-partial and nvml-fewer (how many are there) and of gpu-lost
	// and nvml-lost (how many go).
	GPUs int `yaml:"gpus"`
	// Layout is the parameter of mig-wrong, together with Delay.
	Layout string `yaml:"layout"`
	// Code and Instance are the parameters of xid.
	Code     int `yaml:"code"`
	Instance int `yaml:"instance"`

	since time.Time
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
	if what, missing := f.missing(parameter); missing {
		return fmt.Errorf("a fault of kind %s needs %s", f.Kind, what)
	}
	if _, err := path.Match(f.Match.Node, ""); err != nil {
		return fmt.Errorf("match.node %q is no pattern, %w", f.Match.Node, err)
	}
	return nil
}

// missing tells what a fault lacks of the parameter that its kind takes.
func (f Fault) missing(parameter string) (what string, missing bool) {
	switch parameter {
	case "delay":
		return "a delay, for example delay: 90s", f.Delay == (Delay{})
	case "layout":
		return "layout and delay", f.Layout == "" || f.Delay == (Delay{})
	case "code":
		return "code, the XID", f.Code <= 0
	case "gpus":
		least := 0
		if f.Kind == GPULost || f.Kind == NVMLLost {
			least = 1
		}
		return "gpus, the number of GPUs", f.GPUs < least
	}
	return "", false
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
	// found is how many GPUs the driver finds, -1 for all; hidden are lost without the plugin's notice.
	found, hidden int
	wrongLayout   string
	xids          []XID
}

func troublesOf(x *Machine, faults []Fault) troubles {
	t := troubles{extra: map[string]time.Duration{}, kinds: map[string]bool{}, usable: -1, found: -1}
	for _, f := range faults {
		if !f.Match.selects(x) || f.Kind == XIDError && !f.since.IsZero() && x.born.After(f.since) {
			continue
		}
		t.kinds[f.Kind] = true
		t.extra[f.Kind] += f.Delay.For(x.seed, x.name+"/"+f.ID())
		t.add(f)
	}
	return t
}

func (t *troubles) add(f Fault) {
	switch f.Kind {
	case GPULost:
		t.lost += f.GPUs
	case NVMLLost:
		t.hidden += f.GPUs
	case PluginPartial:
		t.usable = f.GPUs
	case NVMLFewer:
		t.found, t.usable = f.GPUs, f.GPUs
	case MIGWrong:
		t.wrongLayout = f.Layout
	case XIDError:
		t.xids = append(t.xids, XID{Code: f.Code, Instance: f.Instance})
	}
}

// XID is an XID error on GPU 0, in one MIG instance unless that is 0.
type XID struct{ Code, Instance int }

// String is the form in which Facts carry it.
func (x XID) String() string { return fmt.Sprintf("%d/%d", x.Code, x.Instance) }

func formatXIDs(xids []XID) string {
	parts := make([]string, len(xids))
	for i, x := range xids {
		parts[i] = x.String()
	}
	return strings.Join(parts, " ")
}

// ParseXIDs reads the errors of Facts.
func ParseXIDs(s string) []XID {
	var out []XID
	for part := range strings.FieldsSeq(s) {
		var x XID
		if _, err := fmt.Sscanf(part, "%d/%d", &x.Code, &x.Instance); err == nil {
			out = append(out, x)
		}
	}
	return out
}
