package realnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/deviceplugin"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/guest"
)

const (
	nvidiaMajor  = "195"
	controlMinor = "255"
)

// GPUDir is where a machine has the driver's files: the directory for driver.hostRoot of the
// agent's chart.
var GPUDir = inMachine(guest.GPUDir)

// PluginDir is where a machine has the device plugin's script and record.
var PluginDir = inMachine("plugin")

// GPUs are what is plugged into a machine, and its driver.
type GPUs struct {
	// Library is the fake libnvidia-ml.so.1 on the host, by nvml.Build; empty is a machine
	// without one.
	Library string
	// LibraryDir is where NVIDIA's runtime puts it in containers.
	LibraryDir string
	// Loaded says that the kernel module is. Without it there are no device nodes, NVIDIA's
	// runtime makes no containers, and NVML does not initialize.
	Loaded bool
	// Machine is what NVML says.
	Machine nvml.Machine
}

// SetGPUs changes GPUs and driver, of a machine that is on or off. They stay over a reboot.
func (m *Machine) SetGPUs(ctx context.Context, g GPUs) error {
	if err := m.writeGPUs(g); err != nil {
		return fmt.Errorf("changing the machine's GPUs, %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return nil
	}
	return m.plugInGPUs(ctx)
}

func (m *Machine) writeGPUs(g GPUs) error {
	dir := m.path(guest.GPUDir)
	library := filepath.Join(dir, guest.LibraryFile)
	if err := os.Remove(library); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if g.Library != "" {
		data, err := os.ReadFile(g.Library)
		if err != nil {
			return err
		}
		if err := os.WriteFile(library, data, 0o755); err != nil { //nolint:gosec // containers of other users load it
			return err
		}
	}
	if err := g.Machine.WriteConfig(filepath.Join(dir, guest.NVMLFile)); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(dir, guest.NVMLFile), 0o644); err != nil { //nolint:gosec // containers of other users read it
		return err
	}
	data, err := json.Marshal(guest.Driver{Loaded: g.Loaded, Minors: minors(g.Machine), LibraryDir: g.LibraryDir})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, guest.DriverFile), data, 0o600)
}

// minors names each GPU by index and UUID, and each partition by the UUID of its own.
func minors(machine nvml.Machine) map[string]int {
	out := map[string]int{}
	for i, gpu := range machine.GPUs {
		if gpu.Identity == nil {
			continue
		}
		out[strconv.Itoa(i)], out[gpu.Identity.UUID] = gpu.Identity.Minor, gpu.Identity.Minor
		if gpu.MIG == nil {
			continue
		}
		for _, instance := range gpu.MIG.Instances {
			out[instance.UUID] = gpu.Identity.Minor
		}
	}
	return out
}

// plugInGPUs makes the device nodes of a loaded driver, and takes away those of one that is not.
func (m *Machine) plugInGPUs(ctx context.Context) error {
	data, err := os.ReadFile(filepath.Join(m.path(guest.GPUDir), guest.DriverFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var driver guest.Driver
	if err == nil {
		err = json.Unmarshal(data, &driver)
	}
	if err != nil {
		return fmt.Errorf("reading the driver's state, %w", err)
	}
	nodes := map[string]string{"nvidiactl": controlMinor}
	for _, minor := range driver.Minors {
		nodes["nvidia"+strconv.Itoa(minor)] = strconv.Itoa(minor)
	}
	if err := m.runLocked(ctx, "/usr/bin/find", "/dev", "-maxdepth", "1", "-name", "nvidia*", "-delete"); err != nil {
		return err
	}
	if !driver.Loaded {
		return nil
	}
	for name, minor := range nodes {
		if err := m.runLocked(ctx, "/usr/bin/mknod", "-m", "666", "/dev/"+name, "c", nvidiaMajor, minor); err != nil {
			return err
		}
	}
	return nil
}

// SetPlugin gives the device plugin a script.
func (m *Machine) SetPlugin(s deviceplugin.Script) error { return s.Write(m.path("plugin")) }

// PluginRecord is what the kubelet has asked of the device plugin since the machine was made.
func (m *Machine) PluginRecord() ([]deviceplugin.Entry, error) {
	return deviceplugin.Record(m.path("plugin"))
}

// WholeGPUs are the devices of nvidia.com/gpu on an unpartitioned machine; those of the indices
// in unhealthy are so.
func WholeGPUs(machine nvml.Machine, unhealthy ...int) (devices []deviceplugin.Device) {
	for i, gpu := range machine.GPUs {
		if gpu.Identity != nil {
			devices = append(devices, deviceplugin.Device{ID: gpu.Identity.UUID, Unhealthy: slices.Contains(unhealthy, i)})
		}
	}
	return devices
}
