package status

import (
	"fmt"
	"slices"
	"strings"

	operatorstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// named is how many things a message names before it says how many more there are.
const named = 5

func validate(conditions operatorstatus.ConditionSet, p *v1alpha1.GPUPool) {
	if err := p.RuntimeValidate(pools.Names{}); err != nil {
		conditions.SetFalse(v1alpha1.ConditionTypeValidationSucceeded, v1alpha1.ReasonInvalidSpec,
			fmt.Sprintf("The NodePools of this pool behave as plain Karpenter until the spec is corrected: %s", err))
		return
	}
	conditions.SetTrue(v1alpha1.ConditionTypeValidationSucceeded)
}

func resolveNodePools(conditions operatorstatus.ConditionSet, members []member) {
	if len(members) == 0 {
		conditions.SetFalse(v1alpha1.ConditionTypeNodePoolsResolved, v1alpha1.ReasonNoNodePools,
			"No NodePool has the label "+v1alpha1.PoolLabelKey+" with the name of this pool; set it in metadata.labels of a NodePool")
		return
	}
	var problems []string
	for _, m := range members {
		switch ready := m.nodePool.StatusConditions().Get(operatorstatus.ConditionReady); {
		case !m.nodePool.DeletionTimestamp.IsZero():
			problems = append(problems, m.nodePool.Name+" is being deleted")
		case ready.IsFalse():
			problems = append(problems, fmt.Sprintf("%s is not ready: %s", m.nodePool.Name, whyNotReady(m.nodePool)))
		case m.typesErr != nil:
			problems = append(problems, fmt.Sprintf("%s has no instance types: %s", m.nodePool.Name, m.typesErr))
		case len(m.shapes) == 0:
			problems = append(problems, m.nodePool.Name+" allows no instance type with NVIDIA GPUs; widen its requirements, or take it out of the pool")
		}
	}
	if len(problems) > 0 {
		conditions.SetFalse(v1alpha1.ConditionTypeNodePoolsResolved, v1alpha1.ReasonNodePoolsNotReady, "NodePools cannot be used: "+list(problems, "; "))
		return
	}
	conditions.SetTrue(v1alpha1.ConditionTypeNodePoolsResolved)
}

// holdBacks says which rule of the pool keeps pods waiting. Whether the cloud has
// capacity is told by the events of the NodeClaims that fail; CapacityAvailable stands
// here only for maxUnusedGPUs.
func holdBacks(conditions operatorstatus.ConditionSet, p *v1alpha1.GPUPool, holds *provisioning.Holds) {
	if refusal, ok := holds.Of(p.Name, provisioning.RefusedGPULimit, provisioning.RefusedPriceLimit); ok {
		conditions.SetFalse(v1alpha1.ConditionTypeWithinLimits, string(refusal.Kind), refusal.Message)
	} else {
		conditions.SetTrue(v1alpha1.ConditionTypeWithinLimits)
	}
	if refusal, ok := holds.Of(p.Name, provisioning.RefusedOversize); ok {
		conditions.SetFalse(v1alpha1.ConditionTypeCapacityAvailable, string(refusal.Kind), refusal.Message)
	} else {
		_ = conditions.Clear(v1alpha1.ConditionTypeCapacityAvailable)
	}
}

// whyNotReady gathers the conditions that keep a NodePool from being ready; its own
// condition Ready names them without their messages.
func whyNotReady(n *karpv1.NodePool) string {
	var reasons []string
	for _, c := range n.GetConditions() {
		if c.Type != operatorstatus.ConditionReady && c.IsFalse() {
			reasons = append(reasons, lo.CoalesceOrEmpty(c.Message, c.Type+" is False"))
		}
	}
	slices.Sort(reasons)
	return strings.Join(reasons, ", ")
}

// support says which of the allowed types can be divided as the pool asks.
func support(conditions operatorstatus.ConditionSet, p *v1alpha1.GPUPool, pool *pools.Pool, members []member) {
	const condition = v1alpha1.ConditionTypePartitioningSupported
	if pool == nil {
		conditions.SetUnknownWithReason(condition, "NotResolved", "The pool has not been resolved; see the condition "+v1alpha1.ConditionTypeValidationSucceeded)
		return
	}
	supported, excluded := divide(pool, members)
	missing := missingNames(p.Spec.Partitioning, pool, supported)
	switch {
	case len(supported) == 0 && len(excluded) == 0:
		conditions.SetUnknownWithReason(condition, "NoTypes", "No NodePool of the pool allows an instance type with NVIDIA GPUs")
	case len(supported) == 0:
		conditions.SetFalse(condition, v1alpha1.ReasonNoSupportedTypes,
			"No instance type that the NodePools allow can be divided so: "+list(excluded, "; ")+"; allow other types, or change spec.partitioning")
	case len(excluded) > 0 || len(missing) > 0:
		parts := []string{}
		if len(excluded) > 0 {
			parts = append(parts, "left out: "+list(excluded, "; "))
		}
		if len(missing) > 0 {
			parts = append(parts, "on no allowed type: "+list(missing, ", "))
		}
		conditions.SetTrueWithReason(condition, v1alpha1.ReasonTypesExcluded, strings.Join(parts, ". "))
	default:
		conditions.SetTrue(condition)
	}
}

// divide sorts the types of all members into those that the pool can use and the
// reasons for the others, each once.
func divide(pool *pools.Pool, members []member) (supported []catalog.Shape, excluded []string) {
	seen := map[string]bool{}
	for _, m := range members {
		for _, shape := range m.shapes {
			if seen[shape.Name] {
				continue
			}
			seen[shape.Name] = true
			if err := pool.Supports(shape); err != nil {
				excluded = append(excluded, fmt.Sprintf("%s (%s)", shape.Name, err))
				continue
			}
			supported = append(supported, shape)
		}
	}
	slices.Sort(excluded)
	return supported, excluded
}

// missingNames are the layouts and profiles of the spec that no usable type has.
func missingNames(p *v1alpha1.Partitioning, pool *pools.Pool, supported []catalog.Shape) []string {
	if p.Kind() != v1alpha1.PartitioningMIG {
		return nil
	}
	offered := map[string]bool{}
	for _, shape := range supported {
		for _, l := range pool.MIG.Layouts(shape) {
			offered[l.Name()] = true
			for _, part := range l.Parts() {
				for profile := range part.Layout().Counts() {
					offered[profile] = true
				}
			}
		}
	}
	return lo.Filter(append(slices.Clone(p.MIG.Layouts), p.MIG.Profiles...), func(name string, _ int) bool { return !offered[name] })
}

// list joins a few of many.
func list(all []string, separator string) string {
	if len(all) <= named {
		return strings.Join(all, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:named], separator), len(all)-named)
}
