package membership

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// NotPublishedEvent says that the nodes of a pool will not find their configuration.
func NotPublishedEvent(p *v1alpha1.GPUPool, err error) events.Event {
	return events.Event{
		InvolvedObject: p,
		Type:           corev1.EventTypeWarning,
		Reason:         "ConfigurationNotPublished",
		Message:        fmt.Sprintf("Nodes that start now may not find their layout or sharing configuration: %s", err),
		DedupeValues:   []string{p.Name, err.Error()},
		DedupeTimeout:  10 * time.Minute,
	}
}
