package catalog_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// parse reads "key=value" lines and spares the prefix.
func parse(lines string) map[string]string {
	out := map[string]string{}
	for _, l := range strings.Fields(lines) {
		k, v, _ := strings.Cut(l, "=")
		out["nvidia.com/"+k] = v
	}
	return out
}

func slices7(count int) []catalog.MIGDevices {
	return []catalog.MIGDevices{{
		Profile: "1g.10gb", Count: count, MemoryMiB: 9728,
		Attributes: map[string]int{"multiprocessors": 14, "slices.gi": 1, "slices.ci": 1, "engines.copy": 1, "engines.ofa": 0},
	}}
}

func TestLabels(t *testing.T) {
	timeSlicing := catalog.SharingState{Strategy: catalog.SharingTimeSlicing, Replicas: 4}
	for name, tc := range map[string]struct {
		shape string
		state catalog.State
		want  string
	}{
		"a machine without GPUs has no labels": {"m7g.large", catalog.State{Operator: true}, ""},
		// As a public listing of a g5.2xlarge under the GPU operator shows them.
		"one whole A10G": {"g5.2xlarge", catalog.State{Operator: true}, `
			gpu.compute.major=8 gpu.compute.minor=6 gpu.count=1 gpu.family=ampere gpu.machine=g5.2xlarge gpu.memory=23028
			gpu.mode=compute gpu.present=true gpu.product=NVIDIA-A10G gpu.replicas=1 gpu.sharing-strategy=none
			mig.capable=false mps.capable=false vgpu.present=false`},
		// As a public listing of a GKE node with an L4 shows them.
		"an L4 on GCP under the operator's strategy single": {"g2-standard-4", catalog.State{Operator: true, MIG: catalog.MIGState{Strategy: catalog.MIGStrategySingle}}, `
			gpu.compute.major=8 gpu.compute.minor=9 gpu.count=1 gpu.family=ada-lovelace gpu.machine=Google-Compute-Engine gpu.memory=23034
			gpu.mode=compute gpu.present=true gpu.product=NVIDIA-L4 gpu.replicas=1 gpu.sharing-strategy=none
			mig.capable=false mig.strategy=single mps.capable=false vgpu.present=false`},
		"eight H100 with MIG off": {"p5.48xlarge", catalog.State{}, `
			gpu.compute.major=9 gpu.compute.minor=0 gpu.count=8 gpu.family=hopper gpu.machine=p5.48xlarge gpu.memory=81559
			gpu.mode=compute gpu.product=NVIDIA-H100-80GB-HBM3 gpu.replicas=1 gpu.sharing-strategy=none
			mig.capable=true mps.capable=false vgpu.present=false`},
		"time-slicing keeps the count physical": {"g4dn.12xlarge", catalog.State{Sharing: timeSlicing}, `
			gpu.compute.major=7 gpu.compute.minor=5 gpu.count=4 gpu.family=turing gpu.machine=g4dn.12xlarge gpu.memory=15360
			gpu.mode=compute gpu.product=Tesla-T4-SHARED gpu.replicas=4 gpu.sharing-strategy=time-slicing
			mig.capable=false mps.capable=false vgpu.present=false`},
		"a renamed resource has no suffix": {"p3.2xlarge", catalog.State{Sharing: catalog.SharingState{Strategy: catalog.SharingTimeSlicing, Replicas: 2, Renamed: true}}, `
			gpu.compute.major=7 gpu.compute.minor=0 gpu.count=1 gpu.family=volta gpu.machine=p3.2xlarge gpu.memory=16384
			gpu.mode=compute gpu.product=Tesla-V100-SXM2-16GB gpu.replicas=2 gpu.sharing-strategy=time-slicing
			mig.capable=false mps.capable=false vgpu.present=false`},
		"MPS says that it is on": {"g6e.xlarge", catalog.State{Sharing: catalog.SharingState{Strategy: catalog.SharingMPS, Replicas: 10}}, `
			gpu.compute.major=8 gpu.compute.minor=9 gpu.count=1 gpu.family=ada-lovelace gpu.machine=g6e.xlarge gpu.memory=46068
			gpu.mode=compute gpu.product=NVIDIA-L40S-SHARED gpu.replicas=10 gpu.sharing-strategy=mps
			mig.capable=false mps.capable=true vgpu.present=false`},
		"strategy single shows MIG devices as GPUs": {"p4de.24xlarge", catalog.State{MIG: catalog.MIGState{Strategy: catalog.MIGStrategySingle, Devices: slices7(56)}}, `
			gpu.compute.major=8 gpu.compute.minor=0 gpu.count=56 gpu.family=ampere gpu.machine=p4de.24xlarge gpu.memory=9728
			gpu.mode=compute gpu.product=NVIDIA-A100-SXM4-80GB-MIG-1g.10gb gpu.replicas=1 gpu.sharing-strategy=none
			gpu.multiprocessors=14 gpu.slices.gi=1 gpu.slices.ci=1 gpu.engines.copy=1 gpu.engines.ofa=0
			mig.capable=true mig.strategy=single mps.capable=false vgpu.present=false`},
		"shared MIG devices under strategy single": {"p4de.24xlarge", catalog.State{Sharing: timeSlicing, MIG: catalog.MIGState{Strategy: catalog.MIGStrategySingle, Devices: []catalog.MIGDevices{{Profile: "3g.40gb", Count: 16}}}}, `
			gpu.compute.major=8 gpu.compute.minor=0 gpu.count=16 gpu.family=ampere gpu.machine=p4de.24xlarge
			gpu.mode=compute gpu.product=NVIDIA-A100-SXM4-80GB-MIG-3g.40gb-SHARED gpu.replicas=4 gpu.sharing-strategy=time-slicing
			mig.capable=true mig.strategy=single mps.capable=false vgpu.present=false`},
		"two profiles under strategy single are invalid": {"p4de.24xlarge", catalog.State{MIG: catalog.MIGState{Strategy: catalog.MIGStrategySingle, Devices: append(slices7(8), catalog.MIGDevices{Profile: "3g.40gb", Count: 8})}}, `
			gpu.compute.major=8 gpu.compute.minor=0 gpu.count=0 gpu.family=ampere gpu.machine=p4de.24xlarge gpu.memory=0
			gpu.mode=compute gpu.product=NVIDIA-A100-SXM4-80GB-MIG-INVALID gpu.replicas=0 gpu.sharing-strategy=
			mig.capable=true mig.strategy=single mps.capable=false vgpu.present=false`},
		"whole GPUs beside MIG under strategy single are invalid": {"p4de.24xlarge", catalog.State{MIG: catalog.MIGState{Strategy: catalog.MIGStrategySingle, Devices: slices7(49), WholeGPUs: 1}}, `
			gpu.compute.major=8 gpu.compute.minor=0 gpu.count=0 gpu.family=ampere gpu.machine=p4de.24xlarge gpu.memory=0
			gpu.mode=compute gpu.product=NVIDIA-A100-SXM4-80GB-MIG-INVALID gpu.replicas=0 gpu.sharing-strategy=
			mig.capable=true mig.strategy=single mps.capable=false vgpu.present=false`},
		"strategy mixed counts GPUs and gives them no replicas": {"p4de.24xlarge", catalog.State{MIG: catalog.MIGState{Strategy: catalog.MIGStrategyMixed, Devices: []catalog.MIGDevices{{Profile: "1g.10gb+me", Count: 8, MemoryMiB: 9728}, {Profile: "3g.40gb", Count: 8, MemoryMiB: 40192}}}}, `
			gpu.compute.major=8 gpu.compute.minor=0 gpu.count=8 gpu.family=ampere gpu.machine=p4de.24xlarge gpu.memory=81920
			gpu.mode=compute gpu.product=NVIDIA-A100-SXM4-80GB gpu.replicas=0 gpu.sharing-strategy=none
			mig.capable=true mig.strategy=mixed mps.capable=false vgpu.present=false
			mig-1g.10gb.me.count=8 mig-1g.10gb.me.memory=9728 mig-1g.10gb.me.product=NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me
			mig-1g.10gb.me.replicas=1 mig-1g.10gb.me.sharing-strategy=none
			mig-3g.40gb.count=8 mig-3g.40gb.memory=40192 mig-3g.40gb.product=NVIDIA-A100-SXM4-80GB-MIG-3g.40gb
			mig-3g.40gb.replicas=1 mig-3g.40gb.sharing-strategy=none`},
		"whole GPUs beside MIG under strategy mixed may be shared": {"p4de.24xlarge", catalog.State{Sharing: timeSlicing, MIG: catalog.MIGState{Strategy: catalog.MIGStrategyMixed, Devices: []catalog.MIGDevices{{Profile: "7g.80gb", Count: 4}}, WholeGPUs: 4}}, `
			gpu.compute.major=8 gpu.compute.minor=0 gpu.count=8 gpu.family=ampere gpu.machine=p4de.24xlarge gpu.memory=81920
			gpu.mode=compute gpu.product=NVIDIA-A100-SXM4-80GB-SHARED gpu.replicas=4 gpu.sharing-strategy=time-slicing
			mig.capable=true mig.strategy=mixed mps.capable=false vgpu.present=false
			mig-7g.80gb.count=4 mig-7g.80gb.product=NVIDIA-A100-SXM4-80GB-MIG-7g.80gb mig-7g.80gb.replicas=1 mig-7g.80gb.sharing-strategy=none`},
		"MIG devices that are shared by name": {"p4de.24xlarge", catalog.State{
			Sharing: catalog.SharingState{Strategy: catalog.SharingTimeSlicing, Replicas: 3, Resources: []string{"nvidia.com/mig-7g.80gb"}},
			MIG:     catalog.MIGState{Strategy: catalog.MIGStrategyMixed, Devices: []catalog.MIGDevices{{Profile: "7g.80gb", Count: 8}}}}, `
			gpu.compute.major=8 gpu.compute.minor=0 gpu.count=8 gpu.family=ampere gpu.machine=p4de.24xlarge gpu.memory=81920
			gpu.mode=compute gpu.product=NVIDIA-A100-SXM4-80GB gpu.replicas=0 gpu.sharing-strategy=none
			mig.capable=true mig.strategy=mixed mps.capable=false vgpu.present=false
			mig-7g.80gb.count=8 mig-7g.80gb.product=NVIDIA-A100-SXM4-80GB-MIG-7g.80gb-SHARED mig-7g.80gb.replicas=3 mig-7g.80gb.sharing-strategy=time-slicing`},
		"an eighth of an L4 is a virtual GPU of known name": {"g6f.large", catalog.State{}, `
			gpu.compute.major=8 gpu.compute.minor=9 gpu.count=1 gpu.family=ada-lovelace gpu.machine=g6f.large gpu.memory=3072
			gpu.product=NVIDIA-L4-3Q gpu.replicas=1 gpu.sharing-strategy=none mig.capable=false mps.capable=false`},
		"a virtual GPU of unknown name has no product": {"g4-standard-6", catalog.State{Sharing: timeSlicing}, `
			gpu.compute.major=12 gpu.compute.minor=0 gpu.count=1 gpu.family=blackwell gpu.machine=Google-Compute-Engine
			gpu.replicas=4 gpu.sharing-strategy=time-slicing mig.capable=false mps.capable=false`},
		"unknown memory is not predicted": {"Standard_NV36ads_A10_v5", catalog.State{}, `
			gpu.compute.major=8 gpu.compute.minor=6 gpu.count=1 gpu.family=ampere gpu.machine=Virtual-Machine
			gpu.product=NVIDIA-A10-24Q gpu.replicas=1 gpu.sharing-strategy=none mig.capable=false mps.capable=false`},
		"a value of 63 characters is the longest": {"g7e.2xlarge", catalog.State{Sharing: timeSlicing, MIG: catalog.MIGState{Strategy: catalog.MIGStrategySingle, Devices: []catalog.MIGDevices{{Profile: "1g.24gb", Count: 4}}}}, `
			gpu.compute.major=12 gpu.compute.minor=0 gpu.count=4 gpu.family=blackwell gpu.machine=g7e.2xlarge
			gpu.product=NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-MIG-1g.24gb-SHARED gpu.replicas=4 gpu.sharing-strategy=time-slicing
			mig.capable=true mig.strategy=single mps.capable=false vgpu.present=false`},
		"a longer value is dropped, and no stale one stays": {"g7e.2xlarge", catalog.State{Sharing: timeSlicing, MIG: catalog.MIGState{Strategy: catalog.MIGStrategySingle, Devices: []catalog.MIGDevices{{Profile: "1g.24gb+me", Count: 1}}}}, `
			gpu.compute.major=12 gpu.compute.minor=0 gpu.count=1 gpu.family=blackwell gpu.machine=g7e.2xlarge
			gpu.replicas=4 gpu.sharing-strategy=time-slicing
			mig.capable=true mig.strategy=single mps.capable=false vgpu.present=false`},
	} {
		t.Run(name, func(t *testing.T) {
			got := catalog.Labels(mustShape(t, tc.shape), tc.state)
			if diff := cmp.Diff(parse(tc.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFamilyFollowsComputeCapability(t *testing.T) {
	for key, want := range map[string]string{
		"v100-16gb": "volta", "t4": "turing", "a30": "ampere", "a10g": "ampere", "l4": "ada-lovelace", "h200": "hopper",
		"b200": "blackwell", "b300": "blackwell", "rtx-pro-6000": "blackwell",
	} {
		m, _ := catalog.Default().Model(key)
		got := catalog.Labels(catalog.Shape{GPUs: 1, GPUFraction: 1, Model: m}, catalog.State{})["nvidia.com/gpu.family"]
		if got != want {
			t.Errorf("%s: family %q, want %q", key, got, want)
		}
	}
	unknown := catalog.Shape{GPUs: 1, GPUFraction: 1, Model: catalog.Model{Key: "x", Product: "X", Compute: catalog.Capability{Major: 99}}}
	if got := catalog.Labels(unknown, catalog.State{})["nvidia.com/gpu.family"]; got != "undefined" {
		t.Errorf("an unknown generation has family %q, want undefined", got)
	}
}

func TestProductsAreCleanedAsGFDDoes(t *testing.T) {
	for product, want := range map[string]string{
		"NVIDIA A100 80GB PCIe": "NVIDIA-A100-80GB-PCIe", "  Quadro (TM)  RTX/8000 ": "Quadro-TM-RTX8000", "": "", "日本": "",
	} {
		if got := (catalog.Model{Product: product}).GFDProduct(); got != want {
			t.Errorf("GFDProduct of %q = %q, want %q", product, got, want)
		}
	}
}

func TestInvalidValuesAreLeftOut(t *testing.T) {
	for _, machine := range []string{"-leading", "trailing-", ".", strings.Repeat("x", 64)} {
		s := catalog.Shape{Name: machine, Provider: "aws", GPUs: 1, GPUFraction: 1}
		if got, ok := catalog.Labels(s, catalog.State{})["nvidia.com/gpu.machine"]; ok {
			t.Errorf("predicted %q, which is no label value", got)
		}
	}
}

// Every label that Labels predicts is announced by LabelKeys or MIGLabelKeys,
// is a number where announced as one, and is in no list of unpredictable labels.
func TestEveryPredictedKeyIsAnnounced(t *testing.T) {
	shapes := catalog.Default().GPUShapes()
	check := func(pick uint16, replicas, count, whole uint8, strategy, sharing uint8, renamed, operator bool) bool {
		st := catalog.State{
			Operator: operator,
			Sharing:  catalog.SharingState{Strategy: []string{"", "none", "time-slicing", "mps"}[sharing%4], Replicas: int(replicas), Renamed: renamed},
			MIG:      catalog.MIGState{Strategy: []catalog.MIGStrategy{"", "none", "single", "mixed"}[strategy%4], WholeGPUs: int(whole % 2)},
		}
		announced := map[string]bool{}
		for _, k := range append(catalog.LabelKeys(), catalog.MIGLabelKeys("1g.10gb+me")...) {
			announced[k.Key] = k.Numeric
		}
		if count%3 > 0 {
			st.MIG.Devices = []catalog.MIGDevices{{Profile: "1g.10gb+me", Count: int(count), MemoryMiB: int(count), Attributes: map[string]int{"slices.gi": 1}}}
		}
		for key, value := range catalog.Labels(shapes[int(pick)%len(shapes)], st) {
			numeric, ok := announced[key]
			if _, never := catalog.UnpredictedLabels()[key]; !ok || never || len(value) > 63 {
				return false
			}
			if _, err := strconv.Atoi(value); numeric && err != nil {
				return false
			}
		}
		return true
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

func TestKeysAreOrderedAndApart(t *testing.T) {
	keys := catalog.LabelKeys()
	names := make([]string, 0, len(keys))
	for _, k := range keys {
		names = append(names, k.Key)
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("keys are not sorted or not unique: %v", names)
	}
	for _, k := range slices.Sorted(maps.Keys(catalog.UnpredictedLabels())) {
		if slices.Contains(names, k) || catalog.UnpredictedLabels()[k] == "" {
			t.Errorf("%s is listed both as predicted and as unpredictable, or has no reason", k)
		}
	}
}

func BenchmarkLabels(b *testing.B) {
	s := mustShape(b, "p5.48xlarge")
	for name, st := range map[string]catalog.State{
		"sharing=none":         {},
		"mig=mixed/profiles=1": {MIG: catalog.MIGState{Strategy: catalog.MIGStrategyMixed, Devices: slices7(56)}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				catalog.Labels(s, st)
			}
		})
	}
}
