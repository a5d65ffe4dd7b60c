package health

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"gopkg.in/yaml.v3"
)

// Limits of a policy. They bound what a policy file can ask for.
const (
	maxXIDCode     = 100_000
	maxXIDPolicies = 512
	maxHold        = 24 * time.Hour
	// minTimeout is longer than a healthy call takes when nothing else runs, and
	// maxTimeout as long as the API allows.
	minTimeout = 10 * time.Millisecond
	maxTimeout = 5 * time.Minute
)

// CheckPolicy switches one check.
type CheckPolicy struct {
	// Disabled turns the check off: it is neither probed nor judged.
	Disabled bool `yaml:"disabled,omitempty"`
	// Severity overrides the severity of all the check's faults; empty keeps
	// the documented ones.
	Severity Severity `yaml:"severity,omitempty"`
	// Timeout is how long one probe of the check may take, for those checks that
	// make a call of their own (Check.Timed); zero keeps the agent's default.
	Timeout time.Duration `yaml:"timeout,omitempty"`
}

// Policy says what is demanded of a node. The zero value demands a working
// driver with at least one healthy GPU, with the documented severities.
type Policy struct {
	Checks map[Check]CheckPolicy `yaml:"checks,omitempty"`
	// XIDs override rows of the documented table.
	XIDs []XIDPolicy `yaml:"xids,omitempty"`
	// MinDriver and MinCUDA are the oldest versions accepted; empty accepts any.
	MinDriver string `yaml:"minDriver,omitempty"`
	MinCUDA   string `yaml:"minCUDA,omitempty"`
	// GPUs is the number expected; zero expects at least one, and on a node
	// that was verified in this boot as many as then.
	GPUs int `yaml:"gpus,omitempty"`
	// Product is NVML's device name expected of each GPU; empty accepts any.
	Product string `yaml:"product,omitempty"`
	// Raise is how long a fault that can flap must persist on a verified node
	// before it counts; zero means a minute.
	Raise time.Duration `yaml:"raise,omitempty"`
	// Clear is how long a fault of a verified node must stay away before it is
	// forgotten; zero means five minutes.
	Clear time.Duration `yaml:"clear,omitempty"`
	// WarnFor is how long an XID of class Warn is told; zero means an hour.
	WarnFor time.Duration `yaml:"warnFor,omitempty"`
}

func (p Policy) raise() time.Duration   { return orDefault(p.Raise, time.Minute) }
func (p Policy) clear() time.Duration   { return orDefault(p.Clear, 5*time.Minute) }
func (p Policy) warnFor() time.Duration { return orDefault(p.WarnFor, time.Hour) }

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// Enabled reports whether a check is switched on.
func (p Policy) Enabled(c Check) bool { return !p.Checks[c].Disabled }

// Timeout is how long a probe of the check may take: what the policy says, or else
// the given default.
func (p Policy) Timeout(c Check, byDefault time.Duration) time.Duration {
	return orDefault(p.Checks[c].Timeout, byDefault)
}

// untimed are the checks without a call of their own: their facts come with the
// driver's, from the kernel, or by events.
var untimed = []Check{CheckBootID, CheckDriverVersion, CheckCUDAVersion, CheckXID}

// Timed reports whether the check makes calls whose time a policy can bound.
func (c Check) Timed() bool { return !slices.Contains(untimed, c) }

// ParsePolicy reads a policy from YAML and validates it. Unknown fields are an
// error; an empty document is the zero Policy.
func ParsePolicy(data []byte) (Policy, error) {
	var p Policy
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&p); err != nil && !errors.Is(err, io.EOF) {
		return Policy{}, fmt.Errorf("reading health policy, %w", err)
	}
	if err := p.Validate(); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// Validate names every fault of the policy.
func (p Policy) Validate() error {
	return errors.Join(p.validateChecks(), p.validateXIDs(), p.validateDemands(), p.validateHolds())
}

func (p Policy) validateChecks() error {
	var errs []error
	for _, c := range sortedKeys(p.Checks) {
		if _, ok := checkInfo(c); !ok {
			errs = append(errs, fmt.Errorf("checks: %q is no check, use one of %v", c, checkNames()))
		}
		if s := p.Checks[c].Severity; s != "" && s != Fatal && s != Warning {
			errs = append(errs, fmt.Errorf("checks.%s.severity: %q is neither Fatal nor Warning", c, s))
		}
		errs = append(errs, validateTimeout(c, p.Checks[c].Timeout))
	}
	return errors.Join(errs...)
}

func validateTimeout(c Check, timeout time.Duration) error {
	switch {
	case timeout == 0:
		return nil
	case timeout < minTimeout || timeout > maxTimeout:
		return fmt.Errorf("checks.%s.timeout: %s is not between %s and %s", c, timeout, minTimeout, maxTimeout)
	case !c.Timed():
		return fmt.Errorf("checks.%s.timeout: this check makes no call of its own, leave timeout out or set that of %q, whose call brings its facts", c, CheckGPUCount)
	}
	return nil
}

func (p Policy) validateXIDs() error {
	if len(p.XIDs) > maxXIDPolicies {
		return fmt.Errorf("xids: %d rows are more than %d, keep only rows that differ from the defaults", len(p.XIDs), maxXIDPolicies)
	}
	var errs []error
	seen := map[int]bool{}
	for i, row := range p.XIDs {
		if row.Code <= 0 || row.Code > maxXIDCode {
			errs = append(errs, fmt.Errorf("xids[%d].code: %d is not between 1 and %d", i, row.Code, maxXIDCode))
		}
		if seen[row.Code] {
			errs = append(errs, fmt.Errorf("xids[%d].code: %d is there twice, keep one row", i, row.Code))
		}
		seen[row.Code] = true
		if !slices.Contains(xidClasses, row.Class) {
			errs = append(errs, fmt.Errorf("xids[%d].class: %q is no class, use one of %v", i, row.Class, xidClasses))
		}
	}
	return errors.Join(errs...)
}

func (p Policy) validateDemands() error {
	var errs []error
	if p.MinDriver != "" {
		if _, err := ParseVersion(p.MinDriver); err != nil {
			errs = append(errs, fmt.Errorf("minDriver: %w", err))
		}
	}
	if p.MinCUDA != "" {
		if _, err := ParseVersion(p.MinCUDA); err != nil {
			errs = append(errs, fmt.Errorf("minCUDA: %w", err))
		}
	}
	if p.GPUs < 0 || p.GPUs > maxGPUs {
		errs = append(errs, fmt.Errorf("gpus: %d is not between 0 and %d", p.GPUs, maxGPUs))
	}
	return errors.Join(errs...)
}

func (p Policy) validateHolds() error {
	var errs []error
	for _, h := range []struct {
		name string
		d    time.Duration
	}{{"raise", p.Raise}, {"clear", p.Clear}, {"warnFor", p.WarnFor}} {
		if h.d < 0 || h.d > maxHold {
			errs = append(errs, fmt.Errorf("%s: %s is not between 0s and %s", h.name, h.d, maxHold))
		}
	}
	return errors.Join(errs...)
}

func checkNames() []Check {
	names := make([]Check, len(checks))
	for i, c := range checks {
		names[i] = c.Check
	}
	return names
}

func sortedKeys[V any](m map[Check]V) []Check {
	keys := make([]Check, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
