package reclaim

import (
	"context"
	"fmt"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/utils/pdb"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

// member is a NodePool of the pool in one round.
type member struct {
	nodePool *karpv1.NodePool
	// nodes are those that are not staged yet, states what Karpenter knows of them by name.
	nodes  []Standing
	states map[string]*state.StateNode
	// budget is how many nodes may still go, with those that are staged not counted; room is
	// with them counted.
	budget, room int
	// uncounted is true while it is not known whether empty nodes hold buffers.
	uncounted bool
	decision  Decision
}

// next is how long it takes until the NodePool has something to do.
func (m *member) next() time.Duration {
	switch {
	case m.uncounted:
		return settle
	case len(m.decision.OverBudget) > 0:
		return retry
	case m.decision.Next > 0:
		return m.decision.Next
	}
	return refresh
}

// rules are what one round judges nodes by.
type rules struct {
	limits  pdb.Limits
	buffers bool
}

// observe looks at the pool's NodePools. Static ones keep their nodes whether they are empty
// or not, and have no part.
func (c *Controller) observe(ctx context.Context, pool *pools.Pool, r rules) ([]*member, error) {
	states := c.states(pool.NodePools)
	var members []*member
	for _, name := range pool.NodePools {
		m := &member{nodePool: &karpv1.NodePool{}, states: map[string]*state.StateNode{}}
		if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, m.nodePool); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return nil, fmt.Errorf("getting node pool %s, %w", name, err)
		}
		if m.nodePool.Spec.Replicas != nil {
			continue
		}
		// What Karpenter is at with nodes counts, whoever began it; staged nodes come apart.
		total, _ := disruption.NodePoolStatsFromNodes(states[name], karpv1.DisruptionReasonEmpty)
		_, disrupting := disruption.NodePoolStatsFromNodes(c.unstaged(states[name]), karpv1.DisruptionReasonEmpty)
		m.budget = max(0, m.nodePool.MustGetAllowedDisruptions(c.Clock, total[name], karpv1.DisruptionReasonEmpty)-disrupting[name])
		m.room = m.budget - c.count(func(s *staged) bool { return s.nodePool == name })
		for _, n := range states[name] {
			if err := c.look(ctx, m, n, r); err != nil {
				return nil, err
			}
		}
		members = append(members, m)
	}
	if lo.SomeBy(members, func(m *member) bool { return m.uncounted }) {
		c.Buffers.TriggerReconcile()
	}
	return members, nil
}

func (c *Controller) rules(ctx context.Context) (r rules, err error) {
	if r.limits, err = pdb.NewLimits(ctx, c.Client); err != nil {
		return r, fmt.Errorf("tracking PodDisruptionBudgets, %w", err)
	}
	if c.Buffers != nil {
		list := &autoscalingv1beta1.CapacityBufferList{}
		if err := c.Client.List(ctx, list, client.Limit(1), client.UnsafeDisableDeepCopy); err != nil {
			return r, fmt.Errorf("listing capacity buffers, %w", err)
		}
		r.buffers = len(list.Items) > 0
	}
	return r, nil
}

// states are copies of what Karpenter knows of the NodePools' nodes. The objects in them are
// never changed in place.
func (c *Controller) states(nodePools []string) map[string][]*state.StateNode {
	wanted, existing := sets.New(nodePools...), sets.New[string]()
	found := map[string][]*state.StateNode{}
	for n := range c.Cluster.Nodes() {
		if n.Node == nil {
			continue
		}
		existing.Insert(n.Node.Name)
		if name := n.Labels()[karpv1.NodePoolLabelKey]; wanted.Has(name) {
			found[name] = append(found[name], n.ShallowCopy())
		}
	}
	c.ages.keep(existing)
	return found
}

// unstaged are the nodes that wait for no second look.
func (c *Controller) unstaged(nodes []*state.StateNode) []*state.StateNode {
	return lo.Filter(nodes, func(n *state.StateNode, _ int) bool { return c.staged[n.ProviderID()] == nil })
}

// look adds a node to the member, unless it is staged or not ready for work yet.
func (c *Controller) look(ctx context.Context, m *member, n *state.StateNode, r rules) error {
	if n.NodeClaim == nil || c.staged[n.ProviderID()] != nil {
		return nil
	}
	if !n.Initialized() {
		c.ages.forget(n.Node.Name)
		return nil
	}
	pods, err := podsOn(ctx, c.Client, n.Node.Name, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	if occupied(pods, c.Clock) != nil {
		c.ages.forget(n.Node.Name)
		return nil
	}
	s := Standing{Name: n.Node.Name, EmptySince: c.ages.of(n.Node.Name, c.Clock.Now())}
	s.Keep, s.Detail = c.keep(n, pods, r)
	if s.Keep == KeepNot && r.buffers && !c.Buffers.BuffersCounted().After(s.EmptySince) {
		s.Keep, m.uncounted = KeepWarm, true
	}
	m.nodes = append(m.nodes, s)
	m.states[s.Name] = n
	return nil
}

// keep says why a node that no pod occupies stays.
func (c *Controller) keep(n *state.StateNode, pods []*corev1.Pod, r rules) (Keep, string) {
	err := n.ValidateNodeDisruptable(c.Clock)
	switch {
	case err != nil && !state.IsNodeDoNotDisruptError(err):
		return KeepInUse, err.Error()
	case !c.slots.free(n.ProviderID()) && c.staged[n.ProviderID()] == nil:
		return KeepInUse, "Karpenter is about to disrupt it"
	case c.Cluster.HasBufferPods(n.ProviderID()):
		return KeepWarm, "it holds a capacity buffer"
	}
	if why := c.forbidden(n.Node, n.NodeClaim, pods, r); why != "" {
		return KeepForbidden, why
	}
	return KeepNot, ""
}

// forbidden says who forbids to disrupt the node; pods of DaemonSets may, as with Karpenter.
func (c *Controller) forbidden(node *corev1.Node, claim *karpv1.NodeClaim, pods []*corev1.Pod, r rules) string {
	const key = karpv1.DoNotDisruptAnnotationKey
	switch {
	case node.Annotations[key] == "true":
		return "the node has the annotation " + key
	case claim.Annotations[key] == "true":
		return "the NodeClaim has the annotation " + key
	}
	for _, pod := range pods {
		if !isDisruptable(pod, c.Clock) {
			return fmt.Sprintf("pod %s has the annotation %s", klog.KObj(pod), key)
		}
	}
	if keys, ok := r.limits.CanEvictPods(pods, c.Clock, nil); !ok {
		return fmt.Sprintf("PodDisruptionBudget %s lets no pod go", lo.FirstOrEmpty(keys))
	}
	return ""
}

// podsOn lists the pods that are bound to a node.
func podsOn(ctx context.Context, reader client.Reader, node string, opts ...client.ListOption) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := reader.List(ctx, list, append(opts, client.MatchingFields{"spec.nodeName": node})...); err != nil {
		return nil, fmt.Errorf("listing pods of node %s, %w", node, err)
	}
	return lo.ToSlicePtr(list.Items), nil
}
