package cloudprovider

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/sharing"
)

// candidate is a type that a NodeClaim fits, divided in one way.
type candidate struct {
	typed
	variant *variant // nil for types that know one way only
	price   float64  // of the cheapest launchable offering
	waste   int
}

// choice are the candidates that one launch may become. All have the same layout,
// because the labels that ask for it are set before the type is known.
type choice struct {
	layout string
	gpu    bool
	byName map[string]candidate
}

// group tells candidates apart that cannot share a launch.
type group struct {
	layout string
	gpu    bool
	// hidden keeps types whose GPUs the inner provider does not know of by themselves:
	// the AWS provider takes them for machines without GPUs, and drops all machines
	// with GPUs where it sees one without, however much dearer it is. It does not where
	// there are minValues, which often need both.
	hidden bool
}

// choose returns the launch for a NodeClaim: CPU-only types where nothing asks for
// a GPU, then the cheapest, then the least waste, then the first name.
func choose(its []typed, maxGPUs int, nodeClaim *karpv1.NodeClaim) (*choice, error) {
	reqs := requirementsOf(nodeClaim)
	requests := nodeClaim.Spec.Resources.Requests
	groups := map[group][]candidate{}
	for _, it := range its {
		for _, c := range candidates(it, maxGPUs, reqs, requests) {
			g := group{c.layoutName(), it.recipe.gpu, it.hidden && !reqs.HasMinValues()}
			groups[g] = append(groups[g], c)
		}
	}
	enough := lo.PickBy(groups, func(_ group, cs []candidate) bool { return meetsMinValues(cs, reqs) })
	if len(enough) == 0 {
		if len(groups) > 0 {
			return nil, fmt.Errorf("the types that fit %s with one layout do not meet the NodePool's minValues; lower minValues or allow more types", resources.String(requests))
		}
		return nil, fmt.Errorf("%w %s", errNothingFits, resources.String(requests))
	}
	gpus := asksForGPUs(requests)
	keys := slices.SortedFunc(keysOf(enough), func(a, b group) int {
		return cmp.Or(preference(a, gpus)-preference(b, gpus), best(enough[a]).compare(best(enough[b])), cmp.Compare(a.layout, b.layout), lo.Ternary(a.hidden, 1, 0)-lo.Ternary(b.hidden, 1, 0))
	})
	chosen := keys[0]
	return &choice{layout: chosen.layout, gpu: chosen.gpu, byName: lo.KeyBy(enough[chosen], func(c candidate) string { return c.Name })}, nil
}

func keysOf(groups map[group][]candidate) func(func(group) bool) {
	return func(yield func(group) bool) {
		for g := range groups {
			if !yield(g) {
				return
			}
		}
	}
}

// preference puts types without GPUs first where none is asked for.
func preference(g group, asked bool) int { return lo.Ternary(!asked && g.gpu, 1, 0) }

// candidates are the ways in which a NodeClaim fits a type. It mirrors what
// Karpenter's scheduler asks: one set of resources that holds all requests, with
// one launchable offering that is compatible.
func candidates(it typed, maxGPUs int, reqs scheduling.Requirements, requests corev1.ResourceList) []candidate {
	gpus := it.Capacity[v1alpha1.ResourceGPU]
	if it.recipe.gpu && gpus.Value() > int64(maxGPUs) || !reqs.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
		return nil
	}
	if len(it.variants) == 0 {
		return candidateOf(it, nil, it.Offerings, reqs, requests)
	}
	var fitting []candidate
	perVariant := len(it.Offerings) / len(it.variants)
	for i, v := range it.variants {
		fitting = append(fitting, candidateOf(it, v, it.Offerings[i*perVariant:(i+1)*perVariant], reqs, requests)...)
	}
	return fitting
}

func candidateOf(it typed, v *variant, offerings corecloudprovider.Offerings, reqs scheduling.Requirements, requests corev1.ResourceList) []candidate {
	launchable := offerings.Launchable().Compatible(reqs)
	if len(launchable) == 0 {
		return nil
	}
	c := candidate{typed: it, variant: v, price: math.Inf(1)}
	for _, allocatable := range it.AllocatableOfferingsList() {
		if !resources.Fits(requests, allocatable.Allocatable) {
			continue
		}
		for _, o := range allocatable.Offerings {
			if slices.Contains(launchable, o) {
				c.price = min(c.price, o.Price)
			}
		}
	}
	if math.IsInf(c.price, 1) {
		return nil
	}
	if v != nil {
		c.waste = v.waste(requests)
	}
	return []candidate{c}
}

func (c candidate) layoutName() string {
	if c.variant == nil {
		return ""
	}
	return c.variant.layout
}

func (c candidate) compare(o candidate) int {
	return cmp.Or(cmp.Compare(c.price, o.price), cmp.Compare(c.waste, o.waste))
}

// predicted are the labels that GPU feature discovery will set.
func (c candidate) predicted() map[string]string {
	if c.variant != nil {
		return c.variant.labels
	}
	return c.recipe.labels
}

func best(cs []candidate) candidate { return slices.MinFunc(cs, candidate.compare) }

func meetsMinValues(cs []candidate, reqs scheduling.Requirements) bool {
	if !reqs.HasMinValues() {
		return true
	}
	its := corecloudprovider.InstanceTypes(lo.Map(cs, func(c candidate, _ int) *corecloudprovider.InstanceType { return c.InstanceType }))
	_, _, err := its.SatisfiesMinValues(reqs)
	return err == nil
}

// names are the chosen types, sorted.
func (c *choice) names() []string {
	names := lo.Keys(c.byName)
	slices.Sort(names)
	return names
}

// mostGPUs is how many physical GPUs the launch may get.
func (c *choice) mostGPUs() int {
	most := 0
	for _, candidate := range c.byName {
		most = max(most, candidate.recipe.shape.GPUs)
	}
	return most
}

// gpusOf is how many physical GPUs the launch got.
func (c *choice) gpusOf(created *karpv1.NodeClaim) int {
	if candidate, ok := c.byName[created.Labels[corev1.LabelInstanceTypeStable]]; ok {
		return candidate.recipe.shape.GPUs
	}
	return c.mostGPUs()
}

// labels are those that the node must have from its first moment: they tell
// mig-manager and the device plugin what to do.
func (c *choice) labels(pool *pools.Pool) map[string]string {
	labels := map[string]string{v1alpha1.PoolLabelKey: pool.Name()}
	if c.layout != "" {
		labels[v1alpha1.LayoutLabelKey] = c.layout
		labels[v1alpha1.MIGConfigLabelKey] = c.layout
		if pool.GPUPool.Spec.Partitioning.MIG.Announces(v1alpha1.NeighborTensorFusion) {
			labels[v1alpha1.TensorFusionIsolationLabelKey] = v1alpha1.TensorFusionIsolationPartitioned
		}
	}
	if name := pool.Sharing.ConfigName(); name != "" && c.gpu {
		labels[sharing.ConfigLabel] = name
	}
	return labels
}
