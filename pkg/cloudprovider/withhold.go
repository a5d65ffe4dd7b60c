package cloudprovider

import (
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

// withhold closes the offerings of types with more GPUs than the NodePool's own
// limit still allows. It may write to the slice.
func (d *decorator) withhold(v *view, nodePool *karpv1.NodePool, its []*corecloudprovider.InstanceType) []*corecloudprovider.InstanceType {
	if v.pool == nil {
		return its
	}
	remaining, limited := d.remainingGPUs(v.pool, nodePool)
	if !limited {
		return its
	}
	for i, it := range its {
		if gpus := it.Capacity[v1alpha1.ResourceGPU]; !gpus.IsZero() && gpus.Value() > int64(remaining) {
			its[i] = withOfferings(it, closed(it.Offerings))
		}
	}
	return its
}

// remainingGPUs is how many physical GPUs the NodePool's own limit on nvidia.com/gpu
// still allows. Karpenter subtracts what nodes show, which is 0 for partitioned
// GPUs and renamed replicas; limited is false where that is right already.
func (d *decorator) remainingGPUs(pool *pools.Pool, nodePool *karpv1.NodePool) (remaining int, limited bool) {
	limit, ok := nodePool.Spec.Limits[v1alpha1.ResourceGPU]
	if !ok || !hidesGPUs(pool) {
		return 0, false
	}
	return int(limit.Value()) - d.Pools.UsedGPUs(nodePool.Name), true
}

// hidesGPUs says that nodes of the pool show no nvidia.com/gpu, or other numbers of
// it than they have.
func hidesGPUs(pool *pools.Pool) bool {
	return pool.MIG != nil || pool.Sharing.Enabled() && pool.Sharing.RenameByDefault
}

// withOfferings is a copy of a type with other offerings.
func withOfferings(it *corecloudprovider.InstanceType, offerings corecloudprovider.Offerings) *corecloudprovider.InstanceType {
	out := &corecloudprovider.InstanceType{
		Name:                   it.Name,
		Requirements:           it.Requirements,
		Offerings:              offerings,
		Capacity:               it.Capacity,
		Overhead:               it.Overhead,
		VolumeAttachmentLimits: it.VolumeAttachmentLimits,
		DynamicResources:       it.DynamicResources,
	}
	if it.IsCapacityOverlayApplied() {
		out.ApplyCapacityOverlay(corev1.ResourceList{})
	}
	return out
}
