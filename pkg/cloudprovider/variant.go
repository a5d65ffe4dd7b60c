package cloudprovider

import (
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// variant is one way in which the GPUs of a type can be divided: a MIG layout, or
// renamed replicas. Types that know one way only have no variants.
type variant struct {
	// layout is the value of the layout label; empty for none.
	layout string
	// retired variants are in the catalogue for the nodes that carry them, and are
	// never launched.
	retired bool
	// override is what the variant offers in place of the base capacity; nil where
	// that is the same.
	override corev1.ResourceList
	// labels are those that GPU feature discovery will set.
	labels map[string]string
	// requirements are those in which the variants of a type differ.
	requirements map[string]*scheduling.Requirement
	// units are the memory units of all partitions by resource, and stranded those
	// that none of them covers.
	units    map[corev1.ResourceName]int
	stranded int
}

// migVariants returns the layouts of a type: whole GPUs first, because Karpenter
// takes offerings without override for the base, then by name.
func migVariants(v *view, shape catalog.Shape) []*variant {
	var variants []*variant
	for _, l := range v.pool.MIG.Layouts(shape) {
		if v.layout == "" || v.layout == l.Name() {
			variants = append(variants, layoutVariant(v.pool, shape, l))
		}
	}
	slices.SortStableFunc(variants, func(a, b *variant) int {
		return lo.Ternary(a.override == nil, 0, 1) - lo.Ternary(b.override == nil, 0, 1)
	})
	for _, name := range v.pool.MIG.Retired {
		variants = append(variants, &variant{layout: name, retired: true})
	}
	return variants
}

// layoutVariant describes a layout that the pool has for the shape, which is why
// the errors cannot happen.
func layoutVariant(pool *pools.Pool, shape catalog.Shape, l mig.NodeLayout) *variant {
	v := &variant{layout: l.Name(), labels: catalog.Labels(shape, pool.State(shape, l)), units: map[corev1.ResourceName]int{}}
	offered, _ := l.Resources(pool.MIG.Strategy, shape.GPUs)
	if whole, ok := offered[mig.WholeGPUResource]; !ok || len(offered) > 1 || whole != shape.GPUs || enabled(l, shape.GPUs) {
		v.override = corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("0")}
		for name, n := range offered {
			v.override[corev1.ResourceName(name)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
	}
	gpus, _ := l.Layouts(shape.GPUs)
	for _, gpu := range gpus {
		v.weigh(gpu, pool.MIG.Strategy)
	}
	return v
}

func enabled(l mig.NodeLayout, gpus int) bool {
	layouts, _ := l.Layouts(gpus)
	return slices.ContainsFunc(layouts, mig.Layout.MIGEnabled)
}

// weigh adds one GPU to the units.
func (v *variant) weigh(gpu mig.Layout, strategy mig.Strategy) {
	g := gpu.Geometry()
	if !gpu.MIGEnabled() {
		total, known := g.MemoryUnits()
		v.units[v1alpha1.ResourceGPU] += lo.Ternary(known, total, g.ComputeSlices())
		return
	}
	v.stranded += gpu.Stranded().MemoryUnits
	for name, n := range gpu.Counts() {
		p, err := g.Profile(name)
		if err != nil {
			continue
		}
		size, known := p.MemorySlices()
		key := lo.Ternary(strategy == mig.Single, v1alpha1.ResourceGPU, corev1.ResourceName(p.ResourceName()))
		v.units[key] += n * lo.Ternary(known, size, p.ComputeSlices())
	}
}

// waste is how much of the GPUs is of no use to requests like these: what is
// stranded, and partitions of kinds that nobody asks for. Spare partitions of
// kinds that are asked for are no waste, as the next pod may want one.
func (v *variant) waste(requests corev1.ResourceList) int {
	sum := v.stranded
	for name, n := range v.units {
		if q, ok := requests[name]; !ok || q.IsZero() {
			sum += n
		}
	}
	return sum
}

// valuesOf returns the values that variants have for a label, sorted, and whether
// any of them lacks it.
func valuesOf(variants []*variant, key string) (sorted []string, missing bool) {
	values := map[string]bool{}
	for _, v := range variants {
		if value, ok := v.labels[key]; ok {
			values[value] = true
		} else {
			missing = true
		}
	}
	return slices.Sorted(maps.Keys(values)), missing
}

// eachOwn gives each variant its own value of a label as requirement.
func eachOwn(variants []*variant, key string) {
	for _, v := range variants {
		v.requirements[key] = absent[key]
		if value, ok := v.labels[key]; ok {
			v.requirements[key] = in(key, value)
		}
	}
}

// differ gives each variant the requirements in which it is unlike the others,
// and returns what all have in common. A key that some variants lack is
// DoesNotExist on those and left out of the common part, where it would exclude
// one side or the other.
func differ(variants []*variant, settled map[string]bool) (common map[string]*scheduling.Requirement) {
	common = map[string]*scheduling.Requirement{}
	live := lo.Filter(variants, func(v *variant, _ int) bool { return !v.retired })
	for _, v := range variants {
		v.requirements = map[string]*scheduling.Requirement{}
	}
	for _, key := range predictedKeys {
		if settled[key] {
			continue
		}
		sorted, missing := valuesOf(live, key)
		switch {
		case len(sorted) == 0:
			common[key] = absent[key]
		case len(sorted) == 1 && !missing:
			common[key] = in(key, sorted...)
		default:
			if !missing {
				common[key] = in(key, sorted...)
			}
			eachOwn(live, key)
		}
	}
	layouts := lo.FilterMap(variants, func(v *variant, _ int) (string, bool) { return v.layout, v.layout != "" })
	if len(layouts) == 0 {
		return common
	}
	common[v1alpha1.LayoutLabelKey] = in(v1alpha1.LayoutLabelKey, layouts...)
	for _, v := range variants {
		v.requirements[v1alpha1.LayoutLabelKey] = in(v1alpha1.LayoutLabelKey, v.layout)
	}
	return common
}

// nvidia returns the part of a list that counts GPUs, replicas and partitions.
func nvidia(list corev1.ResourceList) corev1.ResourceList {
	return lo.PickBy(list, func(name corev1.ResourceName, _ resource.Quantity) bool { return isNVIDIA(name) })
}

func isNVIDIA(name corev1.ResourceName) bool {
	return name == v1alpha1.ResourceGPU || name == v1alpha1.ResourceGPUShared || strings.HasPrefix(string(name), v1alpha1.ResourceMIGPrefix)
}

// asksForGPUs tells whether requests hold any GPU, replica or partition.
func asksForGPUs(requests corev1.ResourceList) bool {
	return lo.SomeBy(lo.Entries(nvidia(requests)), func(e lo.Entry[corev1.ResourceName, resource.Quantity]) bool { return !resources.IsZero(e.Value) })
}
