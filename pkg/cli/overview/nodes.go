package overview

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
)

// States of nodes beside those of package readiness.
const (
	// StateLaunching is a NodeClaim without a Node.
	StateLaunching = "Launching"
	// StateDeleting is a Node or NodeClaim that is being deleted.
	StateDeleting = "Deleting"
)

// awaiting is the reason that a condition has before anybody has set it.
const awaiting = "AwaitingReconciliation"

// nodesOf describes the nodes of a pool and returns those that have registered. A
// NodeClaim and its Node are one.
func (in *Input) nodesOf(pool string, nodePools []string) ([]Node, []*corev1.Node) {
	byProvider := lo.KeyBy(lo.Filter(in.Nodes, func(n *corev1.Node, _ int) bool { return n.Spec.ProviderID != "" }), func(n *corev1.Node) string { return n.Spec.ProviderID })
	var out []Node
	var registered []*corev1.Node
	claimed := map[string]bool{}
	for _, claim := range in.NodeClaims {
		if !belongs(claim.Labels, pool, nodePools) {
			continue
		}
		node := byProvider[claim.Status.ProviderID]
		if claim.Status.ProviderID == "" {
			node = nil
		}
		if node != nil {
			claimed[node.Name] = true
			registered = append(registered, node)
		}
		out = append(out, in.describe(pool, claim, node))
	}
	for _, node := range in.Nodes { // whose NodeClaim has gone
		if belongs(node.Labels, pool, nodePools) && !claimed[node.Name] {
			registered = append(registered, node)
			out = append(out, in.describe(pool, nil, node))
		}
	}
	slices.SortFunc(out, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Title(), b.Title()), cmp.Compare(a.NodeClaim, b.NodeClaim))
	})
	return out, registered
}

// belongs follows the NodePool; an object of no NodePool is where its own label says.
func belongs(labels map[string]string, pool string, nodePools []string) bool {
	if np, ok := labels[karpv1.NodePoolLabelKey]; ok {
		return slices.Contains(nodePools, np)
	}
	return labels[v1alpha1.PoolLabelKey] == pool
}

func (in *Input) describe(pool string, claim *karpv1.NodeClaim, node *corev1.Node) Node {
	n := Node{GPUPool: pool}
	labels, created := map[string]string{}, in.Now
	if node != nil {
		n.Name, labels, created = node.Name, node.Labels, node.CreationTimestamp.Time
	}
	if claim != nil {
		n.NodeClaim, created = claim.Name, claim.CreationTimestamp.Time
		labels = lo.Assign(labels, claim.Labels) // a kubelet may change labels of its own node
	}
	n.NodePool, n.InstanceType = labels[karpv1.NodePoolLabelKey], labels[corev1.LabelInstanceTypeStable]
	n.CapacityType, n.Zone, n.Layout = labels[karpv1.CapacityTypeLabelKey], labels[corev1.LabelTopologyZone], labels[v1alpha1.LayoutLabelKey]
	if shape, ok := in.Catalog.Shape(n.InstanceType); ok {
		n.GPUs = shape.GPUs
	}
	n.AgeSeconds = int64(max(0, in.Now.Sub(created)).Seconds())
	n.State, n.Reason, n.Message = stateOf(claim, node)
	return n
}

// stateOf tells the state and, for nodes that are not well, why.
func stateOf(claim *karpv1.NodeClaim, node *corev1.Node) (state, reason, message string) {
	switch {
	case claim != nil && !claim.DeletionTimestamp.IsZero() || node != nil && !node.DeletionTimestamp.IsZero():
		return StateDeleting, "", ""
	case node == nil:
		reason, message = waiting(claim)
		return StateLaunching, reason, message
	}
	s := readiness.StateOf(node)
	switch s {
	case readiness.StateVerified, readiness.StateNoGPU, readiness.StateUnverified:
		return string(s), "", ""
	}
	reason, message = told(node)
	return string(s), reason, message
}

// waiting is why a NodeClaim has not been launched, as far as Karpenter says. One that is
// launched and has no Node yet is on its way.
func waiting(claim *karpv1.NodeClaim) (reason, message string) {
	for _, c := range claim.GetConditions() {
		if c.Type == karpv1.ConditionTypeLaunched && !c.IsTrue() && c.Reason != awaiting {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

// told is what the agent says, or that it says nothing.
func told(node *corev1.Node) (reason, message string) {
	if state := node.Labels[v1alpha1.MIGConfigStateLabelKey]; state == "failed" {
		return "MIGConfigFailed", "mig-manager could not apply the layout " + node.Labels[v1alpha1.MIGConfigLabelKey] + "; its log on the node says why"
	}
	condition := readiness.Condition(node)
	if condition == nil {
		return readiness.ReasonNoReport, "the GPU agent has not reported from this node"
	}
	if condition.Status == corev1.ConditionTrue {
		return "", "" // the controller has not caught up, or waits for the device plugin
	}
	return condition.Reason, condition.Message
}

// resourcesOf sums up NVIDIA's resources over nodes, and what pods hold of them.
func resourcesOf(nodes []*corev1.Node, pods []*corev1.Pod) []Resource {
	offered, asked, on := map[string]int64{}, map[string]int64{}, map[string]bool{}
	for _, n := range nodes {
		on[n.Name] = true
		count(offered, n.Status.Allocatable)
	}
	for _, p := range pods {
		if on[p.Spec.NodeName] && !podutils.IsTerminal(p) {
			count(asked, resources.RequestsForPods(p))
		}
	}
	return lo.Map(slices.Sorted(maps.Keys(lo.Assign(offered, asked))), func(name string, _ int) Resource {
		return Resource{Name: name, Allocatable: offered[name], Requested: asked[name]}
	})
}

// count adds NVIDIA's resources to sums by name.
func count(sums map[string]int64, list corev1.ResourceList) {
	for name, q := range list {
		if isGPU(name) && !q.IsZero() {
			sums[string(name)] += q.Value()
		}
	}
}

func isGPU(name corev1.ResourceName) bool { return strings.HasPrefix(string(name), "nvidia.com/") }
