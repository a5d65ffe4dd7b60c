package verification

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
)

// Reasons of events on Nodes.
const (
	ReasonVerified = "GPUVerified"
	ReasonWaiting  = "GPUNotVerified"
	ReasonFenced   = "GPUFenced"
	ReasonDegraded = "GPUPartitionFaulty"
	ReasonNotGated = "GPUNotGated"
)

// VerifiedEvent says that the node takes work.
func VerifiedEvent(node *corev1.Node, v readiness.Verdict) events.Event {
	return events.Event{
		InvolvedObject: node, Type: corev1.EventTypeNormal, Reason: ReasonVerified,
		Message:      "GPUs verified, the node takes work: " + v.Message,
		DedupeValues: []string{string(node.UID), node.Status.NodeInfo.BootID},
	}
}

// WaitingEvent says what is missing and until when there is time.
func WaitingEvent(s readiness.Subject, v readiness.Verdict) events.Event {
	return events.Event{
		InvolvedObject: s.Node, Type: corev1.EventTypeNormal, Reason: ReasonWaiting,
		Message:       fmt.Sprintf("takes no work yet (%s): %s; %s", v.Reason, v.Message, next(s)),
		DedupeValues:  []string{string(s.Node.UID), v.Reason, v.Message},
		DedupeTimeout: 10 * time.Minute,
	}
}

func next(s readiness.Subject) string {
	if end, ok := readiness.DeadlineOf(s); ok {
		return "without verification it is replaced at " + end.UTC().Format(time.RFC3339)
	}
	return "node repair takes over where it is on"
}

// FencedEvent says why a node that was at work gets no new pods, and what follows.
func FencedEvent(node *corev1.Node, v readiness.Verdict) events.Event {
	what := "not verified since its last boot"
	if readiness.VerifiedThisBoot(node) {
		what = "GPU fault; node repair takes over where it is on"
	}
	return events.Event{
		InvolvedObject: node, Type: corev1.EventTypeWarning, Reason: ReasonFenced,
		Message:      fmt.Sprintf("no new pods, %s (%s): %s", what, v.Reason, v.Message),
		DedupeValues: []string{string(node.UID), node.Status.NodeInfo.BootID, v.Reason},
	}
}

// DegradedEvent says that partitions are at fault, within the allowance of the pool.
func DegradedEvent(node *corev1.Node, v readiness.Verdict) events.Event {
	return events.Event{
		InvolvedObject: node, Type: corev1.EventTypeWarning, Reason: ReasonDegraded,
		Message:      "partitions at fault; the device plugin holds them back and the rest works on, until health.maxFencedPartitions is passed: " + v.Message,
		DedupeValues: []string{string(node.UID), v.Message},
	}
}

// NotGatedEvent says that a node takes work unverified, because its pool does not gate.
func NotGatedEvent(node *corev1.Node, pool *pools.Pool, v readiness.Verdict) events.Event {
	return events.Event{
		InvolvedObject: node, Type: corev1.EventTypeWarning, Reason: ReasonNotGated,
		Message:      fmt.Sprintf("takes work unverified (%s): gpu pool %s does not gate now, see its condition GateSafe", v.Reason, pool.Name()),
		DedupeValues: []string{string(node.UID), v.Reason},
	}
}
