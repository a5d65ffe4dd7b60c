package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// Decision is what would be launched for the pods that wait.
type Decision struct {
	// Nodes are the new ones, by NodePool, type and first pod.
	Nodes []Node
	// Price of the new nodes per hour.
	Price float64
	// Existing are pods that fit on nodes which are there, by pod.
	Existing []Placement
	// Unplaced says for each pod without a node, by namespace/name, why.
	Unplaced map[string]string
	// Scheduling is how long stock's scheduler took, Repacking the rest.
	Scheduling, Repacking time.Duration

	results scheduler.Results
}

// Placement is a pod on a node that is there.
type Placement struct{ Pod, Node string }

// Node is a node that would be launched, as its cheapest launch.
type Node struct {
	// NodePool, Type, Zone and CapacityType say what would be launched.
	NodePool, Type, Zone, CapacityType string
	// Price per hour.
	Price float64
	// Alternatives are the other types that the cloud may choose.
	Alternatives []string
	// Pods are namespace/name, sorted.
	Pods []string
	// Requests are those of the pods and daemons; Allocatable is what the node has.
	Requests, Allocatable corev1.ResourceList

	launch launch
}

type launch struct {
	it       *cloudprovider.InstanceType
	offering *cloudprovider.Offering
}

func (n Node) key() string {
	return strings.Join(append([]string{n.NodePool, n.Type}, n.Pods...), "|")
}

// newNode finds the cheapest launch of a claim as providers do: reserved before spot
// before on-demand, and within one the lowest price.
func newNode(c *scheduler.NodeClaim) (Node, error) {
	n := Node{NodePool: c.NodePoolName, Price: math.Inf(1), Requests: c.Spec.Resources.Requests}
	rank := math.MaxInt
	for _, it := range c.InstanceTypeOptions {
		for _, group := range it.AllocatableOfferingsList() {
			if !resources.Fits(n.Requests, group.Allocatable) {
				continue
			}
			for _, o := range group.Offerings.Launchable().Compatible(c.Requirements) {
				at := slices.Index(order, o.CapacityType())
				if c := cmp.Or(cmp.Compare(at, rank), cmp.Compare(o.Price, n.Price), strings.Compare(it.Name, n.Type)); c >= 0 {
					continue
				}
				rank = at
				n.Type, n.Zone, n.CapacityType, n.Price = it.Name, o.Zone(), o.CapacityType(), o.Price
				n.Allocatable, n.launch = group.Allocatable, launch{it, o}
			}
		}
	}
	if n.launch.it == nil {
		return n, fmt.Errorf("pricing a NodeClaim of NodePool %s, none of its %d types can be launched", c.NodePoolName, len(c.InstanceTypeOptions))
	}
	n.Alternatives = lo.FilterMap(c.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) (string, bool) { return it.Name, it.Name != n.Type })
	slices.Sort(n.Alternatives)
	n.Pods = lo.Map(c.Pods, func(p *corev1.Pod, _ int) string { return podKey(p) })
	slices.Sort(n.Pods)
	return n, nil
}

var order = []string{karpv1.CapacityTypeReserved, karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand}

// Launch brings the nodes of a decision up and binds all pods that it places.
func (w *World) Launch(ctx context.Context, d Decision) error {
	ctx = options.ToContext(ctx, w.options)
	for _, n := range d.results.ExistingNodes {
		for _, p := range n.Pods {
			if err := w.bind(ctx, p, n.Name()); err != nil {
				return err
			}
		}
	}
	for _, c := range d.results.NewNodeClaims {
		node, err := newNode(c)
		if err != nil {
			return err
		}
		w.launched++
		name := fmt.Sprintf("%s-%05d", c.NodePoolName, w.launched)
		if err := w.start(ctx, name, c.ToNodeClaim(), node); err != nil {
			return fmt.Errorf("starting node %s, %w", name, err)
		}
		for _, p := range c.Pods {
			if err := w.bind(ctx, p, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *World) start(ctx context.Context, name string, claim *karpv1.NodeClaim, n Node) error {
	labels := maps.Clone(claim.Labels)
	for key, q := range n.launch.it.Requirements {
		if q.Operator() == corev1.NodeSelectorOpIn && q.Len() == 1 {
			labels[key] = q.Any()
		}
	}
	for key, q := range n.launch.offering.Requirements {
		if q.Operator() == corev1.NodeSelectorOpIn {
			labels[key] = q.Any()
		}
	}
	capacity := lo.Assign(n.launch.it.Capacity, n.launch.offering.CapacityOverride)
	claim.Name, claim.UID, claim.GenerateName = name, types.UID(name), ""
	claim.CreationTimestamp = metav1.NewTime(w.clock.Now())
	claim.Labels = labels
	claim.Status = karpv1.NodeClaimStatus{ProviderID: "simulated://" + name, NodeName: name, Capacity: capacity, Allocatable: n.Allocatable}
	for _, c := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		claim.StatusConditions().SetTrue(c)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), CreationTimestamp: claim.CreationTimestamp, Labels: lo.Assign(labels, map[string]string{
			corev1.LabelHostname: name, karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true"})},
		Spec:   corev1.NodeSpec{ProviderID: claim.Status.ProviderID, Taints: claim.Spec.Taints},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: n.Allocatable, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, o := range []client.Object{claim, node} {
		if err := w.client.Create(ctx, o); err != nil {
			return err
		}
	}
	w.cluster.UpdateNodeClaim(claim)
	return w.cluster.UpdateNode(ctx, node)
}

func (w *World) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	p := &corev1.Pod{}
	if err := w.client.Get(ctx, client.ObjectKeyFromObject(pod), p); err != nil {
		return fmt.Errorf("reading pod %s, %w", podKey(pod), err)
	}
	p.Spec.NodeName = node
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	if err := w.client.Update(ctx, p); err != nil {
		return fmt.Errorf("binding pod %s, %w", podKey(pod), err)
	}
	return w.cluster.UpdatePod(ctx, p)
}
