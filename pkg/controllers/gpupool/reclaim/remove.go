package reclaim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/serrors"
	operatorstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// parallel is how many nodes are written to at once.
const parallel = 20

// staged is a node that carries the taint and waits for its second look.
type staged struct {
	pool, nodePool    string
	node, claim       string
	nodeUID, claimUID types.UID
	providerID        string
	emptySince        time.Time
	// tainted is when the taint was set, zero while it is not.
	tainted time.Time
}

// logValues name the node in logs.
func (s *staged) logValues() []any {
	// The GPUPool stands in the logger that controller-runtime hands on.
	return []any{"Node", klog.KRef("", s.node), "NodeClaim", klog.KRef("", s.claim)}
}

// begin stages the nodes that the decision takes.
func (c *Controller) begin(ctx context.Context, p *v1alpha1.GPUPool, m *member) error {
	var picked []*staged
	for _, n := range m.decision.Take {
		at := m.states[n.Name]
		if !c.slots.take(at.ProviderID()) {
			continue
		}
		s := &staged{
			pool: p.Name, nodePool: m.nodePool.Name, node: n.Name, claim: at.NodeClaim.Name, nodeUID: at.Node.UID, claimUID: at.NodeClaim.UID,
			providerID: at.ProviderID(), emptySince: n.EmptySince,
		}
		c.staged[s.providerID] = s
		picked = append(picked, s)
	}
	return c.each(ctx, picked, c.taint)
}

// each calls f for nodes, several at once, and drops those that are done from the staged.
func (c *Controller) each(ctx context.Context, nodes []*staged, f func(context.Context, *staged) (done bool, err error)) error {
	done, errs := make([]bool, len(nodes)), make([]error, len(nodes))
	workqueue.ParallelizeUntil(ctx, parallel, len(nodes), func(i int) { done[i], errs[i] = f(ctx, nodes[i]) })
	for i, s := range nodes {
		if errs[i] != nil {
			errs[i] = serrors.Wrap(errs[i], "Node", klog.KRef("", s.node))
		}
		if done[i] {
			delete(c.staged, s.providerID)
			c.slots.give(s.providerID)
		}
	}
	return joined(errs)
}

// taint sets the taint. A node that somebody has changed meanwhile is left to the next round.
func (c *Controller) taint(ctx context.Context, s *staged) (done bool, err error) {
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, types.NamespacedName{Name: s.node}, node); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	if node.UID != s.nodeUID || !node.DeletionTimestamp.IsZero() {
		return true, nil
	}
	if err := c.setTaint(ctx, node, true); err != nil {
		return true, ignoreChanged(err)
	}
	s.tainted = c.Clock.Now()
	log.FromContext(ctx).WithValues(s.logValues()...).V(1).Info("tainted empty node")
	return false, nil
}

// setTaint adds or removes the taint of a node as it was read.
func (c *Controller) setTaint(ctx context.Context, node *corev1.Node, wanted bool) error {
	if tainted(node) == wanted {
		return nil
	}
	stored := node.DeepCopy()
	if wanted {
		node.Spec.Taints = append(node.Spec.Taints, karpv1.DisruptedNoScheduleTaint)
	} else {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isTaint)
	}
	return c.Client.Patch(ctx, node, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
}

func tainted(node *corev1.Node) bool { return slices.ContainsFunc(node.Spec.Taints, isTaint) }

func isTaint(t corev1.Taint) bool { return t.MatchTaint(&karpv1.DisruptedNoScheduleTaint) }

// looked is a staged node after its second look.
type looked struct {
	*staged
	seen    seen
	verdict verdict
	why     string
}

// confirm takes second looks at the pool's nodes whose grace is over, and does what they say.
func (c *Controller) confirm(ctx context.Context, p *v1alpha1.GPUPool, members []*member, r rules) error {
	var errs []error
	for nodePool, nodes := range c.ripe(p.Name) {
		m, ok := lo.Find(members, func(m *member) bool { return m.nodePool.Name == nodePool })
		if !ok {
			errs = append(errs, c.release(ctx, nodes, "NodePool "+nodePool+" has left the pool"))
			continue
		}
		errs = append(errs, c.confirmIn(ctx, m, nodes, r))
	}
	return joined(errs)
}

// confirmIn looks at all nodes before any goes: the budget may be another one by now, or
// Karpenter may have used it, and then those that have been empty for longest go.
func (c *Controller) confirmIn(ctx context.Context, m *member, nodes []*staged, r rules) error {
	at := make(map[*staged]*looked, len(nodes))
	for _, s := range nodes {
		at[s] = &looked{staged: s}
	}
	errs := []error{c.each(ctx, nodes, func(ctx context.Context, s *staged) (bool, error) {
		l, err := at[s], error(nil)
		if l.seen, err = c.secondLook(ctx, s); err != nil {
			return false, err
		}
		l.verdict, l.why = c.judge(s, l.seen, r)
		return c.settleOther(ctx, l)
	})}
	going := lo.Filter(nodes, func(s *staged, _ int) bool { return at[s].verdict == goes })
	within := going[:min(len(going), m.budget)]
	errs = append(errs, c.release(ctx, going[len(within):], "the NodePool's disruption budget is used up"))
	errs = append(errs, c.each(ctx, within, func(ctx context.Context, s *staged) (bool, error) {
		if err := c.remove(ctx, s, at[s].seen.claim); err != nil {
			return false, err
		}
		c.tellRemoved(ctx, m, s, at[s].seen)
		return true, nil
	}))
	return joined(errs)
}

