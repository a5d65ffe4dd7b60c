package catalogprovider

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Group is the API group of the AWS provider.
const Group = "karpenter.k8s.aws"

// Labels of the AWS provider. They are its API; importing them would link the SDK.
const (
	labelCategory         = Group + "/instance-category"
	labelFamily           = Group + "/instance-family"
	labelGeneration       = Group + "/instance-generation"
	labelSize             = Group + "/instance-size"
	labelFlex             = Group + "/instance-capability-flex"
	labelCPU              = Group + "/instance-cpu"
	labelCPUManufacturer  = Group + "/instance-cpu-manufacturer"
	labelClockSpeed       = Group + "/instance-cpu-sustained-clock-speed-mhz"
	labelMemory           = Group + "/instance-memory"
	labelEBSBandwidth     = Group + "/instance-ebs-bandwidth"
	labelNetworkBandwidth = Group + "/instance-network-bandwidth"
	labelLocalNVMe        = Group + "/instance-local-nvme"
	labelGPUName          = Group + "/instance-gpu-name"
	labelGPUManufacturer  = Group + "/instance-gpu-manufacturer"
	labelGPUCount         = Group + "/instance-gpu-count"
	labelGPUMemory        = Group + "/instance-gpu-memory"
	labelAccelName        = Group + "/instance-accelerator-name"
	labelAccelMaker       = Group + "/instance-accelerator-manufacturer"
	labelAccelCount       = Group + "/instance-accelerator-count"
	labelHypervisor       = Group + "/instance-hypervisor"
	labelEncryption       = Group + "/instance-encryption-in-transit-supported"
	labelTenancy          = Group + "/instance-tenancy"
	labelReservationType  = Group + "/capacity-reservation-type"
	labelInterruptible    = Group + "/capacity-reservation-interruptible"
	labelReservationID    = Group + "/capacity-reservation-id"
	labelPlacementGroup   = Group + "/placement-group-id"
	labelPlacementPart    = Group + "/placement-group-partition"
	labelZoneID           = "topology.k8s.aws/zone-id"
)

// Resources of AWS nodes beside those of Kubernetes.
const (
	resourceNVIDIA     corev1.ResourceName = "nvidia.com/gpu"
	resourceAMD        corev1.ResourceName = "amd.com/gpu"
	resourceNeuron     corev1.ResourceName = "aws.amazon.com/neuron"
	resourceNeuronCore corev1.ResourceName = "aws.amazon.com/neuroncore"
	resourceGaudi      corev1.ResourceName = "habana.ai/gaudi"
	resourcePodENI     corev1.ResourceName = "vpc.amazonaws.com/pod-eni"
	resourceEFA        corev1.ResourceName = "vpc.amazonaws.com/efa"
)

// UnknownLabels are the labels of the AWS provider whose values are not known
// offline. A requirement on one of them excludes no instance type here, while the
// cloud may have fewer that satisfy it. Sorted.
func UnknownLabels() []string {
	return []string{labelClockSpeed, labelEBSBandwidth, labelEncryption}
}

// The AWS provider adds the same to Karpenter's sets in its own init; the sets are
// not locked and read from many goroutines, so they change in init only.
func init() {
	karpv1.RestrictedLabelDomains.Insert(Group)
	karpv1.WellKnownLabels.Insert(
		labelCategory, labelFamily, labelGeneration, labelSize, labelFlex, labelCPU, labelCPUManufacturer, labelClockSpeed,
		labelMemory, labelEBSBandwidth, labelNetworkBandwidth, labelLocalNVMe, labelGPUName, labelGPUManufacturer, labelGPUCount,
		labelGPUMemory, labelAccelName, labelAccelMaker, labelAccelCount, labelHypervisor, labelEncryption, labelTenancy,
		labelReservationID, labelReservationType, labelInterruptible, labelPlacementGroup, labelPlacementPart, labelZoneID,
		corev1.LabelWindowsBuild,
	)
	karpv1.WellKnownValuesForRequirements[labelTenancy] = sets.New("dedicated", "default")
	karpv1.WellKnownResources.Insert(resourcePodENI, resourceNeuron, resourceNeuronCore, resourceGaudi, resourceEFA)
}
