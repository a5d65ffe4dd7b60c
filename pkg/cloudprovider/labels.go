package cloudprovider

import (
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// predictedKeys are the labels of GPU feature discovery by which pods may select
// nodes that do not exist yet, sorted. Those of single MIG partitions, such as
// nvidia.com/mig-1g.10gb.count, and the engine counts of strategy single are
// returned for new nodes but cannot be selected from zero: every key is also a
// label of Karpenter's node metrics, and the partitions have hundreds.
var predictedKeys = lo.FilterMap(catalog.LabelKeys(), func(k catalog.LabelKey, _ int) (string, bool) {
	return k.Key, !slices.Contains(perPartition, k.Key)
})

var perPartition = []string{
	"nvidia.com/gpu.engines.copy", "nvidia.com/gpu.engines.decoder", "nvidia.com/gpu.engines.encoder",
	"nvidia.com/gpu.engines.jpeg", "nvidia.com/gpu.engines.ofa", "nvidia.com/gpu.multiprocessors",
	"nvidia.com/gpu.slices.ci", "nvidia.com/gpu.slices.gi",
}

// ownKeys are our own labels that pods may select by.
var ownKeys = []string{v1alpha1.PoolLabelKey, v1alpha1.LayoutLabelKey}

// absent holds a DoesNotExist for each key. Requirements are read-only once made,
// so all types share these.
var absent = lo.SliceToMap(append(slices.Clone(predictedKeys), ownKeys...), func(key string) (string, *scheduling.Requirement) {
	return key, scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist)
})

func init() {
	// The set has no lock, so that it may change in init only.
	karpv1.WellKnownLabels.Insert(predictedKeys...)
}

// PredictedLabelKeys returns the labels of GPU feature discovery by which pods
// may select nodes that do not exist yet, sorted. The caller owns the slice.
func PredictedLabelKeys() []string { return slices.Clone(predictedKeys) }

func isPredicted(key string) bool {
	_, ok := slices.BinarySearch(predictedKeys, key)
	return ok
}

// in returns a requirement for one value of a label.
func in(key string, values ...string) *scheduling.Requirement {
	return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
}

// extend returns a copy of requirements with others put over it.
func extend(requirements scheduling.Requirements, over map[string]*scheduling.Requirement) scheduling.Requirements {
	extended := make(scheduling.Requirements, len(requirements)+len(over))
	for key, r := range requirements {
		extended[key] = r
	}
	for key, r := range over {
		extended[key] = r
	}
	return extended
}
