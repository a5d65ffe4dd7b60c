// Package simulate runs stock's decision and the right-sized one in memory: no API
// server, no cloud, nothing launched.
//
// A World holds NodePools, GPUPools, instance types and whatever else the scheduler
// reads, in an in-memory client that is the source of data here and no test double.
// The decisions are those of the code that runs in the controller. Arrive plays pods
// in batches: nodes of a decision come up at once, as its cheapest launch, and later
// pods use what is free on them. What the scheduler learns from a cloud over time
// (failed launches, prices that move) is left out.
package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	stock "sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// Input is what the scheduler reads.
type Input struct {
	// NodePools count as ready, whatever their status says.
	NodePools []*karpv1.NodePool
	// GPUPools are those that the NodePools may have joined.
	GPUPools []*v1alpha1.GPUPool
	// Objects are nodes, pods that run, DaemonSets, volumes and classes of them.
	Objects []client.Object
	// InstanceTypes answers for a NodePool as CloudProvider.GetInstanceTypes does.
	InstanceTypes func(context.Context, *karpv1.NodePool) ([]*cloudprovider.InstanceType, error)
	// Catalog of GPUs; nil is the built-in one.
	Catalog *catalog.Catalog
	// Options of Karpenter; nil is Karpenter's defaults.
	Options *options.Options
	// Clock measures and dates.
	Clock clock.Clock
	// Iterations of the search; zero is the controller's.
	Iterations int
}

// World is a cluster in memory. It is not safe for concurrent use.
type World struct {
	client   client.Client
	cluster  *state.Cluster
	stock    *stock.Provisioner
	sizer    *provisioning.RightSizer
	options  *options.Options
	clock    clock.Clock
	launched int
}

// New returns a World without pods that wait.
func New(ctx context.Context, in Input) (*World, error) {
	w := &World{options: in.Options, clock: in.Clock}
	if w.options == nil {
		w.options = defaultOptions()
	}
	objects := slices.Clone(in.Objects)
	for _, np := range in.NodePools {
		objects = append(objects, ready(np))
	}
	for _, p := range in.GPUPools {
		objects = append(objects, p.DeepCopy())
	}
	w.client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).
		WithStatusSubresource(&karpv1.NodePool{}, &karpv1.NodeClaim{}, &corev1.Node{}, &corev1.Pod{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		Build()
	ledger := provisioning.NewLedger(w.client, in.Clock, provisioning.GPUs{Catalog: in.Catalog})
	provider := provisioning.Guard(newProvider(in), provisioning.GuardOptions{Client: w.client, Clock: in.Clock, Ledger: ledger})
	w.cluster = state.NewCluster(in.Clock, w.client, provider)
	w.stock = stock.NewProvisioner(w.client, silent{}, provider, w.cluster, in.Clock, deviceallocation.NewController(w.client), virtualpods.NewVirtualPodCache(w.client))
	w.sizer = &provisioning.RightSizer{Client: w.client, Cluster: w.cluster, Clock: in.Clock, Ledger: ledger, Iterations: in.Iterations}
	return w, w.fill(ctx, in.Objects)
}

// fill tells the cluster state of what is there already.
func (w *World) fill(ctx context.Context, objects []client.Object) error {
	ctx = options.ToContext(ctx, w.options)
	for _, o := range objects {
		if n, ok := o.(*karpv1.NodeClaim); ok {
			w.cluster.UpdateNodeClaim(n.DeepCopy())
		}
	}
	for _, o := range objects {
		if n, ok := o.(*corev1.Node); ok {
			if err := w.cluster.UpdateNode(ctx, n.DeepCopy()); err != nil {
				return fmt.Errorf("adding node %s, %w", n.Name, err)
			}
		}
	}
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			if err := w.cluster.UpdatePod(ctx, p.DeepCopy()); err != nil {
				return fmt.Errorf("adding pod %s/%s, %w", p.Namespace, p.Name, err)
			}
		}
	}
	return nil
}

func ready(np *karpv1.NodePool) *karpv1.NodePool {
	np = np.DeepCopy()
	if np.UID == "" {
		np.UID = types.UID(np.Name)
	}
	for _, c := range []string{karpv1.ConditionTypeValidationSucceeded, karpv1.ConditionTypeNodeClassReady} {
		np.StatusConditions().SetTrue(c)
	}
	return np
}

// Add puts pods into the World that wait for a node. They are copied.
func (w *World) Add(ctx context.Context, pods ...*corev1.Pod) error {
	for i, p := range pods {
		p = p.DeepCopy()
		if p.Namespace == "" {
			p.Namespace = metav1.NamespaceDefault
		}
		if p.UID == "" {
			p.UID = types.UID(p.Namespace + "/" + p.Name)
		}
		defaultRequests(p)
		p.Spec.NodeName = ""
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}
		if err := w.client.Create(ctx, p); err != nil {
			return fmt.Errorf("adding pods[%d] %s/%s, %w", i, p.Namespace, p.Name, err)
		}
	}
	return nil
}

// defaultRequests fills in what the API server does: a limit without a request is one.
func defaultRequests(p *corev1.Pod) {
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			containers[i].Resources.Requests = lo.Assign(containers[i].Resources.Limits, containers[i].Resources.Requests)
		}
	}
}

// Stock is the decision of Karpenter alone for the pods that wait.
func (w *World) Stock(ctx context.Context) (Decision, error) { return w.decide(ctx, false) }

// RightSized is the decision that would be launched.
func (w *World) RightSized(ctx context.Context) (Decision, error) { return w.decide(ctx, true) }

func (w *World) decide(ctx context.Context, rightSize bool) (Decision, error) {
	ctx, seen := provisioning.Watch(options.ToContext(ctx, w.options))
	start := w.clock.Now()
	results, err := w.stock.Schedule(ctx)
	if err != nil {
		return Decision{}, fmt.Errorf("scheduling, %w", err)
	}
	d := Decision{Scheduling: w.clock.Since(start), Unplaced: map[string]string{}}
	for p, err := range results.PodErrors {
		d.Unplaced[podKey(p)] = err.Error()
	}
	if rightSize {
		start = w.clock.Now()
		ours := w.sizer.Decide(ctx, results, seen)
		d.Repacking = w.clock.Since(start)
		results.NewNodeClaims = ours.Claims
		for _, r := range ours.Refused {
			d.Unplaced[podKey(r.Pod)] = r.Refusal.Message
		}
	}
	d.results = results
	for _, c := range results.NewNodeClaims {
		node, err := newNode(c)
		if err != nil {
			return Decision{}, err
		}
		d.Nodes, d.Price = append(d.Nodes, node), d.Price+node.Price
	}
	slices.SortStableFunc(d.Nodes, func(a, b Node) int { return strings.Compare(a.key(), b.key()) })
	for _, n := range results.ExistingNodes {
		for _, p := range n.Pods {
			d.Existing = append(d.Existing, Placement{Pod: podKey(p), Node: n.Name()})
		}
	}
	slices.SortFunc(d.Existing, func(a, b Placement) int { return strings.Compare(a.Pod, b.Pod) })
	return d, nil
}

func podKey(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// silent drops events: a decision says all that they would.
type silent struct{}

// Publish implements events.Recorder.
func (silent) Publish(...events.Event) {}
