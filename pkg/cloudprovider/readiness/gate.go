package readiness

import (
	"context"
	"fmt"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

// Safety says whether the gate of a pool can open again once it is shut.
type Safety struct {
	Safe bool
	// Reason is one of the reasons of the condition GateSafe, Message a sentence for a person.
	Reason, Message string
	Blockers        []Blocker
}

// Gate answers whether nodes of a pool are gated. It reads the cache on each question: the
// answer follows DaemonSets as they change.
type Gate struct {
	reader client.Reader
}

// NewGate returns a Gate that reads NodePools, DaemonSets and Nodes.
func NewGate(reader client.Reader) *Gate { return &Gate{reader: reader} }

// InForce reports whether nodes of the pool are gated: a gate that would deadlock is not,
// unless the pool enforces it.
func (g *Gate) InForce(ctx context.Context, pool *pools.Pool) (bool, error) {
	readiness := &pool.GPUPool.Spec.Readiness
	switch {
	case readiness.GetGate() == v1alpha1.GateNone:
		return false, nil
	case readiness.GetEnforce() == v1alpha1.EnforceAlways:
		return true, nil
	}
	safety, err := g.Safety(ctx, pool)
	return safety.Safe, err
}

// Safety looks for what would keep the gate of a pool shut for ever.
func (g *Gate) Safety(ctx context.Context, pool *pools.Pool) (Safety, error) {
	if pool.GPUPool.Spec.Readiness.GetGate() == v1alpha1.GateNone {
		return Safety{Safe: true, Reason: v1alpha1.ReasonGateDisabled, Message: "readiness.gate is None: nodes take work before their GPUs are verified"}, nil
	}
	nodePools, err := g.nodePools(ctx, pool)
	if err != nil {
		return Safety{}, err
	}
	list := &appsv1.DaemonSetList{}
	if err := g.reader.List(ctx, list); err != nil {
		return Safety{}, fmt.Errorf("listing daemon sets, %w", err)
	}
	blockers, agent := Blockers(pool.GPUPool, nodePools, list.Items)
	if len(blockers) > 0 {
		return Safety{Reason: v1alpha1.ReasonTaintNotTolerated, Message: blocked(pool.GPUPool, blockers), Blockers: blockers}, nil
	}
	if !agent {
		if agent, err = g.agentSeen(ctx); err != nil {
			return Safety{}, err
		}
	}
	if !agent {
		return Safety{Reason: v1alpha1.ReasonAgentMissing, Message: "no GPU agent reports from these nodes; install the chart gpu-agent, or run the agent from the image" + consequence(pool.GPUPool)}, nil
	}
	return Safety{Safe: true}, nil
}

func (g *Gate) nodePools(ctx context.Context, pool *pools.Pool) ([]*karpv1.NodePool, error) {
	var out []*karpv1.NodePool
	for _, name := range pool.NodePools {
		np := &karpv1.NodePool{}
		if err := g.reader.Get(ctx, types.NamespacedName{Name: name}, np); err != nil {
			if client.IgnoreNotFound(err) == nil {
				continue
			}
			return nil, fmt.Errorf("getting node pool %s, %w", name, err)
		}
		out = append(out, np)
	}
	return out, nil
}

// agentSeen looks for an agent that is no DaemonSet of ours: it has set its condition.
func (g *Gate) agentSeen(ctx context.Context) (bool, error) {
	nodes := &corev1.NodeList{}
	if err := g.reader.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing nodes, %w", err)
	}
	return lo.SomeBy(nodes.Items, func(n corev1.Node) bool { return Condition(&n) != nil }), nil
}

// maxBlockersTold bounds a condition's message, which may have 32 KiB; a cluster has one
// stack of GPU software.
const maxBlockersTold = 10

func blocked(pool *v1alpha1.GPUPool, blockers []Blocker) string {
	told := lo.Map(lo.Slice(blockers, 0, maxBlockersTold), func(b Blocker, _ int) string { return b.String() })
	return strings.Join(told, "\n") + consequence(pool)
}

func consequence(pool *v1alpha1.GPUPool) string {
	if pool.Spec.Readiness.GetEnforce() == v1alpha1.EnforceAlways {
		return ". Until then no node of the pool becomes ready, because readiness.enforce is Always"
	}
	return ". Until then nodes of the pool are not gated"
}
