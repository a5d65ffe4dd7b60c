//go:build cgo

package nvml

import (
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// Library is NVML loaded with dlopen.
type Library struct {
	nvml nvml.Interface
	path string

	// mu is held for reading by every call into the library and for writing while
	// it is loaded or unloaded, so that no code is unmapped under a call.
	mu sync.RWMutex
	up bool
	// symbols caches which optional functions the library has. Guarded by symbolsMu.
	symbolsMu sync.Mutex
	symbols   map[string]bool

	events events
}

var _ agent.Library = (*Library)(nil)

// New returns the library at a path; an empty path leaves the search to dlopen,
// under the name libnvidia-ml.so.1. Nothing is loaded before Init. go-nvml keeps
// some state for the process, so make one Library only.
func New(path string) agent.Library {
	var opts []nvml.LibraryOption
	if path != "" {
		opts = append(opts, nvml.WithLibraryPath(path))
	}
	return &Library{nvml: nvml.New(opts...), path: path, symbols: map[string]bool{}}
}

// Init implements agent.Driver.
func (l *Library) Init() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up {
		return nil
	}
	if err := preflight(l.path); err != nil {
		return err
	}
	if ret := l.nvml.Init(); ret != nvml.SUCCESS {
		return convert("nvmlInit", ret)
	}
	clear(l.symbols)
	for _, symbol := range required {
		if !l.has(symbol) {
			l.nvml.Shutdown()
			return agent.NewError(agent.LibraryMissing, symbol, "the library lacks "+symbol)
		}
	}
	l.up = true
	return nil
}

// Shutdown implements agent.Driver. It waits for the listener, which yields within
// its slice, and refuses while any other call is in flight: one of those may hang.
func (l *Library) Shutdown() error {
	l.events.close()
	defer l.events.open()
	if !l.mu.TryLock() {
		return agent.NewError(agent.InUse, "nvmlShutdown", "calls are in flight")
	}
	defer l.mu.Unlock()
	if !l.up {
		return nil
	}
	l.events.free()
	if ret := l.nvml.Shutdown(); ret != nvml.SUCCESS {
		return convert("nvmlShutdown", ret)
	}
	l.up = false
	return nil
}

// Node implements agent.Driver.
func (l *Library) Node() (agent.Node, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.up {
		return agent.Node{}, uninitialized("nvmlDeviceGetCount")
	}
	var out agent.Node
	if v, ret := l.nvml.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		out.DriverVersion = v
	}
	if l.has("nvmlSystemGetNVMLVersion") {
		if v, ret := l.nvml.SystemGetNVMLVersion(); ret == nvml.SUCCESS {
			out.LibraryVersion = v
		}
	}
	if l.has("nvmlSystemGetCudaDriverVersion_v2") {
		if v, ret := l.nvml.SystemGetCudaDriverVersion_v2(); ret == nvml.SUCCESS {
			out.CUDAVersion = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
		}
	}
	n, ret := l.nvml.DeviceGetCount()
	if ret == nvml.ERROR_GPU_NOT_FOUND {
		return out, nil
	}
	out.GPUs = n
	return out, convert("nvmlDeviceGetCount", ret)
}

// Observe implements agent.Prober.
func (l *Library) Observe(check health.Check, index int) (health.GPU, error) {
	out := health.GPU{Index: index}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.up {
		return out, uninitialized("nvmlDeviceGetHandleByIndex")
	}
	probe, ok := probes[check]
	if !ok {
		return out, agent.NewError(agent.NotSupported, string(check), "")
	}
	device, ret := l.nvml.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return out, convert("nvmlDeviceGetHandleByIndex", ret)
	}
	return out, probe(l, device, &out)
}

// Wait implements agent.Listener.
func (l *Library) Wait(timeout time.Duration) ([]health.XIDEvent, error) {
	l.events.enter()
	defer l.events.leave()
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.up || l.events.closing() {
		return nil, uninitialized("nvmlEventSetWait")
	}
	return l.events.wait(l, timeout)
}

// has reports whether the library has a function. The required functions
// are called without asking.
func (l *Library) has(symbol string) bool {
	l.symbolsMu.Lock()
	defer l.symbolsMu.Unlock()
	known, ok := l.symbols[symbol]
	if !ok {
		known = l.nvml.Extensions().LookupSymbol(symbol) == nil
		l.symbols[symbol] = known
	}
	return known
}

func uninitialized(call string) error {
	return agent.NewError(agent.Uninitialized, call, "the library is not initialized")
}

var codes = map[nvml.Return]agent.Code{
	nvml.ERROR_NOT_SUPPORTED:             agent.NotSupported,
	nvml.ERROR_FUNCTION_NOT_FOUND:        agent.NotSupported,
	nvml.ERROR_ARGUMENT_VERSION_MISMATCH: agent.NotSupported,
	nvml.ERROR_DRIVER_NOT_LOADED:         agent.DriverNotLoaded,
	nvml.ERROR_LIBRARY_NOT_FOUND:         agent.LibraryMissing,
	nvml.ERROR_LIB_RM_VERSION_MISMATCH:   agent.VersionMismatch,
	nvml.ERROR_UNINITIALIZED:             agent.Uninitialized,
	nvml.ERROR_GPU_IS_LOST:               agent.GPULost,
	nvml.ERROR_RESET_REQUIRED:            agent.ResetRequired,
	nvml.ERROR_IN_USE:                    agent.InUse,
}

// convert turns a return code into an error; nil for success. The text is our own:
// nvmlErrorString is one more call that could be missing.
func convert(call string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	code, ok := codes[ret]
	if !ok {
		code = agent.OtherError
	}
	return agent.NewError(code, call, fmt.Sprintf("NVML error %d", int(ret)))
}
