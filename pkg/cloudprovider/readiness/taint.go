package readiness

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

func init() {
	// The slice is not locked, so it may change in init only. With the prefix in it the
	// scheduler plans with nodes that still carry the taint, and a NodeClaim is initialized
	// only once the taint has gone.
	scheduling.KnownEphemeralTaintKeyPrefixes = append(scheduling.KnownEphemeralTaintKeyPrefixes, v1alpha1.ReadinessTaintKeyPrefix)
}

// Tainted reports whether the node carries the taint of the gate.
func Tainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, isOurs)
}

// TaintedSince is when we added the taint to a node that had been at work; ok is false
// for a taint that the node registered with.
func TaintedSince(node *corev1.Node) (since time.Time, ok bool) {
	for _, t := range node.Spec.Taints {
		if isOurs(t) && t.TimeAdded != nil {
			return t.TimeAdded.Time, true
		}
	}
	return time.Time{}, false
}

// Close adds the taint of the gate, dated now, and reports whether the node changed.
func Close(node *corev1.Node, now time.Time) bool {
	if Tainted(node) {
		return false
	}
	t := v1alpha1.UnverifiedTaint()
	// Unlike a kubelet's, this one is dated: the deadline of a node that was at work before
	// counts from here. The API keeps whole seconds.
	t.TimeAdded = &metav1.Time{Time: now.Truncate(time.Second)}
	node.Spec.Taints = append(node.Spec.Taints, t)
	return true
}

// Open removes the taint of the gate and no other, and reports whether the node changed.
func Open(node *corev1.Node) bool {
	if !Tainted(node) {
		return false
	}
	node.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), isOurs)
	return true
}

func isOurs(t corev1.Taint) bool {
	return t.Key == v1alpha1.UnverifiedTaintKey && t.Effect == corev1.TaintEffectNoSchedule
}

// withStartupTaint returns the taints with that of the gate, unless the NodePool lists it.
func withStartupTaint(startup []corev1.Taint) []corev1.Taint {
	if slices.ContainsFunc(startup, isOurs) {
		return startup
	}
	return append(slices.Clone(startup), v1alpha1.UnverifiedTaint())
}
