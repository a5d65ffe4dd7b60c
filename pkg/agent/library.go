package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// Driver brings NVML up and down and describes the node as a whole.
type Driver interface {
	// Init loads and initializes the library. It may be called again after an
	// error and after Shutdown.
	Init() error
	// Shutdown undoes Init. It is an error while calls are in flight.
	Shutdown() error
	// Node returns versions and the number of GPUs. Versions that are unknown are
	// empty; an error means that the GPUs could not be counted.
	Node() (Node, error)
}

// Prober observes one GPU.
type Prober interface {
	// Observe makes the calls of one check and returns a GPU with the facts of
	// that check alone. NotSupported means that the GPU or the library lacks it.
	Observe(check health.Check, index int) (health.GPU, error)
}

// Listener waits for XID errors, which exist only while somebody listens.
type Listener interface {
	// Wait returns the next events, or none after the timeout. It returns at
	// once with an error when the library is not initialized.
	Wait(timeout time.Duration) ([]health.XIDEvent, error)
}

// Library is all that the agent asks of NVML. Its methods may be called from many
// goroutines, and any of them may block for ever.
type Library interface {
	Driver
	Prober
	Listener
}

// Node is what the library says of the node as a whole.
type Node struct {
	DriverVersion, LibraryVersion, CUDAVersion string
	GPUs                                       int
}

// Host is the machine apart from its GPUs.
type Host interface {
	// BootID is the kernel's random ID of this boot.
	BootID() (string, error)
	// KernelModule is the version of the loaded NVIDIA module; empty for none.
	KernelModule() string
	// MissingDeviceNodes lists device files that should exist for GPUs with
	// these minor numbers and do not, sorted.
	MissingDeviceNodes(minors []int) []string
}

// Code is an error of NVML, converted once where NVML is called.
type Code string

// The codes that the agent tells apart.
const (
	NotSupported    Code = "NotSupported"
	DriverNotLoaded Code = "DriverNotLoaded"
	LibraryMissing  Code = "LibraryMissing"
	VersionMismatch Code = "VersionMismatch"
	Uninitialized   Code = "Uninitialized"
	GPULost         Code = "GPULost"
	ResetRequired   Code = "ResetRequired"
	InUse           Code = "InUse"
	OtherError      Code = "Other"
	// Hanging is the agent's own: the call did not return before its deadline.
	Hanging Code = "Hanging"
)

// Error is a call that failed.
type Error struct {
	Code Code
	// Call is the function of NVML, or what the agent was doing.
	Call   string
	Detail string
}

// NewError returns an Error.
func NewError(code Code, call, detail string) error {
	return &Error{Code: code, Call: call, Detail: detail}
}

// Error implements error.
func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("%s, %s", e.Call, e.Code)
	}
	return fmt.Sprintf("%s, %s", e.Call, e.Detail)
}

// CodeOf returns the code of an error: empty for nil, OtherError for an error that
// is no *Error.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return OtherError
}
