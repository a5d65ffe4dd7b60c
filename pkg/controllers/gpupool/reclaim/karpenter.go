package reclaim

import (
	"fmt"

	"github.com/awslabs/operatorpkg/controller"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
)

// slots are the places in the queue of Karpenter's disruption for nodes that carry the taint
// and have not been looked at again. What is in that queue Karpenter leaves alone: it picks no
// such node for disruption, and it does not remove the taint, which it does from any other
// node with each of its rounds. The queue is memory. If this process ends, the next one's
// Karpenter finds the taint and removes it, and so does stock Karpenter after a way back.
//
// A node is not marked for deletion meanwhile: Karpenter would launch another for a pod that
// is bound in between, which is the pod that is to keep the node.
type slots struct {
	queue *disruption.Queue
	// ours tells our places from commands of Karpenter. It never runs: no event names it.
	ours *disruption.Command
}

func newSlots(queue *disruption.Queue) slots {
	return slots{queue: queue, ours: &disruption.Command{}}
}

// take is false where Karpenter is about to disrupt the node.
func (s slots) take(providerID string) bool {
	s.queue.Lock()
	defer s.queue.Unlock()
	if _, ok := s.queue.ProviderIDToCommand[providerID]; ok {
		return false
	}
	s.queue.ProviderIDToCommand[providerID] = s.ours
	return true
}

func (s slots) free(providerID string) bool { return !s.queue.HasAny(providerID) }

func (s slots) give(providerID string) {
	s.queue.Lock()
	defer s.queue.Unlock()
	if s.queue.ProviderIDToCommand[providerID] == s.ours {
		delete(s.queue.ProviderIDToCommand, providerID)
	}
}

// Queue finds the queue of Karpenter's disruption among the controllers that Karpenter
// constructs. It is an error if it is not there exactly once: an upgrade has changed it.
func Queue(controllers []controller.Controller) (*disruption.Queue, error) {
	var found []*disruption.Queue
	for _, c := range controllers {
		if q, ok := c.(*disruption.Queue); ok {
			found = append(found, q)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("finding the queue of disruption, %d of %d controllers are one, want 1", len(found), len(controllers))
	}
	return found[0], nil
}
