package node

import (
	"maps"
	"sync"
	"time"
)

// Labels that steer the software of a node, or that it reports by.
const (
	// LabelMIGConfig is the layout that mig-manager shall apply, LabelMIGState how far it is.
	LabelMIGConfig = "nvidia.com/mig.config"
	LabelMIGState  = "nvidia.com/mig.config.state"
	// LabelPluginConfig is the key of the device plugin's config in its ConfigMap.
	LabelPluginConfig = "nvidia.com/device-plugin.config"

	labelGPUPresent = "nvidia.com/gpu.present"
	labelNFD        = "feature.node.kubernetes.io/pci-10de.present"
)

// mig-manager's states.
const (
	migPending = "pending"
	migSuccess = "success"
	migFailed  = "failed"
)

// Settings are the delays and modes of the NVIDIA software on all nodes.
type Settings struct {
	// Seed varies the draws.
	Seed int64
	// Driver runs from the node's registration, the others from the driver's load or, after a
	// change of layout or config, from that.
	Driver, Plugin, Labels, MIG Delay
	// Strategy is the MIG strategy where the plugin's config does not set it: none, single or
	// mixed. Empty means single, the GPU Operator's default.
	Strategy string
}

// Facts is what software on a machine can find out about it.
type Facts struct {
	// Driver tells whether the driver is loaded. Without it nothing else can be known.
	Driver bool
	// Layout is the MIG layout in effect, empty for none.
	Layout string
	// File is the mig-parted file that the layout is from; empty for those that mig-parted
	// generates.
	File string
	// LostGPUs is how many GPUs have fallen off the bus.
	LostGPUs int
	// Found is how many GPUs the driver finds, -1 for all that the machine has.
	Found int
	// Mismatch tells that library and kernel module differ in version.
	Mismatch bool
	// XIDs are the XID errors of this boot, for ParseXIDs.
	XIDs string
}

// Machine models one node. A machine is driven by one goroutine; Facts may be called from any.
type Machine struct {
	name, instanceType, zone string
	boot                     string
	nth                      int
	seed                     int64
	born                     time.Time

	layout  change // of the label nvidia.com/mig.config
	file    string // mig-parted's, as it is now
	applied string // layout in effect
	from    string // mig-parted's file when that layout was applied
	config  change // of the plugin's config, by content
	parsed  pluginConfig

	mu      sync.Mutex
	facts   Facts
	changed chan struct{}
}

// change is a steering value and since when it has stood.
type change struct {
	value string
	since time.Time
}

func (c *change) set(value string, now time.Time) bool {
	if c.value == value && !c.since.IsZero() {
		return false
	}
	*c = change{value, now}
	return true
}

// view is what the software of a node shows at one moment.
type view struct {
	labels map[string]string
	// capacity and allocatable hold extended resources; what is missing counts as zero.
	capacity, allocatable map[string]int64
	facts                 Facts
	// next is when the view may change by itself; zero means never.
	next time.Time
}

func newMachine(name, instanceType, zone string, nth int, seed int64, now time.Time) *Machine {
	return &Machine{name: name, instanceType: instanceType, zone: zone, nth: nth, seed: seed, born: now, changed: make(chan struct{})}
}

// Name returns the node's name.
func (m *Machine) Name() string { return m.name }

// BootID returns the kernel's ID of the boot. A machine that reboots is another Machine.
func (m *Machine) BootID() string { return m.boot }

// InstanceType returns the instance type, which says what GPUs the machine has.
func (m *Machine) InstanceType() string { return m.instanceType }

// Facts returns what is so now, and a channel that is closed when it is no longer.
func (m *Machine) Facts() (Facts, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.facts, m.changed
}

