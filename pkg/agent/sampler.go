package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// Defaults of SamplerOptions.
const (
	// DefaultDeadline is longer than the slowest call of a healthy driver, the
	// InfoROM's checksum and the first call after idling without persistence.
	DefaultDeadline = 2 * time.Second
	// DefaultStuckLimit bounds the threads that a wedged driver can hold.
	DefaultStuckLimit = 16
	// parallelGPUs bounds how many GPUs are probed at once.
	parallelGPUs = 8
)

// SamplerOptions are the sampler's settings. Zero values mean the defaults.
type SamplerOptions struct {
	// Deadline is how long each probe may take whose check has no timeout of its own.
	Deadline time.Duration
	// StuckLimit is how many calls may hang before no more are made.
	StuckLimit int
}

// Sampler takes samples. Only one Sample call may run at a time.
type Sampler struct {
	lib      Library
	host     Host
	calls    *caller
	deadline time.Duration
	up       bool
}

// NewSampler returns a Sampler of a library that is not initialized yet.
func NewSampler(lib Library, host Host, clk clock.Clock, opts SamplerOptions) *Sampler {
	if opts.Deadline == 0 {
		opts.Deadline = DefaultDeadline
	}
	if opts.StuckLimit == 0 {
		opts.StuckLimit = DefaultStuckLimit
	}
	return &Sampler{lib: lib, host: host, calls: newCaller(clk, opts.StuckLimit), deadline: opts.Deadline}
}

// Sample looks at the node once, at the checks that are on and within their
// timeouts. The first call of a GPU that hangs ends the round for that GPU, so that
// Sample returns within the timeouts of the driver, the count and one check per
// GPU, whatever the driver does.
func (s *Sampler) Sample(ctx context.Context, p health.Policy) health.Sample {
	var out health.Sample
	if id, err := s.host.BootID(); err == nil {
		out.BootID = id
	}
	if err := s.init(ctx, p); err != nil {
		s.fail(&out, health.CheckDriver, err)
		return out
	}
	node, err := call(ctx, s.calls, p.Timeout(health.CheckGPUCount, s.deadline), "node", s.lib.Node)
	out.DriverVersion, out.LibraryVersion, out.CUDAVersion = node.DriverVersion, node.LibraryVersion, node.CUDAVersion
	if err != nil {
		s.fail(&out, health.CheckGPUCount, err)
		s.restart(ctx, err)
		return out
	}
	out.Driver = health.DriverReady
	s.gpus(ctx, p, node.GPUs, &out)
	s.deviceNodes(ctx, p, &out)
	return out
}

func (s *Sampler) init(ctx context.Context, p health.Policy) error {
	if s.up {
		return nil
	}
	_, err := call(ctx, s.calls, p.Timeout(health.CheckDriver, s.deadline), "init", func() (struct{}, error) { return struct{}{}, s.lib.Init() })
	s.up = err == nil
	return err
}

// restart gives up an initialized library that lost its driver, so that the next
// sample starts afresh: a driver that was reloaded needs a new start.
func (s *Sampler) restart(ctx context.Context, err error) {
	if code := CodeOf(err); code == Hanging || code == NotSupported {
		return
	}
	if err := s.Close(ctx); err == nil {
		s.up = false
	}
}

// Close shuts the library down.
func (s *Sampler) Close(ctx context.Context) error {
	if !s.up {
		return nil
	}
	_, err := call(ctx, s.calls, s.deadline, "shutdown", func() (struct{}, error) { return struct{}{}, s.lib.Shutdown() })
	return err
}

// driverStates maps errors of initialization.
var driverStates = map[Code]health.DriverState{
	DriverNotLoaded: health.DriverAbsent,
	LibraryMissing:  health.DriverNoLibrary,
	VersionMismatch: health.DriverMismatched,
	Hanging:         health.DriverUnknown,
	NotSupported:    health.DriverReady,
}

// fail records a failure of the node as a whole.
func (s *Sampler) fail(out *health.Sample, check health.Check, err error) {
	state, known := driverStates[CodeOf(err)]
	if !known {
		state = health.DriverBroken
	}
	out.Driver, out.DriverDetail = state, err.Error()
	if module := s.host.KernelModule(); module != "" {
		out.DriverDetail += ", kernel module " + module
	}
	if state == health.DriverUnknown || state == health.DriverReady {
		out.Probes = append(out.Probes, probeOf(check, -1, err))
	}
}

func probeOf(check health.Check, gpu int, err error) health.Probe {
	p := health.Probe{Check: check, GPU: gpu, Outcome: health.Errored, Detail: err.Error()}
	switch CodeOf(err) {
	case NotSupported:
		p.Outcome, p.Detail = health.Unsupported, ""
	case Hanging:
		p.Outcome = health.TimedOut
	default:
	}
	return p
}

// gpus probes all GPUs at once and keeps their order.
func (s *Sampler) gpus(ctx context.Context, p health.Policy, n int, out *health.Sample) {
	out.GPUs = make([]health.GPU, n)
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(parallelGPUs)
	for i := range n {
		group.Go(func() error {
			gpu, probes := s.gpu(ctx, p, i)
			mu.Lock()
			defer mu.Unlock()
			out.GPUs[i] = gpu
			out.Probes = append(out.Probes, probes...)
			return nil
		})
	}
	_ = group.Wait() // the lanes return no errors
	slices.SortStableFunc(out.Probes, func(a, b health.Probe) int { return a.GPU - b.GPU })
}

// gpu probes one GPU, check by check, until one hangs or the GPU is lost.
func (s *Sampler) gpu(ctx context.Context, p health.Policy, index int) (health.GPU, []health.Probe) {
	gpu := health.GPU{Index: index}
	var probes []health.Probe
	for _, c := range health.Checks() {
		if !c.PerGPU || !wanted(p, c.Check) {
			continue
		}
		name := fmt.Sprintf("%s of gpu %d", c.Check, index)
		seen, err := call(ctx, s.calls, p.Timeout(c.Check, s.deadline), name, func() (health.GPU, error) { return s.lib.Observe(c.Check, index) })
		switch CodeOf(err) {
		case "":
			gpu.Merge(seen)
		case GPULost:
			gpu.Lost = true
		case ResetRequired:
			reset := 1
			gpu.Recovery = &reset
		default:
			probes = append(probes, probeOf(c.Check, index, err))
		}
		if gpu.Lost || CodeOf(err) == Hanging {
			break
		}
	}
	return gpu, probes
}

// wanted keeps the probes whose facts the report carries, even when their check
// is not judged.
func wanted(p health.Policy, c health.Check) bool {
	return c == health.CheckGPUModel || c == health.CheckMIG || p.Enabled(c)
}

func (s *Sampler) deviceNodes(ctx context.Context, p health.Policy, out *health.Sample) {
	if !p.Enabled(health.CheckDeviceNodes) {
		return
	}
	var minors []int
	for _, g := range out.GPUs {
		if g.Identity != nil {
			minors = append(minors, g.Identity.Minor)
		}
	}
	missing, err := call(ctx, s.calls, p.Timeout(health.CheckDeviceNodes, s.deadline), "device nodes", func() ([]string, error) {
		return s.host.MissingDeviceNodes(minors), nil
	})
	if err != nil {
		out.Probes = append(out.Probes, probeOf(health.CheckDeviceNodes, -1, err))
		return
	}
	out.MissingDeviceNodes = missing
}
