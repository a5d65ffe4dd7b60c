package warm

import (
	"context"
	"errors"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/warm/prepull"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// count fills the tallies from where the space stands, and has images pulled there.
func (c *Controller) count(ctx context.Context, p *v1alpha1.GPUPool, demands []*demand) error {
	nodes := map[string]*corev1.Node{}
	for _, d := range demands {
		for _, s := range d.slots {
			if err := c.addNodes(ctx, nodes, s); err != nil {
				return err
			}
		}
	}
	report, err := c.puller.Sync(ctx, p.Name, c.needs(demands, nodes))
	if err != nil {
		return err
	}
	for _, d := range demands {
		for _, s := range d.slots {
			c.countSlot(d, s, nodes, report)
		}
		if d.problem == nil && len(d.entry.Images) > 0 && d.ready < d.wanted {
			if failure := report.Failure(d.entry.Images); failure != "" {
				d.problem = &problem{v1alpha1.ReasonFilling, failure}
			}
		}
	}
	return nil
}

func (c *Controller) addNodes(ctx context.Context, nodes map[string]*corev1.Node, s *slot) error {
	for _, key := range s.keys() {
		space, _ := c.Spaces.Of(key)
		for _, held := range space.Nodes {
			if held.Node == "" || nodes[held.Node] != nil {
				continue
			}
			node := &corev1.Node{}
			if err := c.Client.Get(ctx, types.NamespacedName{Name: held.Node}, node); err != nil {
				if client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("getting node %s, %w", held.Node, err)
				}
				continue // it has gone since the provisioner looked
			}
			nodes[held.Node] = node
		}
	}
	return nil
}

// keys are the buffers in which the space of a slot stands: the user's and ours.
func (s *slot) keys() []types.NamespacedName {
	return append(lo.Map(s.credits, func(c credit, _ int) types.NamespacedName { return c.key }), s.key)
}

// needs are the images that nodes with space have to hold.
func (c *Controller) needs(demands []*demand, nodes map[string]*corev1.Node) map[string]*prepull.Need {
	out := map[string]*prepull.Need{}
	for _, d := range demands {
		if len(d.entry.Images) == 0 {
			continue
		}
		for _, key := range lo.FlatMap(d.slots, func(s *slot, _ int) []types.NamespacedName { return s.keys() }) {
			space, _ := c.Spaces.Of(key)
			for _, held := range space.Nodes {
				if node := nodes[held.Node]; node != nil && node.DeletionTimestamp.IsZero() {
					need := lo.CoalesceOrEmpty(out[held.Node], &prepull.Need{Node: node})
					need.Images = lo.Uniq(append(need.Images, d.entry.Images...))
					need.Secrets = lo.Uniq(append(need.Secrets, d.entry.ImagePullSecrets...))
					out[held.Node] = need
				}
			}
		}
	}
	return out
}

func (c *Controller) countSlot(d *demand, s *slot, nodes map[string]*corev1.Node, report *prepull.Report) {
	wanted := max(0, s.wanted)
	d.wanted += wanted
	var ready, coming int
	var gpus float64
	for _, own := range append(lo.Map(s.credits, func(c credit, _ int) credit { return c }), credit{key: s.key, units: s.rendered(), each: 1}) {
		space, known := c.Spaces.Of(own.key)
		d.known = d.known || known
		here, flying := 0, space.Launching*own.each
		for _, held := range space.Nodes {
			if node := nodes[held.Node]; node != nil && isReady(node) && report.Holds(held.Node, d.entry.Images) {
				here += held.Pods * own.each
				gpus += held.GPUs
				continue
			}
			flying += held.Pods * own.each
		}
		ready += min(here, own.units)
		coming += min(flying, own.units-min(here, own.units))
		if own.key == s.key {
			d.explain(space)
		}
	}
	d.ready, d.provisioning = d.ready+min(ready, wanted), d.provisioning+min(coming, wanted-min(ready, wanted))
	d.gpus += gpus
}

// isReady reports whether a pod that is bound to the node now would run: the node is
// initialized, and verified where the pool verifies nodes.
func isReady(node *corev1.Node) bool {
	if node.Labels[karpv1.NodeInitializedLabelKey] != "true" || !node.DeletionTimestamp.IsZero() || node.Spec.Unschedulable {
		return false
	}
	switch readiness.StateOf(node) {
	case readiness.StateVerified, readiness.StateDegraded, readiness.StateUnverified:
		return true
	}
	return false
}

// explain turns what keeps virtual pods from their place into a problem of the entry.
func (d *demand) explain(space provisioning.Space) {
	if space.Waiting == 0 || space.Why == nil || d.problem != nil {
		return
	}
	d.problem = &problem{v1alpha1.ReasonFilling, "no node can be launched for it: " + space.Why.Error()}
	var refusal provisioning.Refusal
	if !errors.As(space.Why, &refusal) {
		return
	}
	d.problem.message = refusal.Message
	switch refusal.Kind {
	case provisioning.RefusedGPULimit, provisioning.RefusedPriceLimit, provisioning.RefusedWarmPrice:
		d.problem.reason = v1alpha1.ReasonBudgetReached
	}
}
