package provisioning

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/events"
)

// RefusalKind says which rule of a pool holds a launch back.
type RefusalKind string

const (
	// RefusedOversize is spec.selection.maxUnusedGPUs.
	RefusedOversize RefusalKind = "OversizeRefused"
	// RefusedGPULimit is spec.limits.gpus.
	RefusedGPULimit RefusalKind = "GPULimitReached"
	// RefusedPriceLimit is spec.limits.pricePerHour.
	RefusedPriceLimit RefusalKind = "PriceLimitReached"
	// RefusedWarmPrice is maxPricePerHour of an entry of spec.warm. It holds back nothing but
	// the space for that entry.
	RefusedWarmPrice RefusalKind = "BudgetReached"
)

// Refusal is why a pod has no node though a node could be launched for it.
type Refusal struct {
	// Pool is the GPUPool whose rule it is.
	Pool string
	// Kind is the rule.
	Kind RefusalKind
	// Type and Price are the cheapest launch refused; empty if none was found.
	Type  string
	Price float64
	// Message says so to the owner of the pod, with the way out.
	Message string
}

// Error is the message, for the record of scheduling decisions.
func (r Refusal) Error() string { return r.Message }

type refused struct {
	pod     *corev1.Pod
	refusal Refusal
}

func (r *round) refuse(pod *corev1.Pod, why Refusal) {
	r.refusals[pod.UID] = refused{pod: pod, refusal: why}
}

// RefusedEvent tells the owner of a pod what holds its launch back. It comes again
// when the reason changes, and every five minutes.
func RefusedEvent(pod *corev1.Pod, why Refusal) events.Event {
	return events.Event{
		InvolvedObject: pod,
		Type:           corev1.EventTypeWarning,
		Reason:         string(why.Kind),
		Message:        why.Message,
		DedupeValues:   []string{string(pod.UID), why.Message},
		DedupeTimeout:  5 * time.Minute,
	}
}
