package nvml

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// Library serves a Machine to an agent in this process, as its NVML and as its
// host. All methods may be called from many goroutines.
type Library struct {
	clock clock.Clock

	mu      sync.Mutex
	machine Machine
	up      bool
	// delivered counts the events that Wait has returned.
	delivered int
	// changed is closed and replaced whenever the machine changes.
	changed chan struct{}
}

var (
	_ agent.Library = (*Library)(nil)
	_ agent.Host    = (*Library)(nil)
)

// NewLibrary returns the library of a machine. Waits end by the given clock.
func NewLibrary(clk clock.Clock, m Machine) *Library {
	return &Library{clock: clk, machine: m.Clone(), changed: make(chan struct{})}
}

// Update changes the machine: f gets a clone. A new boot ID is a reboot, which
// makes the library uninitialized.
func (l *Library) Update(f func(*Machine)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.machine.Clone()
	f(&next)
	if next.BootID != l.machine.BootID {
		l.up = false
	}
	l.machine = next
	close(l.changed)
	l.changed = make(chan struct{})
}

// enter waits while the call is named as hanging and returns its scripted error.
func (l *Library) enter(names ...string) error {
	for {
		l.mu.Lock()
		hanging, code := false, agent.Code("")
		for _, name := range names {
			hanging = hanging || l.machine.Hang[name]
			if c := l.machine.Errors[name]; c != "" {
				code = c
			}
		}
		changed := l.changed
		l.mu.Unlock()
		if !hanging {
			if code != "" {
				return agent.NewError(code, names[0], "simulated")
			}
			return nil
		}
		<-changed
	}
}

// Init implements agent.Driver.
func (l *Library) Init() error {
	if err := l.enter("init"); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.machine.Init != "" {
		return agent.NewError(l.machine.Init, "nvmlInit", "simulated")
	}
	l.up = true
	return nil
}

// Shutdown implements agent.Driver.
func (l *Library) Shutdown() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up = false
	return nil
}

// current returns the machine while the library is initialized and the driver is
// there.
func (l *Library) current() (Machine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.up {
		return Machine{}, agent.NewError(agent.Uninitialized, "nvml", "simulated")
	}
	if l.machine.Init != "" {
		return Machine{}, agent.NewError(l.machine.Init, "nvml", "simulated")
	}
	return l.machine, nil
}

// Node implements agent.Driver.
func (l *Library) Node() (agent.Node, error) {
	if err := l.enter("node"); err != nil {
		return agent.Node{}, err
	}
	m, err := l.current()
	if err != nil {
		return agent.Node{}, err
	}
	m.Node.GPUs = len(m.GPUs)
	return m.Node, nil
}

// Observe implements agent.Prober.
func (l *Library) Observe(check health.Check, index int) (health.GPU, error) {
	out := health.GPU{Index: index}
	if err := l.enter(string(check), fmt.Sprintf("%s/%d", check, index)); err != nil {
		return out, err
	}
	m, err := l.current()
	if err != nil {
		return out, err
	}
	if index >= len(m.GPUs) {
		return out, agent.NewError(agent.OtherError, string(check), "no such GPU")
	}
	gpu := m.GPUs[index]
	if gpu.Lost {
		return out, agent.NewError(agent.GPULost, string(check), "simulated")
	}
	if !pick(check, gpu, &out) {
		return out, agent.NewError(agent.NotSupported, string(check), "")
	}
	return out, nil
}

// pick takes over the facts of one check and says whether the GPU has them.
func pick(check health.Check, from health.GPU, to *health.GPU) bool {
	one := map[health.Check]func() health.GPU{
		health.CheckGPUModel:    func() health.GPU { return health.GPU{Identity: from.Identity} },
		health.CheckMIG:         func() health.GPU { return health.GPU{MIG: from.MIG} },
		health.CheckECC:         func() health.GPU { return health.GPU{ECC: from.ECC} },
		health.CheckRowRemap:    func() health.GPU { return health.GPU{Rows: from.Rows} },
		health.CheckInfoROM:     func() health.GPU { return health.GPU{InfoROMValid: from.InfoROMValid} },
		health.CheckNVLink:      func() health.GPU { return health.GPU{NVLink: from.NVLink} },
		health.CheckFabric:      func() health.GPU { return health.GPU{Fabric: from.Fabric} },
		health.CheckPCIe:        func() health.GPU { return health.GPU{PCIe: from.PCIe} },
		health.CheckThrottle:    func() health.GPU { return health.GPU{Throttle: from.Throttle} },
		health.CheckRecovery:    func() health.GPU { return health.GPU{Recovery: from.Recovery} },
		health.CheckPersistence: func() health.GPU { return health.GPU{Persistence: from.Persistence} },
	}[check]
	if one == nil {
		return check == health.CheckGPULost
	}
	facts := one()
	to.Merge(facts)
	return facts != health.GPU{}
}

// Wait implements agent.Listener.
func (l *Library) Wait(timeout time.Duration) ([]health.XIDEvent, error) {
	timer := l.clock.NewTimer(timeout)
	defer timer.Stop()
	for {
		if err := l.enter("wait"); err != nil {
			return nil, err
		}
		if _, err := l.current(); err != nil {
			return nil, err
		}
		events, changed := l.next()
		if len(events) > 0 {
			return events, nil
		}
		select {
		case <-changed:
		case <-timer.C():
			return nil, nil
		}
	}
}

func (l *Library) next() ([]health.XIDEvent, chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.machine.Events[min(l.delivered, len(l.machine.Events)):]
	l.delivered = len(l.machine.Events)
	return events, l.changed
}

// BootID implements agent.Host.
func (l *Library) BootID() (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.machine.BootID == "" {
		return "", fmt.Errorf("reading the boot ID, this machine has none")
	}
	return l.machine.BootID, nil
}

// KernelModule implements agent.Host.
func (l *Library) KernelModule() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.machine.Module
}

// MissingDeviceNodes implements agent.Host.
func (l *Library) MissingDeviceNodes([]int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.machine.Clone().Missing
}
