package stack

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

// audit keeps, from the API server's watches, when nodes were open for work and when pods with
// NVIDIA resources were bound to them. Both carry resource versions of one etcd, which order all
// changes of a cluster: what two watches deliver late or in another order is told apart by them.
type audit struct {
	mu    sync.Mutex
	nodes map[string][]phase // by name; a name is never used again in a run
	pods  map[string]bound   // by UID
}

// phase is the state of a node from one version on.
type phase struct {
	version uint64
	boot    string
	managed bool
	open    bool
}

type bound struct {
	pod     scenario.Pod
	version uint64
}

func newAudit() *audit { return &audit{nodes: map[string][]phase{}, pods: map[string]bound{}} }

// see takes in one state of a Node or Pod.
func (a *audit) see(obj any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch x := obj.(type) {
	case *corev1.Node:
		a.seeNode(x)
	case *corev1.Pod:
		if _, ok := a.pods[string(x.UID)]; !ok && x.Spec.NodeName != "" && WantsGPU(x) {
			a.pods[string(x.UID)] = bound{podOf(x), ResourceVersion(x.ResourceVersion)}
		}
	}
}

func (a *audit) seeNode(n *corev1.Node) {
	_, managed := n.Labels["karpenter.sh/nodepool"]
	p := phase{version: ResourceVersion(n.ResourceVersion), boot: n.Status.NodeInfo.BootID, managed: managed}
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.UnverifiedTaintKey })
	p.open = !tainted && n.Annotations[v1alpha1.VerifiedBootAnnotationKey] == p.boot
	history := a.nodes[n.Name]
	if last := len(history) - 1; last >= 0 && history[last].boot == p.boot && history[last].open == p.open && history[last].managed == p.managed {
		return
	}
	a.nodes[n.Name] = append(history, p)
}

// unverified lists the pods that were bound before their node was open in its boot.
func (a *audit) unverified() []scenario.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []scenario.Pod
	for _, b := range a.pods {
		if !verifiedBefore(a.nodes[b.pod.Node], b.version) {
			out = append(out, b.pod)
		}
	}
	return out
}

// verifiedBefore looks for an open phase of the boot that the node was in. One that was open and
// has been fenced since counts: a scheduler may bind by what it saw a moment ago.
func verifiedBefore(history []phase, at uint64) bool {
	boot, open, managed := "", false, len(history) > 0
	for _, p := range history {
		if p.version >= at {
			break
		}
		if p.boot != boot {
			boot, open = p.boot, false
		}
		open, managed = open || p.open, p.managed
	}
	return open || !managed
}

// WantsGPU reports whether a container of a pod is limited to NVIDIA's resources.
func WantsGPU(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		for name, q := range c.Resources.Limits {
			if strings.HasPrefix(string(name), "nvidia.com/") && !q.IsZero() {
				return true
			}
		}
		return false
	})
}

// ResourceVersion reads a resource version; those of etcd are numbers. 0 for anything else.
func ResourceVersion(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
