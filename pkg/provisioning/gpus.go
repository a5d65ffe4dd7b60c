package provisioning

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// GPUs knows how many GPUs instance types have.
type GPUs struct {
	// Catalog is the GPU catalogue of the process, with the corrections of its user;
	// nil is the built-in one.
	Catalog *catalog.Catalog
}

func (g GPUs) shape(instanceType string) (catalog.Shape, bool) {
	if g.Catalog == nil {
		return catalog.Default().Shape(instanceType)
	}
	return g.Catalog.Shape(instanceType)
}

// Physical counts the physical GPUs of an instance type: those of the GPU
// catalogue, which also knows the types for which EC2 reports none, or else what
// the provider says. Replicas of a shared GPU are divided out; MIG partitions are
// offerings and do not change the capacity that is read here.
func (g GPUs) Physical(it *cloudprovider.InstanceType, partitioning *v1alpha1.Partitioning) int {
	if shape, ok := g.shape(it.Name); ok {
		return shape.GPUs
	}
	n := quantity(it.Capacity, v1alpha1.ResourceGPU) + quantity(it.Capacity, v1alpha1.ResourceGPUShared)
	return int(n / int64(max(1, partitioning.Replicas())))
}

// accelerated reports whether a node of the type has GPUs or the like, which pods
// that ask for none should leave alone.
func (g GPUs) accelerated(it *cloudprovider.InstanceType) bool {
	if shape, ok := g.shape(it.Name); ok && shape.HasGPU() {
		return true
	}
	return asksGPU(it.Capacity)
}

// asksGPU reports whether a list has an amount of any accelerator: GPUs of any
// vendor, their parts and replicas, Neuron, Gaudi.
func asksGPU(list corev1.ResourceList) bool {
	for name, q := range list {
		if isGPU(name) && q.Sign() > 0 {
			return true
		}
	}
	return false
}

func isGPU(name corev1.ResourceName) bool {
	domain, kind, ok := strings.Cut(string(name), "/")
	return ok && (domain == "nvidia.com" || domain == "habana.ai" || kind == "gpu" || strings.HasPrefix(kind, "neuron"))
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) int64 {
	q := list[name]
	return q.Value()
}
