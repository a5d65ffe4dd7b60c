package readiness

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// DefaultRepairToleration is how long a fault must last before node repair acts. It is what
// the AWS provider gives GPU faults of known kinds.
const DefaultRepairToleration = 10 * time.Minute

// drainBound is how long repair waits for pods to leave. A node with broken GPUs is no place
// to stay, and without a bound a pod that blocks its eviction would keep it.
const drainBound = 5 * time.Minute

// repairPolicies returns the inner policies with ours for the agent's condition appended.
// The slice is new: the inner provider may share its own.
//
// Ours are disjoint in the reasons that they match, and every fatal reason of the agent is in
// one of them, so that none of them is the one default which a set may have. Only the status
// False is listed: Unknown is what a node shows while it starts, and a listed status counts
// towards Karpenter's breaker whatever its age.
func repairPolicies(inner []corecloudprovider.RepairPolicy, toleration time.Duration, reboot bool) []corecloudprovider.RepairPolicy {
	if len(inner) == 0 {
		return inner // the provider has no repair, and a set without a default is refused
	}
	policy := func(reasons []health.Reason, action corecloudprovider.RepairAction, priority int) corecloudprovider.RepairPolicy {
		return corecloudprovider.RepairPolicy{
			ConditionType: v1alpha1.NodeConditionGPUReady, ConditionStatus: corev1.ConditionFalse,
			ReasonRegex: anyOf(reasons), TolerationDuration: toleration,
			TerminationGracePeriod: lo.ToPtr(drainBound), Priority: priority, Action: action,
		}
	}
	rebooted, replaced := byCure()
	return append(slices.Clone(inner),
		policy(rebooted, lo.Ternary(reboot, corecloudprovider.RebootNode, corecloudprovider.ReplaceNode), 0),
		policy(replaced, corecloudprovider.ReplaceNode, 0),
	)
}

// byCure parts the fatal reasons into those that a reboot may cure and the rest. A GPU
// reset is a reboot to Karpenter, which has nothing milder.
func byCure() (rebooted, replaced []health.Reason) {
	for _, r := range health.Reasons() {
		switch r.Action {
		case health.ActionReboot, health.ActionReset:
			rebooted = append(rebooted, r.Reason)
		default:
			replaced = append(replaced, r.Reason)
		}
	}
	return rebooted, replaced
}

func anyOf(reasons []health.Reason) string {
	names := lo.Map(reasons, func(r health.Reason, _ int) string { return string(r) })
	return fmt.Sprintf("^(%s)$", strings.Join(names, "|"))
}
