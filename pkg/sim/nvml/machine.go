package nvml

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// Machine is one simulated node. The zero value is a node without a driver's
// faults and without GPUs.
type Machine struct {
	// BootID and Module are what the host says; Missing are device nodes.
	BootID, Module string
	Missing        []string
	// Init is the error of initialization; empty for none.
	Init agent.Code
	Node agent.Node
	// GPUs holds the facts that each GPU serves; a nil fact is not supported.
	// Their count is what NVML reports, whatever Node.GPUs says.
	GPUs []health.GPU
	// Hang names calls that do not return while they are named: "init", "node",
	// "wait", or a check, with "/index" for one GPU only: "ecc/3".
	Hang map[string]bool
	// Errors are codes that a call returns, with the same names.
	Errors map[string]agent.Code
	// Events are XID errors; each is delivered once, in this order.
	Events []health.XIDEvent
}

// NewMachine returns a healthy node of n GPUs of a model, without MIG. NVLinks and
// fabric are those of an SXM board where links is above zero.
func NewMachine(n int, product string, memoryMiB int, capability string, links int) Machine {
	m := Machine{
		BootID: "00000000-0000-4000-8000-000000000001", Module: "550.54.15",
		Node: agent.Node{DriverVersion: "550.54.15", LibraryVersion: "12.550.54.15", CUDAVersion: "12.4"},
	}
	for i := range n {
		g := health.GPU{
			Index: i,
			Identity: &health.Identity{UUID: fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i), Product: product,
				MemoryMiB: memoryMiB, ComputeCapability: capability, Minor: i},
			MIG: &health.MIG{}, ECC: &health.ECC{Enabled: true, Pending: true}, Rows: &health.Rows{},
			InfoROMValid: to(true), PCIe: &health.PCIe{Width: 16, MaxWidth: 16},
			Throttle: to(uint64(1)), Recovery: to(0), Persistence: to(true),
		}
		if links > 0 {
			g.NVLink = &health.NVLink{Active: links, Total: links}
			g.Fabric = &health.Fabric{State: health.FabricCompleted}
		}
		m.GPUs = append(m.GPUs, g)
	}
	return m
}

// H100 returns a healthy node of n H100 GPUs on an SXM board.
func H100(n int) Machine { return NewMachine(n, "NVIDIA H100 80GB HBM3", 81559, "9.0", 18) }

func to[T any](v T) *T { return &v }

// Partition puts instances on one GPU and turns its MIG mode on; placements are
// given in order, such as 1g.10gb@0+1. The IDs are 1, 2, ….
func (m *Machine) Partition(gpu int, partitions ...health.Partition) error {
	mig := &health.MIG{Enabled: true, Pending: true}
	for i, p := range partitions {
		in, err := p.Parse()
		if err != nil {
			return err
		}
		in.ID = i + 1
		in.UUID = fmt.Sprintf("MIG-%08x-0000-4000-8000-%012x", gpu, i+1)
		mig.Instances = append(mig.Instances, in)
	}
	m.GPUs[gpu].MIG = mig
	return nil
}

// Clone returns a machine that shares nothing that Update may change.
func (m Machine) Clone() Machine {
	m.GPUs = slices.Clone(m.GPUs)
	m.Missing = slices.Clone(m.Missing)
	m.Events = slices.Clone(m.Events)
	m.Hang, m.Errors = maps.Clone(m.Hang), maps.Clone(m.Errors)
	return m
}

// returns are NVML's numbers for the codes that a Machine can name.
var returns = map[agent.Code]int{
	"": 0, agent.Uninitialized: 1, agent.NotSupported: 3, agent.DriverNotLoaded: 9, agent.LibraryMissing: 12,
	agent.GPULost: 15, agent.ResetRequired: 16, agent.VersionMismatch: 18, agent.InUse: 19, agent.OtherError: 999,
}

// calls are the functions of NVML behind the names in Hang and Errors.
var calls = map[string]string{
	"init": "nvmlInit_v2", "node": "nvmlDeviceGetCount_v2", "wait": "nvmlEventSetWait_v2",
	string(health.CheckGPUModel): "nvmlDeviceGetName", string(health.CheckMIG): "nvmlDeviceGetMigMode",
	string(health.CheckECC): "nvmlDeviceGetEccMode", string(health.CheckRowRemap): "nvmlDeviceGetRemappedRows",
	string(health.CheckInfoROM): "nvmlDeviceValidateInforom", string(health.CheckNVLink): "nvmlDeviceGetNvLinkState",
	string(health.CheckFabric): "nvmlDeviceGetGpuFabricInfoV", string(health.CheckPCIe): "nvmlDeviceGetCurrPcieLinkWidth",
	string(health.CheckThrottle): "nvmlDeviceGetCurrentClocksEventReasons", string(health.CheckRecovery): "nvmlDeviceGetFieldValues",
	string(health.CheckPersistence): "nvmlDeviceGetPersistenceMode", string(health.CheckGPULost): "nvmlDeviceGetCurrentClocksThrottleReasons",
}