// settleOther does what is to be done with a node that does not go.
func (c *Controller) settleOther(ctx context.Context, l *looked) (done bool, err error) {
	switch l.verdict {
	case gone:
		return true, nil
	case untainted: // somebody has removed the taint: a pod may have been bound since
		return c.taint(ctx, l.staged)
	case stays:
		return c.spare(ctx, l.staged, l.why)
	}
	return false, nil
}

// ripe are the staged nodes of a pool whose grace is over, by NodePool, in the order in which
// they were picked.
func (c *Controller) ripe(pool string) map[string][]*staged {
	now := c.Clock.Now()
	found := map[string][]*staged{}
	for _, s := range c.staged {
		if s.pool == pool && now.Sub(s.tainted) >= grace {
			found[s.nodePool] = append(found[s.nodePool], s)
		}
	}
	for _, nodes := range found {
		slices.SortFunc(nodes, func(a, b *staged) int {
			if order := a.emptySince.Compare(b.emptySince); order != 0 {
				return order
			}
			return strings.Compare(a.node, b.node)
		})
	}
	return found
}

// spare lets a node stay: the taint goes, and its time begins anew. Where the taint cannot be
// removed now, Karpenter's next round does it, since the node has no place in the queue then.
func (c *Controller) spare(ctx context.Context, s *staged, why string) (done bool, err error) {
	c.ages.forget(s.node)
	log.FromContext(ctx).WithValues(s.logValues()...).Info("sparing empty node", "reason", why)
	spared.Inc(poolLabels(s.pool))
	for range 3 {
		node := &corev1.Node{}
		if err = c.Reader.Get(ctx, types.NamespacedName{Name: s.node}, node); err != nil || node.UID != s.nodeUID || !node.DeletionTimestamp.IsZero() {
			return true, client.IgnoreNotFound(err)
		}
		if err = c.setTaint(ctx, node, false); err == nil {
			c.Recorder.Publish(SparedEvent(node, why))
			return true, nil
		}
		if !apierrors.IsConflict(err) {
			break
		}
	}
	return true, client.IgnoreNotFound(err)
}

// release spares nodes for one reason.
func (c *Controller) release(ctx context.Context, nodes []*staged, why string) error {
	return c.each(ctx, nodes, func(ctx context.Context, s *staged) (bool, error) { return c.spare(ctx, s, why) })
}

// releaseAll spares all staged nodes of a pool. What fails Karpenter's next round mends.
func (c *Controller) releaseAll(ctx context.Context, pool, why string) {
	var nodes []*staged
	for _, s := range c.staged {
		if s.pool == pool {
			nodes = append(nodes, s)
		}
	}
	if err := c.release(ctx, nodes, why); err != nil {
		log.FromContext(ctx).V(1).Info("leaving taints to be removed by Karpenter", "reason", err.Error())
	}
}

// remove deletes the NodeClaim, as Karpenter's queue does: marked first, so that no pod is
// planned onto the node any more, then with the reason, which evictions are counted by.
func (c *Controller) remove(ctx context.Context, s *staged, claim *karpv1.NodeClaim) error {
	c.Cluster.MarkForDeletion(s.providerID)
	stored := claim.DeepCopy()
	reason := string(karpv1.DisruptionReasonEmpty)
	claim.StatusConditions(operatorstatus.WithClock(c.Clock)).SetTrueWithReason(karpv1.ConditionTypeDisruptionReason, reason, reason)
	if err := c.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		log.FromContext(ctx).WithValues(s.logValues()...).V(1).Info("removing the node without saying why in its NodeClaim", "reason", err.Error())
	}
	err := c.Client.Delete(ctx, claim, client.Preconditions{UID: &s.claimUID})
	if ignoreChanged(err) != nil {
		c.Cluster.UnmarkForDeletion(s.providerID)
		return serrors.Wrap(err, "NodeClaim", klog.KRef("", s.claim))
	}
	c.ages.forget(s.node)
	return nil
}

// count is how many of the staged nodes are such.
func (c *Controller) count(such func(*staged) bool) int {
	return lo.CountBy(slices.Collect(maps.Values(c.staged)), such)
}

// untilLook is how long it takes until the next second look at a node of the pool.
func (c *Controller) untilLook(pool string) time.Duration {
	least := refresh
	for _, s := range c.staged {
		if s.pool == pool {
			least = min(least, max(0, grace-c.Clock.Since(s.tainted)))
		}
	}
	return least
}

// ignoreChanged is nil where the object is another one by now, or gone.
func ignoreChanged(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// joined is nil when all are.
func joined(errs []error) error { return errors.Join(errs...) }
