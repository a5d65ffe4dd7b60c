package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Labels of ours.
const (
	// PoolLabelKey joins a NodePool to the GPUPool that it names. It stands in the
	// metadata.labels of the NodePool and, copied by us, on its NodeClaims and Nodes.
	PoolLabelKey = Group + "/pool"
	// LayoutLabelKey is the MIG layout that a node was launched with. Set by us on NodeClaims
	// and Nodes, never changed during a node's life; pods may select by it.
	LayoutLabelKey = Group + "/layout"
	// WarmLabelKey is the warm entry that an object of ours was made for: CapacityBuffers, pod
	// templates and image pullers.
	WarmLabelKey = Group + "/warm"
)

// Taint, condition and annotation of ours on Nodes.
const (
	// ReadinessTaintKeyPrefix is the prefix that Karpenter's scheduler expects to go by itself.
	ReadinessTaintKeyPrefix = "readiness." + Group + "/"
	// UnverifiedTaintKey keeps new pods off a node that is not verified, not verified since its
	// last boot, or fenced. Only karpenter-gpu removes it.
	UnverifiedTaintKey = ReadinessTaintKeyPrefix + "unverified"
	// NodeConditionGPUReady is the node condition that the agent sets.
	NodeConditionGPUReady corev1.NodeConditionType = Group + "/GPUReady"
	// ReportAnnotationKey holds the agent's compact report. The controller treats it as
	// untrusted input.
	ReportAnnotationKey = Group + "/report"
)

// NVIDIA's labels that we set or read by name. What GPU feature discovery will set is
// predicted elsewhere, from the catalogue.
const (
	// MIGConfigLabelKey tells mig-manager which layout to apply.
	MIGConfigLabelKey = "nvidia.com/mig.config"
	// MIGConfigStateLabelKey is mig-manager's answer: pending, rebooting, success or failed.
	MIGConfigStateLabelKey = "nvidia.com/mig.config.state"
	// DevicePluginConfigLabelKey tells the device plugin which sharing configuration to use.
	DevicePluginConfigLabelKey = "nvidia.com/device-plugin.config"
	// GPUPresentLabelKey marks nodes with an NVIDIA GPU.
	GPUPresentLabelKey = "nvidia.com/gpu.present"
)

// Resources of NVIDIA's device plugin.
const (
	// ResourceGPU is a whole GPU; also a replica or, with strategy Single, a partition.
	ResourceGPU corev1.ResourceName = "nvidia.com/gpu"
	// ResourceGPUShared is a replica of a shared GPU with renameByDefault.
	ResourceGPUShared corev1.ResourceName = "nvidia.com/gpu.shared"
	// ResourceMIGPrefix comes before the profile, with "." for "+", with strategy Mixed.
	ResourceMIGPrefix = "nvidia.com/mig-"
)

// Labels of neighbors.
const (
	// TensorFusionIsolationLabelKey tells TensorFusion how GPUs of a node are isolated.
	TensorFusionIsolationLabelKey = "tensor-fusion.ai/isolationMode"
	// TensorFusionIsolationPartitioned says: by hardware partitions.
	TensorFusionIsolationPartitioned = "partitioned"
)

// UnverifiedTaint returns the taint of an unverified node.
func UnverifiedTaint() corev1.Taint {
	return corev1.Taint{Key: UnverifiedTaintKey, Effect: corev1.TaintEffectNoSchedule}
}

func init() {
	// The set is not locked: Karpenter reads it from many goroutines, so it may change in
	// init only. A key in it may be selected by pods whose NodePool does not define it; the
	// provider decorator gives every other type and offering a DoesNotExist for it, because
	// a well-known key that a type does not mention counts as allowed.
	karpv1.WellKnownLabels.Insert(PoolLabelKey, LayoutLabelKey)
}
