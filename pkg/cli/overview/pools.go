package overview

import (
	"fmt"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
)

// Reasons of problems that no condition tells of.
const (
	// ReasonNotObserved: no controller has looked at the GPUPool.
	ReasonNotObserved = "NotObserved"
	// ReasonStatusOutdated: the status speaks of an earlier spec.
	ReasonStatusOutdated = "StatusOutdated"
	// ReasonWarmShort: a warm entry has less ready than it wants.
	ReasonWarmShort = "WarmShort"
)

func describe(p *v1alpha1.GPUPool, nodePools []string) Pool {
	pool := Pool{
		Name: p.Name, NodePools: nodePools, Partitioning: p.Spec.Partitioning.Kind(), Nodes: p.Status.Nodes, GPUs: p.Status.GPUs,
		GPULimit: p.Spec.Limits.GPUs, PricePerHour: p.Status.PricePerHour, PriceLimit: p.Spec.Limits.PricePerHour,
		Layouts: p.Status.Layouts, Warm: p.Status.Warm, Ready: string(metav1.ConditionUnknown),
	}
	switch pool.Partitioning {
	case v1alpha1.PartitioningMIG:
		pool.Detail = string(p.Spec.Partitioning.MIG.GetStrategy())
	case v1alpha1.PartitioningTimeSlicing, v1alpha1.PartitioningMPS:
		pool.Detail = fmt.Sprint(p.Spec.Partitioning.Replicas())
	}
	if c := stored(p, status.ConditionReady); c != nil {
		pool.Ready = string(c.Status)
	}
	return pool
}

// stored is a condition as it was written; nil where there is none.
func stored(p *v1alpha1.GPUPool, kind string) *status.Condition {
	c, ok := lo.Find(p.Status.Conditions, func(c status.Condition) bool { return c.Type == kind })
	return lo.Ternary(ok, &c, nil)
}

// poolConditions are told in this order: first what the spec gets wrong, then how it fares.
var poolConditions = []string{
	v1alpha1.ConditionTypeValidationSucceeded, v1alpha1.ConditionTypeNodePoolsResolved, v1alpha1.ConditionTypePartitioningSupported, v1alpha1.ConditionTypeGateSafe,
	v1alpha1.ConditionTypeCapacityAvailable, v1alpha1.ConditionTypeVerificationHealthy, v1alpha1.ConditionTypeGPUsHealthy, v1alpha1.ConditionTypeWithinLimits,
	v1alpha1.ConditionTypeWarmCapacityReady, v1alpha1.ConditionTypeReclaimUnblocked,
}

func poolProblems(p *v1alpha1.GPUPool) []Problem {
	object := "GPUPool " + p.Name
	switch {
	case p.Status.ObservedGeneration == 0:
		return []Problem{{object, ReasonNotObserved, "no controller has looked at this pool; run kubectl gpupool doctor to see whether karpenter-gpu runs"}}
	case p.Status.ObservedGeneration < p.Generation:
		return []Problem{{object, ReasonStatusOutdated, "the status speaks of an earlier spec; if this stays, run kubectl gpupool doctor to see whether karpenter-gpu runs"}}
	}
	var out []Problem
	for _, kind := range poolConditions {
		if c := stored(p, kind); c != nil && c.IsFalse() {
			out = append(out, Problem{object, c.Reason, lo.CoalesceOrEmpty(c.Message, c.Type+" is False")})
		}
	}
	for _, w := range p.Status.Warm {
		if w.Ready < w.Wanted && w.Message != "" {
			out = append(out, Problem{object, ReasonWarmShort, fmt.Sprintf("warm entry %s has %d of %d ready: %s", w.Name, w.Ready, w.Wanted, w.Message)})
		}
	}
	return out
}

func nodeProblems(n Node) []Problem {
	object := lo.Ternary(n.Name == "", "NodeClaim ", "Node ") + n.Title()
	switch {
	case n.Reason != "":
		return []Problem{{object, n.Reason, lo.CoalesceOrEmpty(n.Message, "the node is "+n.State)}}
	case n.State == string(readiness.StateFaulty):
		return []Problem{{object, n.State, "the node is fenced; kubectl describe node says why"}}
	}
	return nil
}
