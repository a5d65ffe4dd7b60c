package v1alpha1

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // the controller's image has no time zone files

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MIGNames answers for the names of layouts and profiles. The MIG data implements it; this
// package does not import the data.
// +kubebuilder:object:generate=false
type MIGNames interface {
	// Layout reports whether any GPU has a layout of this name and, if so, whether all its
	// partitions are alike on every GPU that has it.
	Layout(name string) (known, homogeneous bool)
	// Profile reports whether any GPU has a profile of this name.
	Profile(name string) bool
}

var (
	driverVersionPattern = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,4}){0,2}$`)
	cudaVersionPattern   = regexp.MustCompile(`^[0-9]{1,3}(\.[0-9]{1,3})?$`)
	// cronReference is where a cron line is tried from. Any fixed time does; robfig/cron looks
	// five years ahead, in which there is a 29 February.
	cronReference = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)
)

// RuntimeValidate checks what CEL cannot: the names of layouts and profiles, cron lines
// and time zones. It also checks the values whose meaning depends on parsing (durations,
// prices, versions), because objects that are read offline never met the CEL rules. With
// nil names, those of layouts and profiles are not checked. All faults are reported
// at once, in the order of the spec; each names its field, its value and a way out.
func (p *GPUPool) RuntimeValidate(names MIGNames) error {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if kind := p.Spec.Partitioning.Kind(); kind == PartitioningMIG && names != nil {
		errs = append(errs, p.Spec.Partitioning.MIG.validateNames(names, spec.Child("partitioning", "mig"))...)
	}
	errs = append(errs, p.Spec.Readiness.validate(spec.Child("readiness"))...)
	for i := range p.Spec.Warm {
		errs = append(errs, p.Spec.Warm[i].validate(names, spec.Child("warm").Index(i))...)
	}
	if after, ok := p.Spec.Reclaim.GetEmptyAfter(); ok {
		errs = append(errs, validateBounds(after, 0, 24*time.Hour, spec.Child("reclaim", "emptyAfter"))...)
	}
	errs = append(errs, validatePrice(p.Spec.Limits.PricePerHour, spec.Child("limits", "pricePerHour"))...)
	return errs.ToAggregate()
}

func (m *MIG) validateNames(names MIGNames, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range m.Layouts {
		known, homogeneous := names.Layout(name)
		switch at := path.Child("layouts").Index(i); {
		case !known:
			errs = append(errs, field.Invalid(at, name, "no GPU in the catalogue has a layout of this name; use one that mig-parted generates, such as all-balanced or all-1g.10gb, or list profiles in place of layouts"))
		case !homogeneous && m.GetStrategy() == MIGStrategySingle:
			errs = append(errs, field.Invalid(at, name, "strategy Single needs partitions that are all alike; use a layout of one profile, or strategy Mixed"))
		}
	}
	for i, name := range m.Profiles {
		errs = append(errs, validateProfile(names, name, path.Child("profiles").Index(i))...)
	}
	return errs
}

func (r *Readiness) validate(path *field.Path) field.ErrorList {
	deadline := path.Child("deadline")
	errs := validateBounds(r.GetDeadline(), time.Minute, 24*time.Hour, deadline)
	if r.GetGate() == GateRegistration && r.GetDeadline() >= 15*time.Minute {
		errs = append(errs, field.Invalid(deadline, r.GetDeadline().String(), "with gate Registration it must be less than 15m, when Karpenter itself deletes the node; lower it, or use gate StartupTaint"))
	}
	if v := r.MinDriverVersion; v != "" && !driverVersionPattern.MatchString(v) {
		errs = append(errs, field.Invalid(path.Child("minDriverVersion"), v, "must be one to three numbers with points between them, such as 550.54.15"))
	}
	if v := r.MinCUDAVersion; v != "" && !cudaVersionPattern.MatchString(v) {
		errs = append(errs, field.Invalid(path.Child("minCUDAVersion"), v, "must be one or two numbers with a point between them, such as 12.4"))
	}
	for i := range r.Checks {
		errs = append(errs, r.Checks[i].validate(path.Child("checks").Index(i))...)
	}
	return errs
}

func (c *Check) validate(path *field.Path) field.ErrorList {
	if c.Timeout == nil {
		return nil
	}
	timeout := path.Child("timeout")
	errs := validateBounds(c.Timeout.Duration, time.Second, 5*time.Minute, timeout)
	switch c.Name {
	case CheckDriverVersion, CheckCUDAVersion, CheckXID:
		errs = append(errs, field.Invalid(timeout, c.Timeout.Duration.String(), fmt.Sprintf("check %s makes no call of its own; remove it, or set the timeout of gpu-count, whose call brings the versions", c.Name)))
	default:
	}
	return errs
}

func (w *WarmCapacity) validate(names MIGNames, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range w.Partitions {
		if names != nil {
			errs = append(errs, validateProfile(names, w.Partitions[i].Profile, path.Child("partitions").Index(i).Child("profile"))...)
		}
	}
	if w.Schedule != nil {
		for i := range w.Schedule.Windows {
			errs = append(errs, w.Schedule.Windows[i].validate(path.Child("schedule", "windows").Index(i))...)
		}
	}
	return append(errs, validatePrice(w.MaxPricePerHour, path.Child("maxPricePerHour"))...)
}

func (w *WarmWindow) validate(path *field.Path) field.ErrorList {
	errs := validateBounds(w.Duration.Duration, time.Minute, 7*24*time.Hour, path.Child("duration"))
	if _, err := w.Cron(); err != nil {
		errs = append(errs, field.Invalid(path.Child("start"), w.Start, fmt.Sprintf("%s; write five cron fields, such as \"0 7 * * 1-5\"", err)))
	}
	if _, err := w.Location(); err != nil {
		errs = append(errs, field.Invalid(path.Child("timeZone"), w.TimeZone, "not the IANA name of a time zone; write one such as UTC or Europe/Berlin"))
	}
	return errs
}

// Cron is the parsed start. A line that carries a zone of its own, that counts from the
// start of the process (@every), or that names a day that never comes is an error. The
// schedule reads times in the location of the time that its Next is given.
func (w *WarmWindow) Cron() (cron.Schedule, error) {
	if strings.Contains(w.Start, "=") {
		return nil, fmt.Errorf("the time zone of a window belongs in timeZone")
	}
	if strings.HasPrefix(w.Start, "@every") {
		return nil, fmt.Errorf("@every has no fixed start")
	}
	schedule, err := cron.ParseStandard(w.Start)
	if err != nil {
		return nil, err
	}
	if schedule.Next(cronReference).IsZero() {
		return nil, fmt.Errorf("no such day ever comes")
	}
	return schedule, nil
}

// Location is the time zone of the window. "Local" is an error, because it would mean the
// zone of whichever machine the controller runs on.
func (w *WarmWindow) Location() (*time.Location, error) {
	name := w.GetTimeZone()
	if name == "Local" {
		return nil, fmt.Errorf("loading time zone %q, which differs from machine to machine", name)
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("loading time zone %q, %w", name, err)
	}
	return location, nil
}

func validateProfile(names MIGNames, profile string, path *field.Path) field.ErrorList {
	if names.Profile(profile) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, profile, "no GPU in the catalogue has a profile of this name; write it as nvidia-smi mig -lgip prints it, such as 1g.10gb")}
}

func validateBounds(d, least, most time.Duration, path *field.Path) field.ErrorList {
	if d >= least && d <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(path, d.String(), fmt.Sprintf("must be from %s to %s", least, most))}
}

func validatePrice(price *string, path *field.Path) field.ErrorList {
	if price == nil {
		return nil
	}
	if _, err := ParsePrice(*price); err != nil {
		return field.ErrorList{field.Invalid(path, *price, err.Error())}
	}
	return nil
}
