package gate

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// ReasonUnsafe is the reason of the event on a GPUPool whose gate cannot open.
const ReasonUnsafe = "GateUnsafe"

// maxEventMessage is the API's bound on the message of an event.
const maxEventMessage = 1024

// UnsafeEvent names what keeps the gate from opening, and the way out.
func UnsafeEvent(pool *v1alpha1.GPUPool, message string) events.Event {
	if len(message) > maxEventMessage {
		message = message[:maxEventMessage-4] + " ..."
	}
	return events.Event{
		InvolvedObject: pool, Type: corev1.EventTypeWarning, Reason: ReasonUnsafe, Message: message,
		DedupeValues: []string{string(pool.UID), message},
	}
}
