//go:build linux

package node_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/deviceplugin"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/stack"
)

// record keeps, from the API server's watches, in which boots a node was opened and which
// containers with GPUs started on it. Resource versions of one etcd order both.
type record struct {
	mu     sync.Mutex
	boots  map[string][]boot // by node
	starts map[string]start  // by container ID
}

// boot is one boot of a node, from the version in which the node first told of it.
type boot struct {
	id      string
	version uint64
	// opened is the version in which the node was first open for work in this boot, and openedAt
	// when that was seen; zero while it was not.
	opened   uint64
	openedAt time.Time
}

type start struct {
	pod, node string
	version   uint64
}

func startRecord(t *testing.T, kube kubernetes.Interface) *record {
	t.Helper()
	r := &record{boots: map[string][]boot{}, starts: map[string]start{}}
	factory := informers.NewSharedInformerFactory(kube, 0)
	for _, informer := range []cache.SharedIndexInformer{factory.Core().V1().Nodes().Informer(), factory.Core().V1().Pods().Informer()} {
		see := func(obj any) { r.see(obj, time.Now()) }
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }}); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	factory.Start(done)
	factory.WaitForCacheSync(done)
	t.Cleanup(func() { close(done); factory.Shutdown() })
	return r
}

func (r *record) see(obj any, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch x := obj.(type) {
	case *corev1.Node:
		r.seeNode(x, now)
	case *corev1.Pod:
		r.seePod(x)
	}
}

func (r *record) seeNode(n *corev1.Node, now time.Time) {
	boots := r.boots[n.Name]
	if last := len(boots) - 1; last < 0 || boots[last].id != n.Status.NodeInfo.BootID {
		boots = append(boots, boot{id: n.Status.NodeInfo.BootID, version: stack.ResourceVersion(n.ResourceVersion)})
	}
	b := &boots[len(boots)-1]
	if b.opened == 0 && !tainted(n) && n.Annotations[v1alpha1.VerifiedBootAnnotationKey] == b.id {
		b.opened, b.openedAt = stack.ResourceVersion(n.ResourceVersion), now
	}
	r.boots[n.Name] = boots
}

func (r *record) seePod(p *corev1.Pod) {
	if !stack.WantsGPU(p) {
		return
	}
	for _, c := range p.Status.ContainerStatuses {
		if _, known := r.starts[c.ContainerID]; !known && c.ContainerID != "" && (c.State.Running != nil || c.State.Terminated != nil) {
			r.starts[c.ContainerID] = start{pod: p.Namespace + "/" + p.Name, node: p.Spec.NodeName, version: stack.ResourceVersion(p.ResourceVersion)}
		}
	}
}

// early lists the containers with GPUs that started before their node was opened in its boot.
func (r *record) early() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.starts {
		boots := r.boots[s.node]
		for _, b := range slices.Backward(boots) {
			if b.version < s.version {
				if b.opened == 0 || b.opened > s.version {
					list = append(list, fmt.Sprintf("%s started at version %d, in boot %s from version %d, opened at %d", s.pod, s.version, b.id, b.version, b.opened))
				}
				break
			}
		}
	}
	slices.Sort(list)
	return list
}

// check holds the API server's record, and the kubelet's own word to the device plugin, against
// the gate.
func (r *record) check(t *testing.T, entries []deviceplugin.Entry) {
	t.Helper()
	if early := r.early(); len(early) > 0 {
		t.Errorf("containers with GPUs started before verification: %v", early)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.starts) == 0 {
		t.Error("the record shows no container with GPUs: it proves nothing")
	}
	first, allocated := r.firstOpened(), 0
	for _, e := range entries {
		if e.Event != deviceplugin.Allocated {
			continue
		}
		allocated++
		// The watch that told of the opening may be slower than the one that the scheduler has.
		if e.Time.Before(first.Add(-time.Second)) {
			t.Errorf("the kubelet asked for %v at %s, before the node was opened at %s", e.Devices, e.Time, first)
		}
	}
	if allocated == 0 {
		t.Error("the kubelet has asked the device plugin for nothing")
	}
	t.Logf("record: %d containers with GPUs started, %d allocations, none before verification", len(r.starts), allocated)
}

// firstOpened is when a node was seen open for the first time. The lock is held.
func (r *record) firstOpened() (first time.Time) {
	for _, boots := range r.boots {
		for _, b := range boots {
			if first.IsZero() || !b.openedAt.IsZero() && b.openedAt.Before(first) {
				first = b.openedAt
			}
		}
	}
	return first
}

func TestRecord(t *testing.T) {
	at := time.Unix(0, 0)
	node := func(v int, boot, verified string, open bool) *corev1.Node {
		n := &corev1.Node{}
		n.Name, n.ResourceVersion = "n", strconv.Itoa(v)
		n.Status.NodeInfo.BootID = boot
		n.Annotations = map[string]string{v1alpha1.VerifiedBootAnnotationKey: verified}
		if !open {
			n.Spec.Taints = []corev1.Taint{v1alpha1.UnverifiedTaint()}
		}
		return n
	}
	for name, tc := range map[string]struct {
		version int
		early   bool
	}{
		"before the opening":               {15, true},
		"after it":                         {25, false},
		"fenced since":                     {35, false},
		"in the next boot, before it":      {45, true},
		"in the next boot, when it opened": {55, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &record{boots: map[string][]boot{}, starts: map[string]start{"c": {pod: "default/p", node: "n", version: uint64(tc.version)}}}
			for _, n := range []*corev1.Node{
				node(10, "1", "", false), node(20, "1", "1", true), node(30, "1", "1", false), node(40, "2", "1", true), node(41, "2", "1", false), node(50, "2", "2", true),
			} {
				r.see(n, at)
			}
			if got := len(r.early()) > 0; got != tc.early {
				t.Errorf("early is %t, want %t: %v", got, tc.early, r.early())
			}
		})
	}
}
