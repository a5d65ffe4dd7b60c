//go:build cgo

package nvml

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// wantedEvents are the event types that mean trouble; of them a GPU gets those that
// it supports.
const wantedEvents = nvml.EventTypeXidCriticalError | nvml.EventTypeGpuUnavailableError | nvml.EventTypeGpuRecoveryAction

// unavailableXID is told for an event that says that a GPU is gone: XID 79, "GPU
// has fallen off the bus", is what that event means.
const unavailableXID = 79

// wholeGPU is the instance ID of events that concern the whole GPU.
const wholeGPU = 0xFFFFFFFF

// sliceMax bounds one call into the library, so that Shutdown does not wait long.
const sliceMax = 250 * time.Millisecond

// events is the event set. Its mutex lets one listener in; Shutdown raises stop and
// then takes the mutex.
type events struct {
	mu      sync.Mutex
	stop    atomic.Bool
	set     nvml.EventSet
	devices map[nvml.Device]int
}

func (e *events) enter()        { e.mu.Lock() }
func (e *events) leave()        { e.mu.Unlock() }
func (e *events) closing() bool { return e.stop.Load() }

func (e *events) close() {
	e.stop.Store(true)
	e.mu.Lock()
}

func (e *events) open() {
	e.stop.Store(false)
	e.mu.Unlock()
}

// free gives the set back. The caller holds the mutex and the library is up.
func (e *events) free() {
	if e.set != nil {
		e.set.Free()
	}
	e.set, e.devices = nil, nil
}

// register makes the set and adds every GPU. A GPU that cannot be added, a lost one
// for example, is told by its own checks.
func (e *events) register(l *Library) error {
	if !l.has("nvmlEventSetCreate") || !l.has("nvmlDeviceRegisterEvents") || !l.has("nvmlEventSetFree") ||
		(!l.has("nvmlEventSetWait_v2") && !l.has("nvmlEventSetWait")) {
		return agent.NewError(agent.NotSupported, "nvmlEventSetCreate", "the library has no events")
	}
	n, ret := l.nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetCount", ret)
	}
	set, ret := l.nvml.EventSetCreate()
	if ret != nvml.SUCCESS {
		return convert("nvmlEventSetCreate", ret)
	}
	e.set, e.devices = set, map[nvml.Device]int{}
	for i := range n {
		device, ret := l.nvml.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		mask := uint64(nvml.EventTypeXidCriticalError)
		if l.has("nvmlDeviceGetSupportedEventTypes") {
			if supported, ret := device.GetSupportedEventTypes(); ret == nvml.SUCCESS {
				mask = supported & wantedEvents
			}
		}
		if mask != 0 && device.RegisterEvents(mask, set) == nvml.SUCCESS {
			e.devices[device] = i
		}
	}
	if len(e.devices) == 0 {
		e.free()
		return agent.NewError(agent.NotSupported, "nvmlDeviceRegisterEvents", "no GPU takes listeners now")
	}
	return nil
}

// wait returns the first event within the timeout, in slices.
func (e *events) wait(l *Library, timeout time.Duration) ([]health.XIDEvent, error) {
	if e.set == nil {
		if err := e.register(l); err != nil {
			return nil, err
		}
	}
	for left := timeout; left > 0 && !e.closing(); left -= sliceMax {
		data, ret := e.set.Wait(uint32(min(left, sliceMax).Milliseconds()))
		switch ret {
		case nvml.SUCCESS:
			if event, ok := e.event(data); ok {
				return []health.XIDEvent{event}, nil
			}
		case nvml.ERROR_TIMEOUT:
		default:
			e.free() // a set with a lost GPU may never work again
			return nil, convert("nvmlEventSetWait", ret)
		}
	}
	return nil, nil
}

// event turns NVML's event into ours. A change of the recovery action carries no
// XID: it only ends the wait, and the next sample reads the action.
func (e *events) event(data nvml.EventData) (health.XIDEvent, bool) {
	index, ok := e.devices[data.Device]
	if !ok {
		index = -1
	}
	event := health.XIDEvent{Code: int(data.EventData), GPU: index, GI: -1}
	if data.GpuInstanceId != wholeGPU {
		event.GI = int(data.GpuInstanceId)
	}
	switch data.EventType {
	case nvml.EventTypeXidCriticalError:
		return event, true
	case nvml.EventTypeGpuUnavailableError:
		event.Code = unavailableXID
		return event, true
	default:
		return event, false
	}
}
