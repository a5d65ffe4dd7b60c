package v1alpha1

import (
	"slices"
	"time"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of the API. The API server fills them in; the accessors below give the same
// values for objects that it never saw, such as manifests read offline.
const (
	// DefaultPriceTolerancePercent is the default of selection.priceTolerancePercent.
	DefaultPriceTolerancePercent int32 = 10
	// DefaultDeadline is the default of readiness.deadline.
	DefaultDeadline = 10 * time.Minute
	// DefaultMaxConcurrentTrials is the default of readiness.maxConcurrentTrials.
	DefaultMaxConcurrentTrials int32 = 3
	// DefaultMaxFencedPartitions is the default of health.maxFencedPartitions.
	DefaultMaxFencedPartitions int32 = 1
	// DefaultSharePercent is the default of sharePercent of a warm window.
	DefaultSharePercent int32 = 100
	// DefaultTimeZone is the default of timeZone of a warm window.
	DefaultTimeZone = "UTC"
	// DefaultScalableAPIGroup is the default of apiGroup of a scalableRef.
	DefaultScalableAPIGroup = "apps"
)

// PartitioningKind is the one way in which a pool divides its GPUs.
type PartitioningKind string

const (
	// PartitioningWhole hands out whole GPUs.
	PartitioningWhole PartitioningKind = "Whole"
	// PartitioningMIG divides GPUs in hardware.
	PartitioningMIG PartitioningKind = "MIG"
	// PartitioningTimeSlicing lets pods take turns.
	PartitioningTimeSlicing PartitioningKind = "TimeSlicing"
	// PartitioningMPS lets pods run at once.
	PartitioningMPS PartitioningKind = "MPS"
)

// Kind is the one way in which GPUs are divided. A nil or empty Partitioning is Whole.
// An object with several ways, which the API server refuses, counts as the first of MIG,
// TimeSlicing and MPS.
func (p *Partitioning) Kind() PartitioningKind {
	switch {
	case p == nil:
		return PartitioningWhole
	case p.MIG != nil:
		return PartitioningMIG
	case p.TimeSlicing != nil:
		return PartitioningTimeSlicing
	case p.MPS != nil:
		return PartitioningMPS
	}
	return PartitioningWhole
}

// Replicas is how many pods share one GPU: 1 for whole GPUs and MIG, whose partitions are
// not shared.
func (p *Partitioning) Replicas() int32 {
	switch p.Kind() {
	case PartitioningTimeSlicing:
		return p.TimeSlicing.Replicas
	case PartitioningMPS:
		return p.MPS.Replicas
	}
	return 1
}

// GetStrategy is strategy or its default, Mixed. A nil MIG has it too.
func (m *MIG) GetStrategy() MIGStrategy {
	if m == nil {
		return MIGStrategyMixed
	}
	return lo.CoalesceOrEmpty(m.Strategy, MIGStrategyMixed)
}

// FromDemand reports whether layouts are planned from demand. False for a nil MIG.
func (m *MIG) FromDemand() bool {
	return m != nil && len(m.Profiles) > 0
}

// Announces reports whether nodes carry the label of a neighbor. False for a nil MIG.
func (m *MIG) Announces(n Neighbor) bool {
	return m != nil && slices.Contains(m.AnnounceTo, n)
}

// GetObjective is objective or its default, Cost.
func (s *Selection) GetObjective() Objective {
	return lo.CoalesceOrEmpty(s.Objective, ObjectiveCost)
}

// GetPriceTolerancePercent is priceTolerancePercent or its default.
func (s *Selection) GetPriceTolerancePercent() int32 {
	return lo.FromPtrOr(s.PriceTolerancePercent, DefaultPriceTolerancePercent)
}

// GetGate is gate or its default, StartupTaint.
func (r *Readiness) GetGate() Gate {
	return lo.CoalesceOrEmpty(r.Gate, GateStartupTaint)
}

// GetEnforce is enforce or its default, WhenSafe.
func (r *Readiness) GetEnforce() Enforcement {
	return lo.CoalesceOrEmpty(r.Enforce, EnforceWhenSafe)
}

// GetDeadline is deadline or its default.
func (r *Readiness) GetDeadline() time.Duration {
	return durationOr(r.Deadline, DefaultDeadline)
}

// GetMaxConcurrentTrials is maxConcurrentTrials or its default.
func (r *Readiness) GetMaxConcurrentTrials() int32 {
	return lo.FromPtrOr(r.MaxConcurrentTrials, DefaultMaxConcurrentTrials)
}

// Check is the change to one check; ok is false when it keeps its built-in setting.
func (r *Readiness) Check(name CheckName) (check Check, ok bool) {
	return lo.Find(r.Checks, func(c Check) bool { return c.Name == name })
}

// GetMaxFencedPartitions is maxFencedPartitions or its default.
func (h *Health) GetMaxFencedPartitions() int32 {
	return lo.FromPtrOr(h.MaxFencedPartitions, DefaultMaxFencedPartitions)
}

// XIDAction is the action of a code; ok is false when it keeps its built-in action.
func (h *Health) XIDAction(code int32) (action XIDAction, ok bool) {
	policy, ok := lo.Find(h.XIDPolicies, func(p XIDPolicy) bool { return slices.Contains(p.Codes, code) })
	return policy.Action, ok
}

// GetEmptyAfter is emptyAfter; ok is false when empty nodes are left to Karpenter.
func (r *Reclaim) GetEmptyAfter() (after time.Duration, ok bool) {
	return durationOr(r.EmptyAfter, 0), r.EmptyAfter != nil
}

// Price is pricePerHour; ok is false when there is no bound. A value that the API server
// would refuse bounds nothing; RuntimeValidate reports it.
func (l *Limits) Price() (price Price, ok bool) {
	return parseOptionalPrice(l.PricePerHour)
}

// Unit is what the amounts of the entry count.
func (w *WarmCapacity) Unit() WarmUnit {
	switch {
	case w.GPUs != nil:
		return WarmUnitGPUs
	case len(w.Partitions) > 0:
		return WarmUnitPartitions
	}
	return WarmUnitPods
}

// GetCapacityTypes are the entry's capacity types, or those of the selection. Nil means
// Karpenter's order. The slice belongs to the object.
func (w *WarmCapacity) GetCapacityTypes(s *Selection) []CapacityType {
	if len(w.CapacityTypes) > 0 {
		return w.CapacityTypes
	}
	return s.CapacityTypes
}

// MaxPrice is maxPricePerHour; ok is false when there is no bound, as for Limits.Price.
func (w *WarmCapacity) MaxPrice() (price Price, ok bool) {
	return parseOptionalPrice(w.MaxPricePerHour)
}

// GetAPIGroup is apiGroup or its default, apps.
func (r *ScalableReference) GetAPIGroup() string {
	return lo.CoalesceOrEmpty(r.APIGroup, DefaultScalableAPIGroup)
}

// GetTimeZone is timeZone or its default, UTC.
func (w *WarmWindow) GetTimeZone() string {
	return lo.CoalesceOrEmpty(w.TimeZone, DefaultTimeZone)
}

// GetSharePercent is sharePercent or its default.
func (w *WarmWindow) GetSharePercent() int32 {
	return lo.FromPtrOr(w.SharePercent, DefaultSharePercent)
}

func durationOr(d *metav1.Duration, fallback time.Duration) time.Duration {
	if d == nil {
		return fallback
	}
	return d.Duration
}

func parseOptionalPrice(s *string) (Price, bool) {
	if s == nil {
		return 0, false
	}
	price, err := ParsePrice(*s)
	return price, err == nil
}
