package cloudprovider

import (
	"sync/atomic"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// recipe is what a view does to one instance type. All but last is immutable.
type recipe struct {
	// requirements are those that the view shows.
	requirements scheduling.Requirements
	// gpu says that the type carries GPUs that the pool divides or labels.
	gpu bool
	// excluded says that the pool cannot use the type, so that no offering is available.
	excluded bool
	// shape is the zero Shape for types that the catalogue does not know.
	shape catalog.Shape
	// replicas is by how much nvidia.com/gpu is multiplied; 1 for none.
	replicas int
	// labels are those that GPU feature discovery will set, of types without variants.
	labels map[string]string
	// variants are the ways in which the GPUs can be divided; nil for one way only.
	variants []*variant

	last atomic.Pointer[result]
}

// newRecipe decides what the view does to a type.
func newRecipe(v *view, c *catalog.Catalog, it *corecloudprovider.InstanceType) *recipe {
	r := &recipe{replicas: 1}
	over := make(map[string]*scheduling.Requirement, len(absent))
	for key, requirement := range absent {
		if !v.settled[key] {
			over[key] = requirement
		}
	}
	if v.pool != nil {
		over[v1alpha1.PoolLabelKey] = in(v1alpha1.PoolLabelKey, v.pool.Name())
	}
	if v.predict {
		for key, requirement := range r.predict(v, c, it) {
			over[key] = requirement
		}
	}
	r.requirements = extend(it.Requirements, over)
	return r
}

// predict fills the recipe of a type in a view that predicts labels, and returns
// the requirements that they make.
func (r *recipe) predict(v *view, c *catalog.Catalog, it *corecloudprovider.InstanceType) map[string]*scheduling.Requirement {
	shape, known := c.Shape(it.Name)
	inner := it.Capacity[v1alpha1.ResourceGPU]
	if !known || !shape.HasGPU() {
		r.unknown(v, !inner.IsZero())
		return nil
	}
	r.gpu, r.shape = true, shape
	if v.pool == nil {
		return r.whole(v, catalog.State{Operator: true})
	}
	if err := v.pool.Supports(shape); err != nil {
		r.excluded = true
		return r.whole(v, catalog.State{Operator: true})
	}
	if v.pool.MIG != nil {
		r.variants = migVariants(v, shape)
		r.excluded = lo.EveryBy(r.variants, func(v *variant) bool { return v.retired })
		return differ(r.variants, v.settled)
	}
	r.replicas = v.pool.Sharing.Units(1)
	return r.whole(v, v.pool.State(shape, noLayout))
}

// unknown is a type that the catalogue has no GPUs for. If it has some all the
// same, they can be time-sliced, and whether they can be more is not known.
func (r *recipe) unknown(v *view, hasGPUs bool) {
	if v.pool == nil || !hasGPUs {
		return
	}
	r.gpu = true
	r.excluded = v.pool.MIG != nil || v.pool.Sharing.Strategy == catalog.SharingMPS
	if !r.excluded {
		r.replicas = v.pool.Sharing.Units(1)
	}
}

func (r *recipe) whole(v *view, state catalog.State) map[string]*scheduling.Requirement {
	r.labels = catalog.Labels(r.shape, state)
	over := map[string]*scheduling.Requirement{}
	for key, value := range r.labels {
		if isPredicted(key) && !v.settled[key] {
			over[key] = in(key, value)
		}
	}
	return over
}

// devices is how many GPUs a node of the type has: what the provider says, where
// it says anything, because a NodeOverlay may have corrected it. For some types
// EC2's API says 0, and then the catalogue knows.
func (r *recipe) devices(it *corecloudprovider.InstanceType, v *view) int {
	if v.pool != nil && v.pool.MIG != nil && r.shape.HasGPU() {
		return r.shape.GPUs
	}
	inner := it.Capacity[v1alpha1.ResourceGPU]
	if n := inner.Value(); n > 0 || v.pool == nil {
		return int(n)
	}
	return r.shape.GPUs
}

// relabel makes the shown type of one without GPUs: the inner one with other
// requirements.
func relabel(it, out *corecloudprovider.InstanceType, requirements scheduling.Requirements) {
	out.Name = it.Name
	out.Requirements = requirements
	out.Offerings = it.Offerings
	out.Capacity = it.Capacity
	out.Overhead = it.Overhead
	out.VolumeAttachmentLimits = it.VolumeAttachmentLimits
	out.DynamicResources = it.DynamicResources
	if it.IsCapacityOverlayApplied() {
		out.ApplyCapacityOverlay(nil)
	}
}

// cook makes the shown type of one with GPUs.
func (r *recipe) cook(v *view, it *corecloudprovider.InstanceType) *corecloudprovider.InstanceType {
	out := &corecloudprovider.InstanceType{}
	relabel(it, out, r.requirements)
	r.cookCapacity(v, it, out)
	switch variants := r.variantsFor(v, it); {
	case r.excluded && len(variants) == 0:
		out.Offerings = closed(it.Offerings)
	case len(variants) > 0:
		out.Offerings = expand(it.Offerings, variants)
	}
	return out
}

// cookCapacity sets the base capacity of nvidia.com/gpu. NodePool limits count it,
// so it is the number of physical GPUs wherever nodes will not show that name.
func (r *recipe) cookCapacity(v *view, it, out *corecloudprovider.InstanceType) {
	n := r.devices(it, v)
	if !r.excluded && !v.renames() {
		n *= r.replicas
	}
	if inner := it.Capacity[v1alpha1.ResourceGPU]; inner.Value() != int64(n) {
		out.Capacity = lo.Assign(it.Capacity, corev1.ResourceList{v1alpha1.ResourceGPU: *resource.NewQuantity(int64(n), resource.DecimalSI)})
	}
}

// variantsFor are the variants of the recipe, or the one that renamed replicas make.
func (r *recipe) variantsFor(v *view, it *corecloudprovider.InstanceType) []*variant {
	if r.excluded || r.variants != nil || !v.renames() {
		return r.variants
	}
	units := int64(r.devices(it, v) * r.replicas)
	return []*variant{{labels: r.labels, override: corev1.ResourceList{
		v1alpha1.ResourceGPU:       resource.MustParse("0"),
		v1alpha1.ResourceGPUShared: *resource.NewQuantity(units, resource.DecimalSI),
	}}}
}

// renames says that nodes offer replicas under another name than nvidia.com/gpu.
func (v *view) renames() bool {
	return v.pool != nil && v.pool.Sharing.Enabled() && v.pool.Sharing.RenameByDefault
}

// expand makes an offering of each variant from each offering. Prices stay, so
// that whichever of them Karpenter looks a price up in, it finds the same.
func expand(offerings corecloudprovider.Offerings, variants []*variant) corecloudprovider.Offerings {
	expanded := make(corecloudprovider.Offerings, 0, len(offerings)*len(variants))
	for _, v := range variants {
		for _, o := range offerings {
			n := copyOffering(o)
			n.Available = o.Available && !v.retired
			if len(v.requirements) > 0 {
				n.Requirements = extend(o.Requirements, v.requirements)
			}
			if v.override != nil {
				n.CapacityOverride = v.override
				if len(o.CapacityOverride) > 0 {
					n.CapacityOverride = lo.Assign(o.CapacityOverride, v.override)
				}
			}
			expanded = append(expanded, n)
		}
	}
	return expanded
}

// closed returns the offerings with none available. They stay in the list, because
// a node whose offering is gone counts as drifted.
func closed(offerings corecloudprovider.Offerings) corecloudprovider.Offerings {
	return lo.Map(offerings, func(o *corecloudprovider.Offering, _ int) *corecloudprovider.Offering {
		n := copyOffering(o)
		n.Available = false
		return n
	})
}

// copyOffering copies an offering and shares its maps.
func copyOffering(o *corecloudprovider.Offering) *corecloudprovider.Offering {
	n := &corecloudprovider.Offering{
		Requirements:        o.Requirements,
		Price:               o.Price,
		Available:           o.Available,
		ReservationCapacity: o.ReservationCapacity,
		CapacityOverride:    o.CapacityOverride,
		OverheadOverride:    o.OverheadOverride,
	}
	if o.IsPriceOverlaid() {
		n.ApplyPriceOverlay("") // marks it and leaves the price
	}
	return n
}
