package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

var nodeClaims = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}

// observer keeps caches of what snapshots show.
type observer struct {
	typed   informers.SharedInformerFactory
	dynamic dynamicinformer.DynamicSharedInformerFactory
	done    chan struct{}
	once    sync.Once

	mu        sync.Mutex
	disrupted map[string]scenario.Pod // by UID, like the next two
	gonePods  map[string]scenario.Pod
	goneNodes map[string]scenario.Node
	created   map[string]time.Time
	startup   map[string]time.Duration
	audit     *audit
	clock     clock.PassiveClock
}

func newObserver(k kubernetes.Interface, d dynamic.Interface, clk clock.PassiveClock) *observer {
	return &observer{
		typed:     informers.NewSharedInformerFactory(k, 0),
		dynamic:   dynamicinformer.NewDynamicSharedInformerFactory(d, 0),
		done:      make(chan struct{}),
		disrupted: map[string]scenario.Pod{},
		gonePods:  map[string]scenario.Pod{},
		goneNodes: map[string]scenario.Node{},
		created:   map[string]time.Time{},
		startup:   map[string]time.Duration{},
		audit:     newAudit(),
		clock:     clk,
	}
}

func (o *observer) start(ctx context.Context) error {
	core := o.typed.Core().V1()
	watched := []cache.SharedIndexInformer{core.Pods().Informer(), core.Nodes().Informer(), core.Events().Informer(), o.dynamic.ForResource(nodeClaims).Informer()}
	_, err := core.Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: o.note, UpdateFunc: func(_, obj any) { o.note(obj) },
		DeleteFunc: o.remember,
	})
	if err != nil {
		return fmt.Errorf("watching pods, %w", err)
	}
	if _, err := core.Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: o.remember}); err != nil {
		return fmt.Errorf("watching nodes, %w", err)
	}
	for _, i := range watched[:2] {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: o.audit.see, UpdateFunc: func(_, obj any) { o.audit.see(obj) }}); err != nil {
			return fmt.Errorf("auditing, %w", err)
		}
	}
	o.typed.Start(o.done)
	o.dynamic.Start(o.done)
	for _, i := range watched {
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return errors.New("filling caches, the start ended first")
		}
	}
	return nil
}

func (o *observer) stop() {
	o.once.Do(func() { close(o.done) })
	o.typed.Shutdown()
	o.dynamic.Shutdown()
}

// note remembers disrupted pods: KWOK removes them at once, so that a look at what exists would
// miss them.
func (o *observer) note(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	o.time(pod)
	if pod.Status.Phase == corev1.PodSucceeded {
		return
	}
	if p := podOf(pod); p.Disruption != "" {
		p.LateTaint = p.Disruption == deletionByTaintManager && !o.noExecute(p.Node)
		o.mu.Lock()
		defer o.mu.Unlock()
		if _, known := o.disrupted[string(pod.UID)]; !known { // what follows happens to its node later
			o.disrupted[string(pod.UID)] = p
		}
	}
}

// time notes when a pod was first seen, and how long after that it ran.
func (o *observer) time(pod *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	uid := string(pod.UID)
	if _, seen := o.created[uid]; !seen {
		o.created[uid] = o.clock.Now()
	}
	if _, seen := o.startup[uid]; !seen && pod.Status.Phase == corev1.PodRunning {
		o.startup[uid] = o.clock.Since(o.created[uid])
	}
}

// startupOf returns how long a pod took to run, zero while it has not.
func (o *observer) startupOf(pod *corev1.Pod) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.startup[string(pod.UID)]
}

// deletionByTaintManager is the reason that Kubernetes's taint eviction controller gives.
const deletionByTaintManager = "DeletionByTaintManager"

// noExecute says whether a node has gone or carries a taint that ends pods.
func (o *observer) noExecute(node string) bool {
	n, err := o.typed.Core().V1().Nodes().Lister().Get(node)
	return err != nil || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
}

