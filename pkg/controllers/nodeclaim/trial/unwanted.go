package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
)

// Rounds counts the rounds of scheduling that have come to a decision. A provisioning.Holds
// does.
type Rounds interface {
	Rounds() int
}

// idle is since when nobody has wanted a node, and how many rounds had decided then.
type idle struct {
	at     time.Time
	rounds int
}

func (c *Controller) want(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unwanted, uid)
}

func (c *Controller) unwantedSince(uid types.UID) idle {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.unwanted[uid]; !ok {
		c.unwanted[uid] = idle{at: c.clock.Now(), rounds: c.rounds.Rounds()}
	}
	return c.unwanted[uid]
}

// decided tells whether that nobody wants a node is more than silence. The scheduler decides
// nothing while a launch is open, for minutes where the cloud or the API server are slow, and
// what it nominated lapses meanwhile. A round that began since then has looked at the node:
// of two that have ended, the second did. Without one, no pod may be waiting for a node.
func (c *Controller) decided(ctx context.Context, since idle) (bool, error) {
	if c.rounds.Rounds() >= since.rounds+2 {
		return true, nil
	}
	pods := &corev1.PodList{}
	if err := c.client.List(ctx, pods, client.MatchingFields{"spec.nodeName": ""}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing pending pods, %w", err)
	}
	return !lo.SomeBy(pods.Items, func(p corev1.Pod) bool { return podutils.IsProvisionable(&p) }), nil
}