// WriteConfig writes the file that the fake library reads, whole or not at all.
func (m Machine) WriteConfig(path string) error {
	text, err := m.config()
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".fake-nvml-*")
	if err != nil {
		return fmt.Errorf("writing fake nvml configuration, %w", err)
	}
	defer func() { _ = os.Remove(temp.Name()) }() // gone once renamed
	if _, err := temp.WriteString(text); err != nil {
		return fmt.Errorf("writing fake nvml configuration, %w", err)
	}
	if err := temp.Close(); err != nil {
		return fmt.Errorf("writing fake nvml configuration, %w", err)
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return fmt.Errorf("writing fake nvml configuration, %w", err)
	}
	return nil
}

// lines collects key=value lines.
type lines struct{ b strings.Builder }

func (l *lines) set(key string, value any) { fmt.Fprintf(&l.b, "%s=%v\n", key, value) }

func (m Machine) config() (string, error) {
	var l lines
	l.set("init", returns[m.Init])
	l.set("driver", m.Node.DriverVersion)
	l.set("library", m.Node.LibraryVersion)
	var major, minor int
	if _, err := fmt.Sscanf(m.Node.CUDAVersion, "%d.%d", &major, &minor); m.Node.CUDAVersion != "" && err != nil {
		return "", fmt.Errorf("CUDA version %q is not of the form 12.4", m.Node.CUDAVersion)
	}
	l.set("cuda", major*1000+minor*10)
	l.set("gpus", len(m.GPUs))
	for i, g := range m.GPUs {
		l.gpu(fmt.Sprintf("gpu.%d.", i), g)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Hang)) {
		if err := l.call("hang", name, 1); err != nil {
			return "", err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Errors)) {
		if err := l.call("ret", name, returns[m.Errors[name]]); err != nil {
			return "", err
		}
	}
	for i, e := range m.Events {
		l.set("event", fmt.Sprintf("%d %d %d %d", i+1, e.GPU, e.Code, e.GI))
	}
	return l.b.String(), nil
}

// call writes "hang.nvmlX=1" or "gpu.3.hang.nvmlX=1".
func (l *lines) call(kind, name string, value int) error {
	check, index, one := strings.Cut(name, "/")
	function, ok := calls[check]
	if !ok {
		return fmt.Errorf("%q is no call of the fake library", name)
	}
	key := kind + "." + function
	if one {
		key = "gpu." + index + "." + key
	}
	l.set(key, value)
	return nil
}

// gpu writes the facts of one GPU; a fact that is nil becomes "unsupported".
func (l *lines) gpu(prefix string, g health.GPU) {
	l.set(prefix+"lost", bit(g.Lost))
	if id := g.Identity; id != nil {
		l.set(prefix+"name", id.Product)
		l.set(prefix+"uuid", id.UUID)
		l.set(prefix+"memory", id.MemoryMiB)
		l.set(prefix+"cc", id.ComputeCapability)
		l.set(prefix+"minor", id.Minor)
	}
	fact(l, prefix+"mig", g.MIG, func(m *health.MIG) string {
		parts := []string{fmt.Sprintf("%d %d", bit(m.Enabled), bit(m.Pending))}
		for _, in := range m.Instances {
			parts = append(parts, fmt.Sprintf("%s:%d:%d:%d:%s", in.Profile, in.Start, in.Size, in.ID, in.UUID))
		}
		return strings.Join(parts, " ")
	})
	fact(l, prefix+"ecc", g.ECC, func(e *health.ECC) string {
		return fmt.Sprintf("%d %d %d %d", bit(e.Enabled), bit(e.Pending), e.Uncorrectable, bit(e.SRAMThreshold))
	})
	fact(l, prefix+"rows", g.Rows, func(r *health.Rows) string {
		return fmt.Sprintf("%d %d %d %d %d %d", r.Correctable, r.Uncorrectable, bit(r.RemapPending), bit(r.RemapFailed), bit(r.PagesPending), bit(r.RepairPending))
	})
	fact(l, prefix+"inforom", g.InfoROMValid, func(v *bool) string { return fmt.Sprint(bit(*v)) })
	fact(l, prefix+"nvlink", g.NVLink, func(n *health.NVLink) string { return fmt.Sprintf("%d %d", n.Active, n.Total) })
	fact(l, prefix+"fabric", g.Fabric, func(f *health.Fabric) string { return fmt.Sprintf("%d %d", f.State, f.Status) })
	fact(l, prefix+"pcie", g.PCIe, func(p *health.PCIe) string { return fmt.Sprintf("%d %d", p.Width, p.MaxWidth) })
	fact(l, prefix+"throttle", g.Throttle, func(t *uint64) string { return fmt.Sprint(*t) })
	fact(l, prefix+"recovery", g.Recovery, func(r *int) string { return fmt.Sprint(*r) })
	fact(l, prefix+"persistence", g.Persistence, func(p *bool) string { return fmt.Sprint(bit(*p)) })
}

func fact[T any](l *lines, key string, v *T, write func(*T) string) {
	if v == nil {
		l.set(key, "unsupported")
		return
	}
	l.set(key, write(v))
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
