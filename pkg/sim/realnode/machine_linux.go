package realnode

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/guest"
)

const (
	// maxSocketPath is the kernel's limit of a Unix socket's path.
	maxSocketPath = 107
	bootTimeout   = 90 * time.Second
	powerOffTime  = 20 * time.Second
	pollInterval  = 50 * time.Millisecond
)

// Options make a Machine. Guest, Kubelet and API are needed.
type Options struct {
	// Dir holds the machine's disk and logs. It must not be in use. Empty means a temporary
	// directory that Stop removes.
	Dir string
	// Guest and Kubelet are the paths of the programs, see `make guest` and `make kubelet`.
	Guest, Kubelet string
	// API is the control plane that the node joins.
	API API
	// Images are on the machine's disk from the start, as in a machine image. The pause image is
	// added.
	Images []Image
	// Seed makes boot IDs.
	Seed int64
	// Clock is the real one when nil.
	Clock clock.Clock
}

// API is what a machine needs of the control plane. A controlplane.ControlPlane is one.
type API interface {
	// URL is where kube-apiserver listens.
	URL() string
	// AddUser returns credentials.
	AddUser(name string, groups ...string) (*rest.Config, error)
}

// Machine is a computer that is on or off. Its methods may be called from several goroutines.
type Machine struct {
	opts    Options
	cni     string
	spec    guest.Spec
	address string // of kube-apiserver
	init    *remote
	archive map[string]string // image archives below shared, by image
	undo    controlplane.Undo

	mu       sync.Mutex
	process  *controlplane.Process // nil while off
	boots    int
	identity Identity
	imported bool // the disk has the images
}

// New checks what the host has and makes a machine that is off. Stop undoes it.
func New(opts Options) (*Machine, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if err := Check(); err != nil {
		return nil, err
	}
	m := &Machine{opts: opts, archive: map[string]string{}}
	if err := m.prepare(); err != nil {
		return nil, errors.Join(err, m.Stop(context.Background()))
	}
	return m, nil
}

func (m *Machine) prepare() (err error) {
	if m.cni, err = cniDir(); err != nil {
		return err
	}
	if err := guest.SweepStale(m.opts.Clock); err != nil {
		return fmt.Errorf("cleaning up after machines that were killed, %w", err)
	}
	if err := m.prepareDir(); err != nil {
		return err
	}
	api, err := url.Parse(m.opts.API.URL())
	if err != nil {
		return fmt.Errorf("finding the API server, %w", err)
	}
	m.address = api.Host
	m.init = newRemote(m.path(guest.ControlSocket))
	if err := m.relayAPI(); err != nil {
		return err
	}
	pause := Image{Name: PauseImage, Files: map[string]string{"/guest": m.opts.Guest}, Entrypoint: []string{"/guest", "pause"}}
	for _, image := range append([]Image{pause}, m.opts.Images...) {
		path, err := image.WriteTo(m.path("images"))
		if err != nil {
			return err
		}
		m.archive[image.Name] = filepath.Join("images", filepath.Base(path))
	}
	return nil
}

func (m *Machine) prepareDir() (err error) {
	if m.opts.Dir == "" {
		if m.opts.Dir, err = os.MkdirTemp("", "kgnode-"); err != nil {
			return fmt.Errorf("creating a directory for the machine, %w", err)
		}
		m.undo.Add(func(context.Context) error { return os.RemoveAll(m.opts.Dir) })
	}
	if m.opts.Dir, err = filepath.Abs(m.opts.Dir); err != nil {
		return fmt.Errorf("resolving the machine's directory, %w", err)
	}
	m.spec = guest.Spec{
		Dir: m.opts.Dir, Programs: map[string]string{"guest": m.opts.Guest, "kubelet": m.opts.Kubelet},
		Forward: map[string]string{net.JoinHostPort(serviceAddress, "443"): inMachine("api.sock")},
	}
	if socket := m.path(guest.ControlSocket); len(socket) > maxSocketPath {
		return fmt.Errorf("the machine's directory %s is too long for sockets below it, by %d bytes: choose a shorter one", m.opts.Dir, len(socket)-maxSocketPath)
	}
	if other, err := net.Dial("unix", m.path(guest.ControlSocket)); err == nil {
		return errors.Join(fmt.Errorf("the machine's directory %s is that of a machine that is on: power that one off, or choose another directory", m.opts.Dir), other.Close())
	}
	for _, path := range m.spec.Programs {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("finding a program of the machine, %w: run `make guest kubelet`", err)
		}
	}
	for _, dir := range []string{m.path("logs"), m.path("images"), m.path("config/cni"), m.path("gpu"), m.path("plugin"), filepath.Join(m.opts.Dir, "root")} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // containers of other users read it
			return fmt.Errorf("making the machine's directory, %w", err)
		}
	}
	return m.formatDisk()
}

// formatDisk makes what a fresh disk has.
func (m *Machine) formatDisk() error {
	for _, dir := range []string{"lib", "log", "cache", "tmp"} {
		if err := os.MkdirAll(filepath.Join(m.spec.Disk(), dir), 0o755); err != nil { //nolint:gosec // as /var is
			return fmt.Errorf("formatting the machine's disk, %w", err)
		}
	}
	return nil
}

