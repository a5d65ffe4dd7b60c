package v1alpha1_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

func TestPartitioningKind(t *testing.T) {
	for name, tc := range map[string]struct {
		in           *v1alpha1.Partitioning
		want         v1alpha1.PartitioningKind
		wantReplicas int32
	}{
		"nothing is whole GPUs":    {nil, v1alpha1.PartitioningWhole, 1},
		"empty is whole GPUs":      {&v1alpha1.Partitioning{}, v1alpha1.PartitioningWhole, 1},
		"mig":                      {&v1alpha1.Partitioning{MIG: &v1alpha1.MIG{}}, v1alpha1.PartitioningMIG, 1},
		"time slicing":             {&v1alpha1.Partitioning{TimeSlicing: &v1alpha1.TimeSlicing{Replicas: 4}}, v1alpha1.PartitioningTimeSlicing, 4},
		"mps":                      {&v1alpha1.Partitioning{MPS: &v1alpha1.MPS{Replicas: 3}}, v1alpha1.PartitioningMPS, 3},
		"several count as the mig": {&v1alpha1.Partitioning{MIG: &v1alpha1.MIG{}, MPS: &v1alpha1.MPS{Replicas: 3}}, v1alpha1.PartitioningMIG, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.in.Kind(); got != tc.want {
				t.Errorf("Kind() = %s, want %s", got, tc.want)
			}
			if got := tc.in.Replicas(); got != tc.wantReplicas {
				t.Errorf("Replicas() = %d, want %d", got, tc.wantReplicas)
			}
		})
	}
}

// accessors are what the accessors say of a spec.
func accessors(s *v1alpha1.GPUPoolSpec) map[string]any {
	after, reclaims := s.Reclaim.GetEmptyAfter()
	price, bounded := s.Limits.Price()
	action, listed := s.Health.XIDAction(79)
	_, changed := s.Readiness.Check(v1alpha1.CheckECC)
	return map[string]any{
		"objective": s.Selection.GetObjective(), "tolerance": s.Selection.GetPriceTolerancePercent(),
		"gate": s.Readiness.GetGate(), "enforce": s.Readiness.GetEnforce(), "deadline": s.Readiness.GetDeadline(),
		"trials": s.Readiness.GetMaxConcurrentTrials(), "ecc": changed,
		"partitions": s.Health.GetMaxFencedPartitions(), "xid": action, "xidListed": listed,
		"emptyAfter": after, "reclaims": reclaims, "price": price, "bounded": bounded,
	}
}