// remember keeps the last state of what was deleted.
func (o *observer) remember(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o.note(obj)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch x := obj.(type) {
	case *corev1.Pod:
		pod := podOf(x)
		pod.Startup = o.startup[string(x.UID)]
		o.gonePods[string(x.UID)] = pod
	case *corev1.Node:
		o.goneNodes[string(x.UID)] = nodeOf(x)
	}
}

// Observe returns the state of the sandbox. A controller that ended by itself is an error.
func (s *Stack) Observe(ctx context.Context, refs []scenario.Ref) (*scenario.Snapshot, error) {
	if err := s.ControllerExit(); err != nil {
		return nil, err
	}
	snapshot := &scenario.Snapshot{Conditions: map[scenario.Ref][]scenario.Condition{}}
	existing := s.watch.fill(snapshot)
	snapshot.Cloud = s.account(existing)
	for _, ref := range refs {
		o, err := s.objects.get(ctx, ref)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("getting %s, %w", ref, err)
		}
		snapshot.Conditions[ref] = conditionsOf(o)
	}
	return snapshot, nil
}

// fill copies the caches into the snapshot and returns what the cluster owns of the cloud.
func (o *observer) fill(s *scenario.Snapshot) *aws.Existing {
	core := o.typed.Core().V1()
	existing := &aws.Existing{NodeClaims: []string{}, ProviderIDs: []string{}}
	for _, obj := range core.Pods().Informer().GetStore().List() {
		pod := podOf(obj.(*corev1.Pod))
		pod.Startup = o.startupOf(obj.(*corev1.Pod))
		s.Pods = append(s.Pods, pod)
	}
	for _, obj := range core.Nodes().Informer().GetStore().List() {
		n := obj.(*corev1.Node)
		s.Nodes = append(s.Nodes, nodeOf(n))
	}
	for _, obj := range core.Events().Informer().GetStore().List() {
		e := obj.(*corev1.Event)
		s.Events = append(s.Events, scenario.Event{Kind: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name, Reason: e.Reason, Message: e.Message})
	}
	for _, obj := range o.dynamic.ForResource(nodeClaims).Informer().GetStore().List() {
		claim := obj.(*unstructured.Unstructured)
		s.NodeClaims = append(s.NodeClaims, claim.GetName())
		if id, _, _ := unstructured.NestedString(claim.Object, "status", "providerID"); id != "" {
			existing.ProviderIDs = append(existing.ProviderIDs, id)
		}
	}
	o.mu.Lock()
	s.Disrupted = slices.Collect(maps.Values(o.disrupted))
	s.GonePods = slices.Collect(maps.Values(o.gonePods))
	s.GoneNodes = slices.Collect(maps.Values(o.goneNodes))
	o.mu.Unlock()
	s.Unverified = o.audit.unverified()
	order(s)
	existing.NodeClaims = append(existing.NodeClaims, s.NodeClaims...)
	return existing
}

// order makes snapshots of the same state equal.
func order(s *scenario.Snapshot) {
	byName := func(a, b scenario.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(s.Pods, byName)
	slices.SortFunc(s.Disrupted, byName)
	slices.SortFunc(s.GonePods, byName)
	slices.SortFunc(s.Unverified, byName)
	nodes := func(a, b scenario.Node) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(s.Nodes, nodes)
	slices.SortFunc(s.GoneNodes, nodes)
	slices.Sort(s.NodeClaims)
	slices.SortFunc(s.Events, func(a, b scenario.Event) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
}

func podOf(p *corev1.Pod) scenario.Pod {
	out := scenario.Pod{Namespace: p.Namespace, Name: p.Name, Phase: string(p.Status.Phase), Node: p.Spec.NodeName, Labels: p.Labels}
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue:
			out.Disruption = c.Reason
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
			out.Waiting = c.Message
		}
	}
	return out
}

func nodeOf(n *corev1.Node) scenario.Node {
	out := scenario.Node{Name: n.Name, Labels: n.Labels, Cordoned: n.Spec.Unschedulable, Allocatable: map[string]int64{}}
	for _, t := range n.Spec.Taints {
		out.Taints = append(out.Taints, t.Key)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	for name, q := range n.Status.Allocatable {
		out.Allocatable[string(name)] = q.Value()
	}
	return out
}