// relayAPI makes the API server, which listens on the host's loopback, a Unix socket: the
// machine has a loopback of its own.
func (m *Machine) relayAPI() error {
	path := m.path("api.sock")
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("removing an old socket, %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("relaying to the API server, %w", err)
	}
	m.undo.Add(func(context.Context) error { return listener.Close() })
	go guest.Relay(listener, func() (net.Conn, error) { return net.Dial("tcp", m.address) })
	return nil
}

// path is a file of the directory that machine and host share.
func (m *Machine) path(name string) string { return filepath.Join(m.spec.Shared(), name) }

// PowerOn boots the machine, with a new boot ID, and starts the kubelet as the identity says. A
// machine that is on stays as it is.
func (m *Machine) PowerOn(ctx context.Context, id Identity) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil {
		return nil
	}
	if err := m.boot(ctx, id); err != nil {
		return errors.Join(err, m.powerOff(context.WithoutCancel(ctx)))
	}
	m.identity = id
	return nil
}

func (m *Machine) boot(ctx context.Context, id Identity) error {
	m.boots++
	spec := m.spec
	spec.Hostname, spec.Addresses = id.Name, []string{serviceAddress, id.Address}
	spec.BootID = bootID(m.opts.Seed, m.boots)
	spec.Services = []guest.Service{{Name: "containerd", Args: []string{"/usr/bin/containerd", "--config=" + inMachine("config/containerd.toml")}}}
	file := filepath.Join(m.opts.Dir, "machine.json")
	if err := errors.Join(spec.Write(file), m.configure(id)); err != nil {
		return err
	}
	process, err := controlplane.StartProcess(ctx, controlplane.ProcessSpec{
		Name: "machine", Path: m.opts.Guest, Args: []string{"supervise", file}, LogFile: m.path("logs/machine.log"),
		Ready: m.ready, StartTimeout: bootTimeout, StopTimeout: powerOffTime,
	})
	if err != nil {
		return err
	}
	m.process = process
	if err := m.importImages(ctx); err != nil {
		return err
	}
	if err := m.plugInGPUs(ctx); err != nil {
		return err
	}
	return m.init.post(ctx, "/services", guest.Service{Name: "kubelet", Args: kubeletArguments(id)}, nil)
}

// ready asks containerd, through init.
func (m *Machine) ready(ctx context.Context) error {
	result, err := m.init.run(ctx, "/usr/bin/ctr", "--address", guest.ContainerdSocket, "version")
	if err == nil && result.Code != 0 {
		err = errors.New(result.Output)
	}
	return err
}

// configure writes what the machine's software reads.
func (m *Machine) configure(id Identity) error {
	credentials, err := m.opts.API.AddUser("system:node:"+id.Name, "system:nodes")
	if err != nil {
		return err
	}
	credentials.Host = "https://" + serviceAddress
	texts := map[string]func() (string, error){
		"config/containerd.toml":      func() (string, error) { return containerdConfig(m.cni) },
		"config/cni/10-pods.conflist": cniConfig,
		"config/kubelet.json":         func() (string, error) { return kubeletConfig(id) },
	}
	for name, text := range texts {
		data, err := text()
		if err != nil {
			return err
		}
		if err := os.WriteFile(m.path(name), []byte(data), 0o600); err != nil {
			return fmt.Errorf("configuring the machine, %w", err)
		}
	}
	return controlplane.WriteKubeconfig(m.path("config/kubelet.kubeconfig"), credentials)
}

// importImages fills the disk once: containerd keeps images over a reboot.
func (m *Machine) importImages(ctx context.Context) error {
	if m.imported {
		return nil
	}
	for name, archive := range m.archive {
		if err := m.runLocked(ctx, "/usr/bin/ctr", "--address", guest.ContainerdSocket, "--namespace", "k8s.io", "images", "import", inMachine(archive)); err != nil {
			return fmt.Errorf("importing image %s, %w", name, err)
		}
	}
	m.imported = true
	return nil
}

// bootID is a UUID of version 4 by its form.
func bootID(seed int64, boot int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d", seed, boot))
	sum[6], sum[8] = sum[6]&0x0f|0x40, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// PowerOff shuts the machine down: kubelet and containerd are told to end, and everything else
// ends with the machine. Its disk stays. A machine that is off stays so.
func (m *Machine) PowerOff(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.powerOff(ctx)
}

func (m *Machine) powerOff(ctx context.Context) error {
	if m.process == nil {
		return nil
	}
	process := m.process
	m.process = nil
	if err := process.Stop(ctx); err != nil {
		return fmt.Errorf("powering the machine off, %w", err)
	}
	return process.Wait(ctx)
}

// Reboot powers the machine off and on again.
func (m *Machine) Reboot(ctx context.Context) error {
	m.mu.Lock()
	id := m.identity
	m.mu.Unlock()
	if err := m.PowerOff(ctx); err != nil {
		return err
	}
	return m.PowerOn(ctx, id)
}

// Wipe empties the disk of a machine that is off, as for another tenant.
func (m *Machine) Wipe() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil {
		return errors.New("wiping the machine's disk, the machine is on: power it off first")
	}
	if err := os.RemoveAll(m.spec.Disk()); err != nil {
		return fmt.Errorf("wiping the machine's disk, %w", err)
	}
	m.imported = false
	return m.formatDisk()
}

// Stop powers the machine off and undoes New. Stopping twice is harmless.
func (m *Machine) Stop(ctx context.Context) error {
	return errors.Join(m.PowerOff(ctx), m.undo.Run(ctx))
}
