package prediction

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/events"
)

// DiffersEvent says that a label of a node is not what was predicted.
func DiffersEvent(node *corev1.Node, key, predicted string) events.Event {
	actual, instanceType := node.Labels[key], node.Labels[corev1.LabelInstanceTypeStable]
	return events.Event{
		InvolvedObject: node,
		Type:           corev1.EventTypeWarning,
		Reason:         "GPULabelDiffers",
		Message: fmt.Sprintf("Label %s is %q and was predicted to be %q for instance type %s; pods that select it will not find such nodes. Correct the catalogue with --gpu-catalog-file",
			key, actual, predicted, instanceType),
		DedupeValues:  []string{string(node.UID), key, actual},
		DedupeTimeout: time.Hour,
	}
}
