package trial

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
)

// Reasons of events.
const (
	ReasonFailed   = "GPUVerificationFailed"
	ReasonKept     = "GPUVerificationFailedNodeKept"
	ReasonUnwanted = "UnverifiedNodeUnwanted"
)

// FailedEvents tell the NodeClaim, the Node and the GPUPool why the node is replaced.
func FailedEvents(s readiness.Subject, v readiness.Verdict) []events.Event {
	what := fmt.Sprintf("not verified within %s (%s): %s; replacing the node", s.Pool.GPUPool.Spec.Readiness.GetDeadline(), v.Reason, v.Message)
	objects := []runtime.Object{s.Claim, s.Pool.GPUPool}
	if s.Node != nil {
		objects = append(objects, s.Node)
	}
	var out []events.Event
	for _, o := range objects {
		message := what
		if o == s.Pool.GPUPool {
			message = s.Claim.Name + " " + what
		}
		out = append(out, events.Event{
			InvolvedObject: o, Type: corev1.EventTypeWarning, Reason: ReasonFailed, Message: message,
			DedupeValues: []string{string(s.Claim.UID), fmt.Sprintf("%T", o)},
		})
	}
	return out
}

// KeptEvent says that do-not-repair keeps a node that is past its deadline.
func KeptEvent(s readiness.Subject, v readiness.Verdict) events.Event {
	return events.Event{
		InvolvedObject: s.Claim, Type: corev1.EventTypeWarning, Reason: ReasonKept,
		Message:      fmt.Sprintf("not verified in time (%s): %s; kept because of karpenter.sh/do-not-repair, remove the annotation to have it replaced", v.Reason, v.Message),
		DedupeValues: []string{string(s.Claim.UID), v.Reason},
	}
}

// UnwantedEvent says that the node goes because its pods have gone.
func UnwantedEvent(s readiness.Subject) events.Event {
	return events.Event{
		InvolvedObject: s.Claim, Type: corev1.EventTypeNormal, Reason: ReasonUnwanted,
		Message:      "no pod wants the node any more and it is not verified yet; removing it",
		DedupeValues: []string{string(s.Claim.UID)},
	}
}
