package readiness

import (
	"strings"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
)

// The bounds of status.avoided, as its CRD has them: one value that is too long would have
// the API server refuse the whole status.
const (
	maxAvoided = 64
	maxReason  = 256
)

// Avoided is what the status of a pool tells of offerings whose nodes fail verification, and
// what Recall reads after a restart. Times have seconds, as the API server keeps them.
func Avoided(book *trials.Book, pool string) []v1alpha1.AvoidedOffering {
	memories := book.Memories(pool, maxAvoided)
	if len(memories) == 0 {
		return nil
	}
	return lo.Map(memories, func(m trials.Memory, _ int) v1alpha1.AvoidedOffering {
		return v1alpha1.AvoidedOffering{
			NodeClass: m.NodeClass, InstanceType: m.InstanceType, Zone: m.Zone, Image: m.Image,
			Failures: int32(m.Failures), Reason: lo.Substring(m.Reason, 0, maxReason), //nolint:gosec // bounded by the book
			LastLaunch: metav1.NewTime(m.Launched).Rfc3339Copy(), Until: metav1.NewTime(m.Until).Rfc3339Copy(),
		}
	})
}

// Recall takes over into the book what the status of a pool tells of its earlier trials: a
// storm, and offerings that are set aside. Whoever is about to ask the book or to tell it of
// a failure calls it first; it does something once for each pool and process.
func Recall(book *trials.Book, gpuPool *v1alpha1.GPUPool) {
	for i := range gpuPool.Status.Conditions {
		told := &gpuPool.Status.Conditions[i]
		if told.Type == v1alpha1.ConditionTypeVerificationHealthy && told.IsFalse() {
			reason, message, _ := strings.Cut(told.Message, ": ")
			book.Resume(gpuPool.Name, trials.Storm{
				Reason: reason, Message: message, Failures: trials.StormFailures, Since: told.LastTransitionTime.Time,
			})
		}
	}
	book.Restore(gpuPool.Name, lo.Map(gpuPool.Status.Avoided, func(a v1alpha1.AvoidedOffering, _ int) trials.Memory {
		return trials.Memory{Launched: a.LastLaunch.Time, Avoidance: trials.Avoidance{
			Offering: trials.Offering{NodeClass: a.NodeClass, InstanceType: a.InstanceType, Zone: a.Zone, Image: a.Image},
			Until:    a.Until.Time, Failures: int(a.Failures), Reason: a.Reason,
		}}
	}))
}
