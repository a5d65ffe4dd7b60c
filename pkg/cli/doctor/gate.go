package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
)

const (
	// defaultHeartbeat is how often an agent reports when nothing has changed, as its
	// chart sets it; it spreads by a fifth.
	defaultHeartbeat = 5 * time.Minute
	// missed heartbeats make an agent silent.
	missed = 3
)

// tolerations looks for DaemonSets that would deadlock with the gate of any pool. Pools
// that the same DaemonSet blocks are told of together, those that then stand still first.
func (e *examination) tolerations() {
	always, relaxed := map[readiness.Blocker][]string{}, map[readiness.Blocker][]string{}
	var order []readiness.Blocker
	for _, pool := range e.pools {
		blockers, _ := e.gateOf(pool)
		for _, b := range append(blockers, e.unborn(pool)...) {
			if !slices.Contains(order, b) {
				order = append(order, b)
			}
			by := lo.Ternary(pool.GPUPool.Spec.Readiness.GetEnforce() == v1alpha1.EnforceAlways, always, relaxed)
			by[b] = append(by[b], pool.Name())
		}
	}
	for _, b := range order {
		var follows []string
		if names := always[b]; len(names) > 0 {
			follows = append(follows, fmt.Sprintf("no node of %s ever becomes ready, because readiness.enforce is Always", listed(names)))
		}
		if names := relaxed[b]; len(names) > 0 {
			follows = append(follows, fmt.Sprintf("%s does not gate, so that nodes take work before their GPUs are verified", listed(names)))
		}
		kind := lo.Ternary(b.Namespace == "", "ClusterPolicy "+b.Name, fmt.Sprintf("DaemonSet %s/%s", b.Namespace, b.Name))
		e.add(Finding{Severity: lo.Ternary(len(always[b]) > 0, Error, Warning), Reason: ReasonTaintNotTolerated, Object: kind,
			Message: fmt.Sprintf("nodes need it (%s) and it does not tolerate %s:%s: %s", b.Role, b.Taint.Key, b.Taint.Effect, strings.Join(follows, "; ")), Command: b.Fix})
	}
}

// roleOperands are the DaemonSets that the GPU Operator will make.
const roleOperands = readiness.Role("operands of the GPU Operator")

// unborn are ClusterPolicies whose DaemonSets are not among the facts, and will not
// tolerate the gate of a pool.
func (e *examination) unborn(pool *pools.Pool) []readiness.Blocker {
	if !gated(pool) {
		return nil
	}
	var out []readiness.Blocker
	for _, policy := range e.ClusterPolicies {
		if e.hasOperands(policy) || tolerates(policy, v1alpha1.UnverifiedTaint()) {
			continue
		}
		out = append(out, readiness.Blocker{Role: roleOperands, Name: policy.GetName(), Taint: v1alpha1.UnverifiedTaint(), Fix: tolerate(policy, v1alpha1.UnverifiedTaint())})
	}
	return out
}

func gated(pool *pools.Pool) bool {
	return pool.GPUPool.Spec.Readiness.GetGate() != v1alpha1.GateNone
}

// gateOf finds what blocks the gate of a pool, and whether an agent is meant to run.
func (e *examination) gateOf(pool *pools.Pool) (blockers []readiness.Blocker, agent bool) {
	list := lo.Map(e.DaemonSets, func(ds *appsv1.DaemonSet, _ int) appsv1.DaemonSet { return *ds })
	blockers, agent = readiness.Blockers(pool.GPUPool, e.members(pool.Name()), list)
	return lo.Ternary(gated(pool), blockers, nil), agent
}

// agents looks whether the agent is there, on every node, and talks.
func (e *examination) agents() {
	if !e.complete("DaemonSet", "Node", "Pod") {
		return
	}
	for _, pool := range e.pools {
		nodes := e.nodesOf(pool)
		_, agent := e.gateOf(pool)
		reports := lo.SomeBy(e.Nodes, func(n *corev1.Node) bool { return readiness.Condition(n) != nil })
		if !agent && !reports {
			if gated(pool) {
				e.agentMissing(pool)
			}
			continue
		}
		e.reports(pool, nodes)
	}
}

