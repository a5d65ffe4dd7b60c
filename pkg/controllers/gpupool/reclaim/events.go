package reclaim

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// Reasons of events.
const (
	// ReasonRemoved is on the Node and the NodeClaim that go.
	ReasonRemoved = "EmptyNodeReclaimed"
	// ReasonSpared is on a Node that was about to go and stays.
	ReasonSpared = "EmptyNodeSpared"
	// ReasonBlocked is on a GPUPool with empty nodes that have to stay.
	ReasonBlocked = "ReclaimBlocked"
)

// maxEventMessage is the API's bound on the message of an event.
const maxEventMessage = 1024

// RemovedEvents say for how long the node was empty.
func RemovedEvents(node *corev1.Node, claim *karpv1.NodeClaim, pool string, empty time.Duration) []events.Event {
	message := fmt.Sprintf("empty for %s, removing the node as reclaim.emptyAfter of gpu pool %s says", empty.Round(time.Second), pool)
	return []events.Event{
		{InvolvedObject: node, Type: corev1.EventTypeNormal, Reason: ReasonRemoved, Message: message, DedupeValues: []string{string(node.UID)}},
		{InvolvedObject: claim, Type: corev1.EventTypeNormal, Reason: ReasonRemoved, Message: message, DedupeValues: []string{string(claim.UID)}},
	}
}

// SparedEvent says what has changed since the node was picked.
func SparedEvent(node *corev1.Node, why string) events.Event {
	return events.Event{
		InvolvedObject: node, Type: corev1.EventTypeNormal, Reason: ReasonSpared, Message: "was about to be removed as empty and stays: " + why,
		DedupeValues: []string{string(node.UID), why},
	}
}

// BlockedEvent says what keeps empty nodes, and the way out.
func BlockedEvent(pool *v1alpha1.GPUPool, message string) events.Event {
	if len(message) > maxEventMessage {
		message = message[:maxEventMessage-4] + " ..."
	}
	return events.Event{
		InvolvedObject: pool, Type: corev1.EventTypeNormal, Reason: ReasonBlocked, Message: message,
		DedupeValues: []string{string(pool.UID), message},
	}
}
