package kwoknode

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
)

const mib = 1 << 20

// armReservedMiB is the memory that Graviton machines keep for DMA.
const armReservedMiB = 64

// defaultVolumeGiB is the root volume of an AMI where the launch template has none.
const defaultVolumeGiB = 20

// capacity is what the kubelet of an instance would report, devices apart.
func capacity(i aws.Instance, k kubelet, memoryOverhead float64) corev1.ResourceList {
	memoryMiB := int64(i.Shape.MemoryMiB)
	if i.Shape.Arch == "arm64" {
		memoryMiB -= armReservedMiB
	}
	memoryMiB -= int64(math.Ceil(float64(memoryMiB) * memoryOverhead))
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(i.Shape.VCPU), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memoryMiB*mib, resource.BinarySI),
		corev1.ResourceEphemeralStorage: storage(i, k),
		corev1.ResourcePods:             *resource.NewQuantity(pods(i, k), resource.DecimalSI),
		"hugepages-1Gi":                 *resource.NewQuantity(0, resource.BinarySI),
		"hugepages-2Mi":                 *resource.NewQuantity(0, resource.BinarySI),
	}
}

func storage(i aws.Instance, k kubelet) resource.Quantity {
	if k.raid0 && i.Shape.LocalNVMeGB > 0 {
		return *resource.NewQuantity(int64(i.Shape.LocalNVMeGB)*1e9, resource.BinarySI)
	}
	gib := i.Template.VolumeGiB
	if gib == 0 {
		gib = defaultVolumeGiB
	}
	return *resource.NewQuantity(int64(gib)<<30, resource.BinarySI)
}

// pods is EKS's limit: one address of each interface is the interface's own, and two
// pods use the host's network.
func pods(i aws.Instance, k kubelet) int64 {
	interfaces, addresses := i.Shape.ENIs()
	n := int64(interfaces*(addresses-1) + 2)
	if k.maxPods > 0 {
		n = int64(k.maxPods)
	}
	if k.podsPerCore > 0 {
		n = min(n, int64(k.podsPerCore*i.Shape.VCPU))
	}
	return n
}

// allocatable is capacity less what the kubelet keeps for itself, the system and the
// eviction threshold.
func allocatable(full corev1.ResourceList, k kubelet) (corev1.ResourceList, error) {
	out := full.DeepCopy()
	reserved := []corev1.ResourceList{kubeReserved(full)}
	for _, source := range []map[string]string{k.kubeReserved, k.systemReserved} {
		list, err := parseList(source)
		if err != nil {
			return nil, err
		}
		reserved = append(reserved, list)
	}
	// What the user reserves for Kubernetes replaces the default, entry by entry.
	for name := range reserved[1] {
		delete(reserved[0], name)
	}
	eviction, err := evictionHard(full, k.evictionHard)
	if err != nil {
		return nil, err
	}
	for _, list := range append(reserved, eviction) {
		for name, quantity := range list {
			if left, ok := out[name]; ok {
				left.Sub(quantity)
				if left.Sign() < 0 {
					left = *resource.NewQuantity(0, left.Format)
				}
				out[name] = left
			}
		}
	}
	return out, nil
}

// kubeReserved is what EKS reserves: CPU in steps of 6, 1, 0.5 and 0.25 % of the first,
// second, third and fourth, and all further cores; memory by the number of pods.
func kubeReserved(full corev1.ResourceList) corev1.ResourceList {
	milli, reserved := full.Cpu().MilliValue(), 0.0
	for _, step := range []struct {
		from, to int64
		part     float64
	}{{0, 1000, 0.06}, {1000, 2000, 0.01}, {2000, 4000, 0.005}, {4000, math.MaxInt64, 0.0025}} {
		if milli > step.from {
			reserved += float64(min(milli, step.to)-step.from) * step.part
		}
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(int64(reserved), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity((11*full.Pods().Value()+255)*mib, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(1<<30, resource.BinarySI),
	}
}

func parseList(in map[string]string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for name, text := range in {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("reading reserved %s %q, %w", name, text, err)
		}
		out[corev1.ResourceName(name)] = quantity
	}
	return out, nil
}

// evictionHard is the kubelet's hard eviction threshold: 100Mi of memory and 10 % of
// the disk by default.
func evictionHard(full corev1.ResourceList, user map[string]string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for signal, name := range map[string]corev1.ResourceName{
		"memory.available": corev1.ResourceMemory, "nodefs.available": corev1.ResourceEphemeralStorage,
	} {
		text := map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}[signal]
		if said, ok := user[signal]; ok {
			text = said
		}
		whole := full[name]
		quantity, err := threshold(whole, text)
		if err != nil {
			return nil, fmt.Errorf("reading eviction threshold %s %q, %w", signal, text, err)
		}
		out[name] = quantity
	}
	return out, nil
}

func threshold(whole resource.Quantity, text string) (resource.Quantity, error) {
	percent, ok := strings.CutSuffix(text, "%")
	if !ok {
		return resource.ParseQuantity(text)
	}
	part, err := strconv.ParseFloat(percent, 64)
	if err != nil {
		return resource.Quantity{}, err
	}
	if part >= 100 {
		part = 0 // the kubelet's way of turning a threshold off
	}
	return *resource.NewQuantity(int64(math.Ceil(float64(whole.Value())*part/100)), resource.BinarySI), nil
}
