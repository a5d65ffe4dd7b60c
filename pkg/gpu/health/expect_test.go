package health_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

func TestCompare(t *testing.T) {
	seven := map[string]int{"1g.10gb": 7}
	whole := Expectation{BootID: boot, Products: []string{"NVIDIA-H100-80GB-HBM3"}, GPUs: 2, MemoryMiB: 81559,
		Partitions: []map[string]int{{}}, MinDriver: "550", MinCUDA: "12"}
	for name, tc := range map[string]struct {
		sample Sample
		change func(*Report, *Expectation)
		want   []string
		excess bool
	}{
		"a node that is what was bought": {sample: sample(2)},
		"another boot hides all else": {sample: sample(1), change: func(_ *Report, e *Expectation) { e.BootID = "new" },
			want: []string{"BootDiffers, want new, got " + boot}},
		"a node that is not ready": {sample: sample(2), change: func(r *Report, _ *Expectation) { r.State, r.Reason = Starting, MIGModePending },
			want: []string{"NotVerified, want Ready, got Starting (MIGModePending)"}},
		"fewer GPUs": {sample: sample(1), want: []string{"GPUCountDiffers, want 2 GPUs, got 1 GPU"}},
		"more GPUs than the type has": {sample: sample(3), excess: true,
			want: []string{"GPUCountDiffers, want 2 GPUs, got 3 GPUs", "GPU 2: PartitionsDiffer, want no such GPU, got MIG off"}},
		"a lost GPU": {sample: sample(2), change: func(r *Report, _ *Expectation) { r.GPUs[1].Lost = true },
			want: []string{"GPU 1: GPULost, want a GPU that answers, got a lost GPU"}},
		"another product with more memory": {sample: sample(2), excess: true,
			change: func(r *Report, _ *Expectation) {
				r.GPUs[0].Product, r.GPUs[0].MemoryMiB = "NVIDIA H200", 143771
			},
			want: []string{"GPU 0: ProductDiffers, want NVIDIA-H100-80GB-HBM3, got NVIDIA H200", "GPU 0: MemoryDiffers, want 81559 MiB within 5%, got 143771 MiB"}},
		"less memory": {sample: sample(2), change: func(r *Report, _ *Expectation) { r.GPUs[1].MemoryMiB = 40960 },
			want: []string{"GPU 1: MemoryDiffers, want 81559 MiB within 5%, got 40960 MiB"}},
		"old software": {sample: sample(2), change: func(r *Report, e *Expectation) { e.MinDriver, r.CUDA = "560", "" },
			want: []string{"DriverTooOld, want 560 or newer, got 550.54.15", "CUDATooOld, want 12 or newer, got none"}},
		"partitions where none were bought": {sample: partitionedSample(2), want: []string{
			"GPU 0: PartitionsDiffer, want no partitions, got 1g.10gb:7", "GPU 1: PartitionsDiffer, want no partitions, got 1g.10gb:7"}},
		"one layout holds for every GPU": {sample: partitionedSample(2), change: func(_ *Report, e *Expectation) { e.Partitions = []map[string]int{seven} }},
		"layouts by GPU": {sample: partitionedSample(2), change: func(_ *Report, e *Expectation) { e.Partitions = []map[string]int{seven, {"3g.40gb": 2}} },
			want: []string{"GPU 1: PartitionsDiffer, want 3g.40gb:2, got 1g.10gb:7"}},
		"MIG mode on without instances": {sample: sample(2), change: func(r *Report, _ *Expectation) { r.GPUs[0].MIG = true },
			want: []string{"GPU 0: PartitionsDiffer, want no partitions, got no partitions"}},
		"partitions that are not made yet": {sample: sample(2), change: func(_ *Report, e *Expectation) { e.Partitions = []map[string]int{seven} },
			want: []string{"GPU 0: PartitionsDiffer, want 1g.10gb:7, got MIG off", "GPU 1: PartitionsDiffer, want 1g.10gb:7, got MIG off"}},
		"no layouts for any GPU": {sample: sample(1), excess: true, change: func(_ *Report, e *Expectation) { e.GPUs, e.Partitions = 1, []map[string]int{} },
			want: []string{"GPU 0: PartitionsDiffer, want no such GPU, got MIG off"}},
		"layouts that are not compared": {sample: partitionedSample(2), change: func(_ *Report, e *Expectation) { e.Partitions = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			r, e := reportOf(tc.sample), whole
			if tc.change != nil {
				tc.change(&r, &e)
			}
			var got []string
			excess := false
			for _, m := range Compare(r, e) {
				got = append(got, m.String())
				excess = excess || m.Excess
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("mismatches (-want +got):\n%s", diff)
			}
			if excess != tc.excess {
				t.Errorf("excess %t, want %t", excess, tc.excess)
			}
		})
	}
}