func TestAccessors(t *testing.T) {
	for name, tc := range map[string]struct {
		spec v1alpha1.GPUPoolSpec
		want map[string]any
	}{
		"nothing set gives the defaults": {
			want: map[string]any{
				"objective": v1alpha1.ObjectiveCost, "tolerance": int32(10),
				"gate": v1alpha1.GateStartupTaint, "enforce": v1alpha1.EnforceWhenSafe, "deadline": 10 * time.Minute,
				"trials": int32(3), "ecc": false, "partitions": int32(1), "xid": v1alpha1.XIDAction(""), "xidListed": false,
				"emptyAfter": time.Duration(0), "reclaims": false, "price": v1alpha1.Price(0), "bounded": false,
			},
		},
		"zeros that are set are kept": {
			spec: v1alpha1.GPUPoolSpec{
				Selection: v1alpha1.Selection{Objective: v1alpha1.ObjectiveStock, PriceTolerancePercent: lo.ToPtr[int32](0)},
				Readiness: v1alpha1.Readiness{Gate: v1alpha1.GateNone, Enforce: v1alpha1.EnforceAlways, Deadline: &metav1.Duration{Duration: time.Minute},
					MaxConcurrentTrials: lo.ToPtr[int32](1), Checks: []v1alpha1.Check{{Name: v1alpha1.CheckECC}}},
				Health: v1alpha1.Health{MaxFencedPartitions: lo.ToPtr[int32](0), XIDPolicies: []v1alpha1.XIDPolicy{
					{Codes: []int32{13}, Action: v1alpha1.XIDActionIgnore}, {Codes: []int32{48, 79}, Action: v1alpha1.XIDActionReplace}}},
				Reclaim: v1alpha1.Reclaim{EmptyAfter: &metav1.Duration{}},
				Limits:  v1alpha1.Limits{PricePerHour: lo.ToPtr("0")},
			},
			want: map[string]any{
				"objective": v1alpha1.ObjectiveStock, "tolerance": int32(0),
				"gate": v1alpha1.GateNone, "enforce": v1alpha1.EnforceAlways, "deadline": time.Minute,
				"trials": int32(1), "ecc": true, "partitions": int32(0), "xid": v1alpha1.XIDActionReplace, "xidListed": true,
				"emptyAfter": time.Duration(0), "reclaims": true, "price": v1alpha1.Price(0), "bounded": true,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, accessors(&tc.spec)); diff != "" {
				t.Errorf("accessors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMIGAccessors(t *testing.T) {
	none, set := (*v1alpha1.MIG)(nil), &v1alpha1.MIG{
		Strategy: v1alpha1.MIGStrategySingle, Profiles: []string{"1g.10gb"}, AnnounceTo: []v1alpha1.Neighbor{v1alpha1.NeighborTensorFusion}}
	if none.GetStrategy() != v1alpha1.MIGStrategyMixed || none.FromDemand() || none.Announces(v1alpha1.NeighborTensorFusion) {
		t.Error("no MIG: want Mixed, nothing from demand, nothing announced")
	}
	if set.GetStrategy() != v1alpha1.MIGStrategySingle || !set.FromDemand() || !set.Announces(v1alpha1.NeighborTensorFusion) {
		t.Error("MIG with everything: want Single, from demand, announced")
	}
}

func TestWarmAccessors(t *testing.T) {
	pool := &v1alpha1.Selection{CapacityTypes: []v1alpha1.CapacityType{v1alpha1.CapacityTypeSpot}}
	own := []v1alpha1.CapacityType{v1alpha1.CapacityTypeReserved}
	if diff := cmp.Diff(pool.CapacityTypes, (&v1alpha1.WarmCapacity{}).GetCapacityTypes(pool)); diff != "" {
		t.Errorf("an entry without capacity types takes the pool's (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(own, (&v1alpha1.WarmCapacity{CapacityTypes: own}).GetCapacityTypes(pool)); diff != "" {
		t.Errorf("an entry keeps its own capacity types (-want +got):\n%s", diff)
	}
	units := []v1alpha1.WarmUnit{
		(&v1alpha1.WarmCapacity{GPUs: lo.ToPtr[int32](1)}).Unit(),
		(&v1alpha1.WarmCapacity{Partitions: []v1alpha1.PartitionCount{{}}}).Unit(),
		(&v1alpha1.WarmCapacity{ScalableRef: &v1alpha1.ScalableReference{}}).Unit(),
	}
	if diff := cmp.Diff([]v1alpha1.WarmUnit{v1alpha1.WarmUnitGPUs, v1alpha1.WarmUnitPartitions, v1alpha1.WarmUnitPods}, units); diff != "" {
		t.Errorf("units (-want +got):\n%s", diff)
	}
	w, ref := &v1alpha1.WarmWindow{}, &v1alpha1.ScalableReference{}
	if w.GetTimeZone() != "UTC" || w.GetSharePercent() != 100 || ref.GetAPIGroup() != "apps" {
		t.Errorf("defaults of a window and a workload: %s, %d, %s", w.GetTimeZone(), w.GetSharePercent(), ref.GetAPIGroup())
	}
}

func TestWellKnownLabels(t *testing.T) {
	if !karpv1.WellKnownLabels.HasAll(v1alpha1.PoolLabelKey, v1alpha1.LayoutLabelKey) {
		t.Error("Karpenter does not know our labels")
	}
}

func TestAddToScheme(t *testing.T) {
	s := runtime.NewScheme()
	if err := apis.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	if gvk := v1alpha1.SchemeGroupVersion.WithKind("GPUPool"); !s.Recognizes(gvk) {
		t.Errorf("the scheme does not know %s", gvk)
	}
}
