package warm

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// ReasonChanged is the reason of the event on a GPUPool when an entry wants more or less than
// before, by its schedule, its price or its spec.
const ReasonChanged = "WarmCapacityChanged"

// ChangedEvent tells how much an entry wants now.
func ChangedEvent(p *v1alpha1.GPUPool, was, is v1alpha1.WarmStatus) events.Event {
	until := "for good"
	if is.NextChange != nil {
		until = "until " + is.NextChange.UTC().Format(time.RFC3339)
	}
	message := fmt.Sprintf("warm entry %s wants %d in place of %d, %s", is.Name, is.Wanted, was.Wanted, until)
	return events.Event{
		InvolvedObject: p, Type: corev1.EventTypeNormal, Reason: ReasonChanged, Message: message,
		DedupeValues: []string{string(p.UID), message},
	}
}

// ShortEvent says why an entry cannot have what it wants, for other reasons than that nodes
// are on their way. Its reason is that of the condition.
func ShortEvent(p *v1alpha1.GPUPool, reason, message string) events.Event {
	return events.Event{
		InvolvedObject: p, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		DedupeValues: []string{string(p.UID), reason}, DedupeTimeout: 5 * time.Minute,
	}
}
