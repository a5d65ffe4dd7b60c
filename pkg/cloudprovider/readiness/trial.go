package readiness

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
)

// LaunchedAt is when the provider answered the launch; ok is false before.
func LaunchedAt(claim *karpv1.NodeClaim) (at time.Time, ok bool) {
	condition := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched)
	if !condition.IsTrue() {
		return time.Time{}, false
	}
	return condition.LastTransitionTime.Time, true
}

// TrialOf is a NodeClaim as the book of trials keeps it. Launches are ordered by the
// creation of their NodeClaims, which the status does not change.
func TrialOf(claim *karpv1.NodeClaim, pool *pools.Pool) trials.Trial {
	t := trials.Trial{
		UID: claim.UID, Pool: pool.Name(), Launched: claim.CreationTimestamp.Time,
		Offering: trials.Offering{
			InstanceType: claim.Labels[corev1.LabelInstanceTypeStable],
			Zone:         claim.Labels[corev1.LabelTopologyZone],
			Image:        claim.Status.ImageID,
		},
	}
	if claim.Spec.NodeClassRef != nil {
		t.Offering.NodeClass = claim.Spec.NodeClassRef.Name
	}
	return t
}
