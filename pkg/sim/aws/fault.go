package aws

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// FaultKind is what goes wrong.
type FaultKind string

const (
	// CapacityFault limits a pool to Left further instances; those it admits give
	// their place back when they end.
	CapacityFault FaultKind = "capacity"
	// LaunchFault lets launches in a pool fail with Code.
	LaunchFault FaultKind = "launch"
	// BootFault lets instances of a pool boot after Delay, or never.
	BootFault FaultKind = "boot"
	// APIFault lets calls of an operation fail with Code, RequestLimitExceeded by default.
	APIFault FaultKind = "api"
	// DropFault lets an operation take effect and loses its answer.
	DropFault FaultKind = "drop"
)

// Fault is something that goes wrong until it is cleared, its time is over or it
// has happened often enough.
type Fault struct {
	// ID is given by AddFault.
	ID   string    `json:"id,omitempty"`
	Kind FaultKind `json:"kind"`
	// Pool is whom capacity, launch and boot faults hit: everything by default.
	Pool
	// Operation is whom api and drop faults hit, such as CreateFleet or Describe*.
	Operation string `json:"operation,omitempty"`
	// Left is the room of a capacity fault: 0 is none.
	Left int `json:"left,omitempty"`
	// Count is how often launch, boot, api and drop faults happen; 0 is without end.
	Count int `json:"count,omitempty"`
	// Rate hits that part of the calls, evenly spread: 0.25 is every fourth. 0 hits all.
	Rate float64 `json:"rate,omitempty"`
	// Code and Message are the error. A capacity fault has EC2's own by default.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Never keeps instances of a boot fault from booting; otherwise Delay is their boot time.
	Never bool     `json:"never,omitempty"`
	Delay Duration `json:"delay,omitempty"`
	// For ends the fault that long after AddFault, Until at a time; both unset: not by itself.
	For   Duration   `json:"for,omitempty"`
	Until *time.Time `json:"until,omitempty"`

	// Hits is how often it has happened; calls that Rate let pass are in Passed.
	Hits   int     `json:"hits,omitempty"`
	Passed float64 `json:"passed,omitempty"`
}

// Duration is a time.Duration that JSON and YAML write as "90s".
type Duration time.Duration

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration such as 90s.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("parsing duration %q, write one such as 90s", text)
	}
	*d = Duration(parsed)
	return nil
}

func (f *Fault) validate() error {
	errs := []error{f.validateKind()}
	if f.Left < 0 || f.Count < 0 || f.Delay < 0 || f.For < 0 {
		errs = append(errs, fmt.Errorf("left %d, count %d, delay and for must not be negative", f.Left, f.Count))
	}
	if !(f.Rate >= 0 && f.Rate <= 1) {
		errs = append(errs, fmt.Errorf("rate %v is not between 0 and 1", f.Rate))
	}
	matches := func(capacityType string) bool { return matchOr(f.CapacityType, capacityType) }
	if !slices.ContainsFunc([]string{OnDemand, Spot, Reserved}, matches) {
		errs = append(errs, fmt.Errorf("capacityType %q matches none of on-demand, spot, reserved", f.CapacityType))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("adding a fault, %w", err)
	}
	return nil
}

// validateKind checks what each kind needs.
func (f *Fault) validateKind() error {
	switch f.Kind {
	case CapacityFault, BootFault:
		return nil
	case LaunchFault:
		if f.Code == "" {
			return errors.New("a launch fault needs code, such as InsufficientInstanceCapacity")
		}
		return nil
	case APIFault, DropFault:
		if f.Operation == "" {
			return fmt.Errorf("a fault of kind %s needs operation, such as CreateFleet or *", f.Kind)
		}
		return nil
	default:
		return fmt.Errorf("kind %q is none of capacity, launch, boot, api, drop", f.Kind)
	}
}

// AddFault begins a fault and returns its ID.
func (s *Server) AddFault(f Fault) (string, error) {
	if err := f.validate(); err != nil {
		return "", err
	}
	err := s.update(func() error {
		f.ID, f.Hits, f.Passed = s.id("fault-"), 0, 0
		if f.For > 0 {
			until := s.opts.Clock.Now().Add(time.Duration(f.For))
			f.Until = &until
		}
		s.st.Faults = append(s.st.Faults, &f)
		return nil
	})
	return f.ID, err
}

// ClearFault ends a fault. What it has done to instances stays.
func (s *Server) ClearFault(id string) error {
	return s.update(func() error {
		n := slices.IndexFunc(s.st.Faults, func(f *Fault) bool { return f.ID == id })
		if n < 0 {
			return fmt.Errorf("clearing fault %q, there is none with this id", id)
		}
		s.st.Faults = slices.Delete(s.st.Faults, n, n+1)
		return nil
	})
}

// ClearFaults ends all faults of a kind, all faults where kind is empty.
func (s *Server) ClearFaults(kind FaultKind) error {
	return s.update(func() error {
		s.st.Faults = slices.DeleteFunc(s.st.Faults, func(f *Fault) bool { return kind == "" || f.Kind == kind })
		return nil
	})
}

// Faults are copies of those in force, oldest first.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Fault{}
	for _, f := range s.st.Faults {
		if !f.over(s.opts.Clock.Now()) {
			out = append(out, *f)
		}
	}
	return out
}

func (f *Fault) over(now time.Time) bool {
	return reached(f.Until, now) || f.Kind != CapacityFault && f.Count > 0 && f.Hits >= f.Count
}

// happens decides whether a fault that matches strikes now, and counts it.
func (f *Fault) happens() bool {
	if f.Rate > 0 {
		f.Passed += f.Rate
		if f.Passed < 1-1e-9 {
			return false
		}
		f.Passed--
	}
	f.Hits++
	return true
}

// strike is the first fault of a kind in force that matches and happens.
func (s *Server) strike(kind FaultKind, matches func(*Fault) bool) *Fault {
	now := s.opts.Clock.Now()
	for _, f := range s.st.Faults {
		if f.Kind == kind && !f.over(now) && matches(f) && f.happens() {
			return f
		}
	}
	return nil
}

// injected is the error that an api fault puts in place of a call's answer.
func (s *Server) injected(operation string) *apiError {
	f := s.strike(APIFault, func(f *Fault) bool { return glob(f.Operation, operation) })
	if f == nil {
		return nil
	}
	code, message := f.Code, f.Message
	set(&code, "RequestLimitExceeded")
	if code == "RequestLimitExceeded" {
		set(&message, "Request limit exceeded.")
	}
	set(&message, "The simulator was told to answer this.")
	return newError(code, "%s", message)
}

// drops tells whether the answer of a call that took effect is to be lost.
func (s *Server) drops(operation string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.strike(DropFault, func(f *Fault) bool { return glob(f.Operation, operation) }) != nil
}
