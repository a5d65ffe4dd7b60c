package reclaim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpmetrics "sigs.k8s.io/karpenter/pkg/metrics"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"
	"sigs.k8s.io/karpenter/pkg/utils/pretty"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// blocked says why nodes that are due have to stay; the reason is empty if none has to.
func blocked(members []*member, after time.Duration) (reason, message string) {
	var parts []string
	for _, m := range members {
		if n := m.decision.Forbidden; len(n) > 0 {
			reason = v1alpha1.ReasonDoNotDisrupt
			parts = append(parts, fmt.Sprintf("NodePool %s: %s kept though empty for %s, such as %s: %s",
				m.nodePool.Name, nodes(len(n)), after, n[0].Name, n[0].Detail))
		}
	}
	for _, m := range members {
		if n := m.decision.OverBudget; len(n) > 0 {
			reason = lo.CoalesceOrEmpty(reason, v1alpha1.ReasonBudgetBlocks)
			parts = append(parts, fmt.Sprintf("NodePool %s: %s waiting for its disruption budgets, such as %s; "+
				`to let empty nodes go at once give it a budget of "100%%" for the reason Empty, and reasons to those budgets that have none`,
				m.nodePool.Name, nodes(len(n)), n[0].Name))
		}
	}
	return reason, strings.Join(parts, ". ")
}

func nodes(n int) string { return fmt.Sprintf("%d %s", n, lo.Ternary(n == 1, "node", "nodes")) }

// tellRemoved counts a node that goes, for us and as Karpenter counts its own.
func (c *Controller) tellRemoved(ctx context.Context, m *member, s *staged, now seen) {
	empty := c.Clock.Since(s.emptySince)
	log.FromContext(ctx).WithValues(s.logValues()...).Info("removing empty node", "empty-for", empty.String())
	for _, e := range RemovedEvents(now.node, now.claim, s.pool, empty) {
		c.Recorder.Publish(e)
	}
	removed.Inc(poolLabels(s.pool))
	emptySeconds.Observe(empty.Seconds(), poolLabels(s.pool))
	karpmetrics.NodeClaimsDisruptedTotal.Inc(map[string]string{
		karpmetrics.ReasonLabel:              strings.ToLower(string(karpv1.DisruptionReasonEmpty)),
		karpmetrics.NodePoolLabel:            s.nodePool,
		karpmetrics.CapacityTypeLabel:        now.claim.Labels[karpv1.CapacityTypeLabelKey],
		karpmetrics.ConsolidationPolicyLabel: pretty.ToSnakeCase(string(m.nodePool.Spec.Disruption.ConsolidationPolicy)),
		karpmetrics.TerminationModeLabel:     nodeclaimutils.DisruptionTerminationMode(now.claim),
	})
}
