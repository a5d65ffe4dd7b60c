package readiness

import (
	"time"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// DeadlineOf is when a node that is not verified is given up; ok is false when it has no
// deadline: before its launch, while it is verified, when it was at work before its pool
// gated, and when it broke within a boot in which it was verified: the last two are for node
// repair. After a reboot the time counts
// from when the gate was shut again.
func DeadlineOf(s Subject) (end time.Time, ok bool) {
	readiness := s.Pool.GPUPool.Spec.Readiness
	if readiness.GetGate() == v1alpha1.GateNone || s.Node != nil && Adopted(s.Node) {
		return time.Time{}, false
	}
	if s.Node != nil && VerifiedEver(s.Node) {
		since, closed := TaintedSince(s.Node)
		if VerifiedThisBoot(s.Node) || !closed {
			return time.Time{}, false
		}
		return since.Add(readiness.GetDeadline()), true
	}
	launched, ok := LaunchedAt(s.Claim)
	return launched.Add(readiness.GetDeadline()), ok
}
