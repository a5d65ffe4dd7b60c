package reclaim

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
)

// Occupies tells whether a pod keeps its node from being empty. All do but those of
// DaemonSets, those that the kubelet runs from files, those that have ended, and those whose
// end is overdue by a minute, because their kubelet does not answer.
func Occupies(pod *corev1.Pod, clk clock.Clock) bool {
	return !podutils.IsOwnedByDaemonSet(pod) && !podutils.IsOwnedByNode(pod) &&
		!podutils.IsTerminal(pod) && !podutils.IsStuckTerminating(pod, clk)
}

func occupied(pods []*corev1.Pod, clk clock.Clock) *corev1.Pod {
	for _, pod := range pods {
		if Occupies(pod, clk) {
			return pod
		}
	}
	return nil
}

// ages is since when nodes have been empty, as this process saw it: a restart begins the time
// anew, so that it never ends early. Pods tell of their end by events, and the rounds see the
// rest.
type ages struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// touch notes that a pod that occupies the node was there until now.
func (a *ages) touch(node string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since[node] = now
}

// of returns since when the node has been empty, now if it was not known to be.
func (a *ages) of(node string, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.since[node]; !ok {
		a.since[node] = now
	}
	return a.since[node]
}

// forget drops a node that holds work.
func (a *ages) forget(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, node)
}

// keep drops the nodes that do not exist any more.
func (a *ages) keep(existing sets.Set[string]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for node := range a.since {
		if !existing.Has(node) {
			delete(a.since, node)
		}
	}
}