func (m *Machine) setFacts(f Facts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.facts != f {
		m.facts = f
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// steer takes over the labels and the config that apply now. A config that cannot be parsed leaves
// the former one in effect, as a plugin that fails to start does not take effect.
func (m *Machine) steer(layout, config string, now time.Time) error {
	m.layout.set(layout, now)
	if !m.config.set(config, now) {
		return nil
	}
	parsed, err := parsePluginConfig(config)
	if err == nil {
		m.parsed = parsed
	}
	return err
}

// advance computes the view at now. hw predicts labels and resources.
func (m *Machine) advance(now time.Time, s Settings, faults []Fault, hw Hardware) view {
	t := troublesOf(m, faults)
	p := progress{machine: m, now: now, settings: s, troubles: t}
	v := view{labels: map[string]string{labelNFD: "true", labelGPUPresent: "true"}}
	driver := p.after(m.born, s.Driver, "driver", DriverLate, DriverNever)
	if !p.reached(driver) {
		v.next = p.next
		return v
	}
	ready := p.partition(driver, hw, v.labels)
	v.facts = Facts{
		Driver: true, Layout: m.applied, File: m.from, LostGPUs: t.lost + t.hidden, Found: t.found,
		Mismatch: t.kinds[DriverMismatch], XIDs: formatXIDs(t.xids),
	}
	if ready.IsZero() {
		v.next = p.next
		return v
	}
	labels, resources, err := hw.Predict(m.instanceType, m.partitioning(s))
	if err != nil { // a plugin that cannot serve its config does not come up
		return v
	}
	if p.reached(p.after(ready, s.Labels, "labels", LabelsLate, LabelsNever)) {
		maps.Copy(v.labels, labels)
	}
	if p.reached(p.after(ready, s.Plugin, "plugin", PluginLate, PluginNever)) {
		v.capacity, v.allocatable = t.registered(resources, hw.GPUs(m.instanceType))
		t.withhold(v.allocatable, m.instanceType, m.partitioning(s))
	}
	v.next = p.next
	return v
}

func (m *Machine) partitioning(s Settings) Partition {
	strategy := s.Strategy
	if strategy == "" {
		strategy = "single"
	}
	if own := m.parsed.Flags.MIGStrategy; own != "" {
		strategy = own
	}
	return Partition{Layout: m.applied, File: m.from, Strategy: strategy, Sharing: m.parsed.Sharing}
}

// progress asks which steps of a machine's start-up have been reached and remembers the next one.
type progress struct {
	machine  *Machine
	now      time.Time
	settings Settings
	troubles troubles
	next     time.Time
}

// after returns when a step that begins at from is done, zero for never.
func (p *progress) after(from time.Time, d Delay, key, late, never string) time.Time {
	if from.IsZero() || p.troubles.kinds[never] {
		return time.Time{}
	}
	return from.Add(d.For(p.settings.Seed, p.machine.name+"/"+key) + p.troubles.extra[late])
}

func (p *progress) reached(at time.Time) bool {
	if at.IsZero() {
		return false
	}
	if !p.now.Before(at) {
		return true
	}
	if p.next.IsZero() || at.Before(p.next) {
		p.next = at
	}
	return false
}

// partition plays mig-manager. It returns since when the GPUs are as they shall be, or zero while a
// reconfiguration is under way: mig-manager stops the device plugin and GFD for its time.
func (p *progress) partition(driver time.Time, hw Hardware, labels map[string]string) time.Time {
	m := p.machine
	ready := later(driver, m.config.since)
	if m.layout.value == "" {
		return ready
	}
	if wrong := p.troubles.wrongLayout; wrong != "" && !p.reached(later(driver, m.layout.since).Add(p.troubles.extra[MIGWrong])) {
		labels[LabelMIGState] = migSuccess
		m.applied = wrong
		return ready
	}
	done := p.after(later(driver, m.layout.since), p.settings.MIG, "mig/"+m.layout.value, MIGLate, MIGStuck)
	if !p.reached(done) {
		labels[LabelMIGState] = migPending
		return time.Time{}
	}
	labels[LabelMIGState] = migSuccess
	wanted := m.partitioning(p.settings)
	wanted.Layout, wanted.File = m.layout.value, m.file
	if _, _, err := hw.Predict(m.instanceType, wanted); err != nil || p.troubles.kinds[MIGFailed] {
		labels[LabelMIGState] = migFailed
	} else {
		m.applied, m.from = m.layout.value, m.file
	}
	return later(ready, done)
}

// registered returns what the kubelet shows of resources when only some GPUs take part. Layouts are
// the same on all GPUs of a node, so that each GPU carries an equal share.
func (t troubles) registered(resources map[string]int64, gpus int) (capacity, allocatable map[string]int64) {
	usable := gpus
	if t.usable >= 0 {
		usable = min(t.usable, gpus)
	}
	healthy := max(0, usable-t.lost)
	capacity, allocatable = map[string]int64{}, map[string]int64{}
	for name, n := range resources {
		capacity[name] = n * int64(usable) / int64(max(gpus, 1))
		allocatable[name] = n * int64(healthy) / int64(max(gpus, 1))
	}
	return capacity, allocatable
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