func (e *examination) agentMissing(pool *pools.Pool) {
	always := pool.GPUPool.Spec.Readiness.GetEnforce() == v1alpha1.EnforceAlways
	e.add(Finding{Severity: lo.Ternary(always, Error, Warning), Reason: ReasonAgentMissing, Object: "GPUPool " + pool.Name(),
		Message: "no GPU agent runs on its nodes: " + lo.Ternary(always, "none ever becomes ready, because readiness.enforce is Always", "the pool does not gate, and broken GPUs are not noticed"),
		Command: fmt.Sprintf("helm upgrade --install gpu-agent %s --namespace %s", agentChart, e.controller.namespace())})
}

// nodesOf are the registered nodes of a pool that have GPUs, by name.
func (e *examination) nodesOf(pool *pools.Pool) []*corev1.Node {
	out := lo.Filter(e.Nodes, func(n *corev1.Node, _ int) bool {
		shape, known := e.Cloud.Catalog.Shape(n.Labels[corev1.LabelInstanceTypeStable])
		return slices.Contains(pool.NodePools, n.Labels[karpv1.NodePoolLabelKey]) && (!known || shape.HasGPU())
	})
	slices.SortFunc(out, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// reports tells of nodes without an agent, and of agents that have fallen silent. A node
// gets the time that its pool gives it to become ready: an agent's container does not
// start before the driver is loaded.
func (e *examination) reports(pool *pools.Pool, nodes []*corev1.Node) {
	var absent, silent []string
	patience, boot := missed*e.heartbeat(), pool.GPUPool.Spec.Readiness.GetDeadline()
	for _, n := range nodes {
		condition := readiness.Condition(n)
		switch {
		case condition == nil && e.Now.Sub(n.CreationTimestamp.Time) > boot && !e.agentOn(n):
			absent = append(absent, n.Name)
		case condition != nil && e.Now.Sub(condition.LastHeartbeatTime.Time) > patience:
			silent = append(silent, n.Name)
		}
	}
	object := "GPUPool " + pool.Name()
	if len(absent) > 0 {
		e.add(Finding{Severity: Warning, Reason: ReasonAgentNotOnNode, Object: object, Message: "no GPU agent runs on " + listed(absent) + ": its GPUs are not verified and not watched",
			Fix: "let the agent's DaemonSet select the node and tolerate its taints", Command: "kubectl get pods --all-namespaces --output wide --field-selector spec.nodeName=" + absent[0]})
	}
	if len(silent) > 0 {
		e.add(Finding{Severity: Warning, Reason: ReasonAgentSilent, Object: object,
			Message: fmt.Sprintf("the GPU agent has not reported for more than %s from %s: a GPU that breaks there is not noticed", patience, listed(silent)),
			Fix:     "look at the agent's log on that node", Command: "kubectl get pods --all-namespaces --output wide --field-selector spec.nodeName=" + silent[0]})
	}
}

// agentOn says whether a pod of the agent's DaemonSet runs on a node.
func (e *examination) agentOn(n *corev1.Node) bool {
	return lo.SomeBy(e.Pods, func(p *corev1.Pod) bool {
		owner := metav1.GetControllerOf(p)
		return p.Spec.NodeName == n.Name && p.Status.Phase == corev1.PodRunning && owner != nil && owner.Kind == "DaemonSet" && lo.SomeBy(e.DaemonSets, func(ds *appsv1.DaemonSet) bool {
			role, ok := readiness.RoleOf(ds)
			return ok && role == readiness.RoleAgent && ds.Namespace == p.Namespace && ds.Name == owner.Name
		})
	})
}

// heartbeat is the longest that an agent's DaemonSet sets.
func (e *examination) heartbeat() time.Duration {
	longest := defaultHeartbeat
	for _, ds := range e.DaemonSets {
		if role, ok := readiness.RoleOf(ds); !ok || role != readiness.RoleAgent {
			continue
		}
		for _, c := range ds.Spec.Template.Spec.Containers {
			for _, arg := range c.Args {
				if d, err := time.ParseDuration(strings.TrimPrefix(arg, "--heartbeat=")); err == nil && strings.HasPrefix(arg, "--heartbeat=") {
					longest = max(longest, d)
				}
			}
		}
	}
	return longest
}
