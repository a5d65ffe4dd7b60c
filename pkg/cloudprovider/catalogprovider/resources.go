package catalogprovider

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// Families of images.
const (
	familyAL2          = "AL2"
	familyAL2023       = "AL2023"
	familyBottlerocket = "Bottlerocket"
	familyCustom       = "Custom"
)

// defaultStorage is the root volume of every family.
var defaultStorage = resource.MustParse("20Gi")

// graviton is memory that arm64 machines of AWS keep for contiguous allocation.
const gravitonMiB = 64

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// storageOf is the size of the disk that pods write to: the root volume if one is
// marked, else that of the family's device, for custom images the last one.
func storageOf(family string, devices []blockDevice) resource.Quantity {
	root, ok := lo.Find(devices, func(d blockDevice) bool { return d.RootVolume })
	switch {
	case ok && root.size != nil:
		return *root.size
	case len(devices) == 0:
		return defaultStorage.DeepCopy()
	case family == familyCustom:
		return lo.FromPtrOr(devices[len(devices)-1].size, defaultStorage).DeepCopy()
	}
	device := lo.Ternary(family == familyBottlerocket, "/dev/xvdb", "/dev/xvda")
	if d, ok := lo.Find(devices, func(d blockDevice) bool { return d.DeviceName == device }); ok && d.size != nil {
		return *d.size
	}
	return defaultStorage.DeepCopy()
}

// machine is a shape on which nodes of an EC2NodeClass run.
type machine struct {
	catalog.Shape
	class *NodeClass
	opts  Options
}

func count(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

func (m machine) capacity() corev1.ResourceList {
	efa := m.EFAInterfaces
	if m.class.interfaces != nil {
		efa = m.class.interfaces.efaOnly
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:              count(m.VCPU),
		corev1.ResourceMemory:           m.memory(),
		corev1.ResourceEphemeralStorage: m.storage(),
		corev1.ResourcePods:             count(int(m.pods())),
		resourcePodENI:                  count(networks()[m.Name].podENIs),
		resourceNVIDIA:                  count(m.EC2GPUs),
		resourceAMD:                     count(0),
		resourceNeuron:                  count(0),
		resourceNeuronCore:              count(0),
		resourceGaudi:                   count(0),
		resourceEFA:                     count(efa),
	}
}

// memory is what is left of the advertised size after the hypervisor's part.
func (m machine) memory() resource.Quantity {
	mib := int64(m.MemoryMiB)
	if m.Arch == "arm64" {
		mib -= gravitonMiB
	}
	mib -= int64(math.Ceil(float64(mib<<20) * m.opts.VMMemoryOverheadPercent / 1024 / 1024))
	return *resource.NewQuantity(mib<<20, resource.BinarySI)
}

func (m machine) storage() resource.Quantity {
	if m.class.raid0 && m.LocalNVMeGB > 0 {
		return resource.MustParse(fmt.Sprintf("%dG", m.LocalNVMeGB))
	}
	return m.class.storage.DeepCopy()
}

// eniPods is how many pods the VPC CNI has addresses for: one address of each
// interface is its own, and two pods use the host's network.
func (m machine) eniPods(reserved int) int64 {
	usable := m.MaxENIs
	if n, ok := networks()[m.Name]; ok {
		usable = n.cardENIs
	}
	usable -= reserved
	if m.class.interfaces != nil {
		usable -= m.class.interfaces.efaOnlyFirstCard
	}
	if usable <= 0 {
		return 0
	}
	return int64(usable)*int64(m.IPv4PerENI-1) + 2
}

func (m machine) pods() int64 {
	n := m.eniPods(m.opts.ReservedENIs)
	if m.class.kubelet.maxPods != nil {
		n = *m.class.kubelet.maxPods
	}
	if per := lo.FromPtr(m.class.kubelet.podsPerCore); per > 0 && m.class.family != familyBottlerocket {
		n = min(n, per*int64(m.VCPU))
	}
	return n
}

func (m machine) overhead() *cloudprovider.InstanceTypeOverhead {
	return &cloudprovider.InstanceTypeOverhead{
		KubeReserved:      m.kubeReserved(),
		SystemReserved:    parsed(m.class.kubelet.systemReserved),
		EvictionThreshold: m.eviction(),
	}
}

// kubeReserved grows with pods (memory) and cores (CPU: 6 % of the first, 1 % of the
// second, half a percent of the next two, a quarter of the rest). Bottlerocket counts
// the pods that it allows, the others those that the network allows.
func (m machine) kubeReserved() corev1.ResourceList {
	pods := m.eniPods(0)
	if m.class.family == familyBottlerocket {
		pods = m.pods()
	}
	milli := 0.0
	for _, part := range []struct{ from, to, share float64 }{{0, 1000, 0.06}, {1000, 2000, 0.01}, {2000, 4000, 0.005}, {4000, math.MaxInt32, 0.0025}} {
		if cpu := float64(m.VCPU) * 1000; cpu >= part.from {
			milli += math.Floor((min(cpu, part.to) - part.from) * part.share)
		}
	}
	return lo.Assign(corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(int64(milli), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity((11*pods+255)<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Gi"),
	}, parsed(m.class.kubelet.kubeReserved))
}

// eviction is 100 MiB of memory and a tenth of the disk, or what evictionHard says.
func (m machine) eviction() corev1.ResourceList {
	memory, storage := m.memory(), m.storage()
	out := corev1.ResourceList{
		corev1.ResourceMemory:           resource.MustParse("100Mi"),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(int64(math.Ceil(float64(storage.Value())/100*10)), resource.DecimalSI),
	}
	for signal, of := range map[string]struct {
		name corev1.ResourceName
		size resource.Quantity
	}{"memory.available": {corev1.ResourceMemory, memory}, "nodefs.available": {corev1.ResourceEphemeralStorage, storage}} {
		if v, ok := m.class.kubelet.evictionHard[signal]; ok {
			out[of.name] = threshold(of.size, v)
		}
	}
	return out
}

// threshold is a quantity, or a percentage of the size; 100 % turns a signal off.
func threshold(size resource.Quantity, v string) resource.Quantity {
	text, ok := strings.CutSuffix(v, "%")
	if !ok {
		return resource.MustParse(v) // parsed before, when the EC2NodeClass was read
	}
	percent, _ := strconv.ParseFloat(text, 64)
	if percent == 100 {
		percent = 0
	}
	return *resource.NewQuantity(int64(math.Ceil(size.AsApproximateFloat64()/100*percent)), resource.DecimalSI)
}

// parsed turns checked text into quantities.
func parsed(values map[string]string) corev1.ResourceList {
	return lo.MapEntries(values, func(k, v string) (corev1.ResourceName, resource.Quantity) {
		return corev1.ResourceName(k), resource.MustParse(v)
	})
}
