package sharing_test

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/sharing"
)

func model(t *testing.T, key string) catalog.Model {
	t.Helper()
	m, ok := catalog.Default().Model(key)
	if !ok {
		t.Fatalf("no model %q", key)
	}
	return m
}

func TestResources(t *testing.T) {
	for name, tc := range map[string]struct {
		sharing       sharing.Sharing
		gpus          int
		wantResources map[string]int
		wantSuffix    string
	}{
		"no sharing offers whole GPUs": {
			sharing.Sharing{}, 8, map[string]int{"nvidia.com/gpu": 8}, "",
		},
		"four time slices multiply each GPU": {
			sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: 4}, 8, map[string]int{"nvidia.com/gpu": 32}, "-SHARED",
		},
		"renamed slices leave no whole GPUs and no suffix": {
			sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: 4, RenameByDefault: true}, 2, map[string]int{"nvidia.com/gpu.shared": 8}, "",
		},
		"MPS counts like time slices": {
			sharing.Sharing{Strategy: sharing.MPS, Replicas: 10}, 1, map[string]int{"nvidia.com/gpu": 10}, "-SHARED",
		},
		"one replica is no sharing": {
			sharing.Sharing{Strategy: sharing.MPS, Replicas: 1, RenameByDefault: true}, 3, map[string]int{"nvidia.com/gpu": 3}, "",
		},
		"a machine without GPUs offers nothing": {
			sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: 4}, 0, map[string]int{}, "-SHARED",
		},
		"a negative count offers nothing": {
			sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: 4}, -8, map[string]int{}, "-SHARED",
		},
		"a product beyond 32 bits stops there": {
			sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: math.MaxInt32}, math.MaxInt, map[string]int{"nvidia.com/gpu": math.MaxInt32}, "-SHARED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.wantResources, tc.sharing.Resources(tc.gpus)); diff != "" {
				t.Errorf("Resources (-want +got):\n%s", diff)
			}
			if got := tc.sharing.Suffix(); got != tc.wantSuffix {
				t.Errorf("Suffix = %q, want %q", got, tc.wantSuffix)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	mixed := catalog.MIGState{Strategy: catalog.MIGStrategyMixed}
	cut := catalog.MIGState{Strategy: catalog.MIGStrategySingle, Devices: []catalog.MIGDevices{{Profile: "1g.10gb", Count: 7}}}
	for name, tc := range map[string]struct {
		sharing sharing.Sharing
		model   string
		mig     catalog.MIGState
		want    string
	}{
		"no sharing":                            {sharing.Sharing{}, "a10g", catalog.MIGState{}, ""},
		"none by name":                          {sharing.Sharing{Strategy: sharing.None}, "a10g", catalog.MIGState{}, ""},
		"time-slicing on any GPU":               {sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: 100}, "v100-16gb", catalog.MIGState{}, ""},
		"time-slicing of MIG devices":           {sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: 2}, "a100-80gb", cut, ""},
		"48 MPS clients on Turing":              {sharing.Sharing{Strategy: sharing.MPS, Replicas: 48}, "t4", catalog.MIGState{}, ""},
		"16 MPS clients on Volta":               {sharing.Sharing{Strategy: sharing.MPS, Replicas: 16}, "v100-16gb", catalog.MIGState{}, ""},
		"MPS under single without MIG devices":  {sharing.Sharing{Strategy: sharing.MPS, Replicas: 4}, "a100-80gb", catalog.MIGState{Strategy: catalog.MIGStrategySingle}, ""},
		"replicas without a strategy":           {sharing.Sharing{Replicas: 4}, "a10g", catalog.MIGState{}, `replicas: 4 without a strategy: choose time-slicing or mps, or leave replicas out`},
		"unknown strategy":                      {sharing.Sharing{Strategy: "slicing", Replicas: 4}, "a10g", catalog.MIGState{}, `strategy: "slicing" is not known: use time-slicing or mps`},
		"one replica":                           {sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: 1}, "a10g", catalog.MIGState{}, `replicas: 1 is out of range: use a whole number from 2 to 2147483647, or turn sharing off`},
		"negative replicas":                     {sharing.Sharing{Strategy: sharing.MPS, Replicas: -1}, "a10g", catalog.MIGState{}, `replicas: -1 is out of range: use a whole number from 2 to 2147483647, or turn sharing off`},
		"49 MPS clients on Turing":              {sharing.Sharing{Strategy: sharing.MPS, Replicas: 49}, "t4", catalog.MIGState{}, `replicas: 49 is more than MPS serves on Tesla T4 (compute capability 7.5): use at most 48, or time-slicing`},
		"17 MPS clients on Volta":               {sharing.Sharing{Strategy: sharing.MPS, Replicas: 17}, "v100-16gb", catalog.MIGState{}, `replicas: 17 is more than MPS serves on Tesla V100-SXM2-16GB (compute capability 7.0): use at most 16, or time-slicing`},
		"MPS under mixed, even without devices": {sharing.Sharing{Strategy: sharing.MPS, Replicas: 4}, "a100-80gb", mixed, `strategy: "mps" is refused under MIG strategy mixed: use MIG strategy single or none, or time-slicing`},
		"MPS on MIG devices":                    {sharing.Sharing{Strategy: sharing.MPS, Replicas: 4}, "a100-80gb", cut, `strategy: "mps" is refused on GPUs in MIG mode: use time-slicing, or a pool without MIG`},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := tc.sharing.Validate(model(t, tc.model), tc.mig); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("Validate:\n got %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestAdmits(t *testing.T) {
	strict := sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: 4, FailRequestsGreaterThanOne: true}
	lax := sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: 4}
	whole := sharing.Sharing{FailRequestsGreaterThanOne: true}
	for name, tc := range map[string]struct {
		sharing sharing.Sharing
		request int
		want    bool
	}{
		"strict sharing admits one replica":   {strict, 1, true},
		"strict sharing refuses two replicas": {strict, 2, false},
		"lax sharing admits two replicas":     {lax, 2, true},
		"whole GPUs are never refused":        {whole, 8, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.sharing.Admits(tc.request); got != tc.want {
				t.Errorf("Admits(%d) = %t, want %t", tc.request, got, tc.want)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	want := `version: v1
sharing:
  mps:
    renameByDefault: true
    failRequestsGreaterThanOne: false
    resources:
    - name: nvidia.com/gpu
      replicas: 8
`
	s := sharing.Sharing{Strategy: sharing.MPS, Replicas: 8, RenameByDefault: true}
	if diff := cmp.Diff(want, s.Config()); diff != "" {
		t.Errorf("Config (-want +got):\n%s", diff)
	}
	if got := (sharing.Sharing{}).Config() + (sharing.Sharing{}).ConfigName(); got != "" {
		t.Errorf("no sharing has the configuration %q, want none", got)
	}
}

// plugin is the part of the device plugin's own configuration type that we
// write.
type plugin struct {
	Version string
	Sharing map[string]struct {
		RenameByDefault            bool `yaml:"renameByDefault"`
		FailRequestsGreaterThanOne bool `yaml:"failRequestsGreaterThanOne"`
		Resources                  []struct {
			Name     string
			Replicas int
		}
	}
}

var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

func TestEverySharingHasItsOwnConfig(t *testing.T) {
	byName := map[string]string{}
	check := func(mps, rename, strict bool, n uint16) bool {
		s := sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: 2 + int(n), RenameByDefault: rename, FailRequestsGreaterThanOne: strict}
		section := "timeSlicing"
		if mps {
			s.Strategy, section = sharing.MPS, "mps"
		}
		var p plugin
		d := yaml.NewDecoder(strings.NewReader(s.Config()))
		d.KnownFields(true)
		if err := d.Decode(&p); err != nil || p.Version != "v1" || len(p.Sharing) != 1 {
			return false
		}
		got := p.Sharing[section]
		name := s.ConfigName()
		if old, ok := byName[name]; ok && old != s.Config() {
			return false
		}
		byName[name] = s.Config()
		return labelValue.MatchString(name) && got.RenameByDefault == rename && got.FailRequestsGreaterThanOne == strict &&
			len(got.Resources) == 1 && got.Resources[0].Name == "nvidia.com/gpu" && got.Resources[0].Replicas == s.Replicas
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
	longest := sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: math.MaxInt32, RenameByDefault: true, FailRequestsGreaterThanOne: true}
	if !labelValue.MatchString(longest.ConfigName()) {
		t.Errorf("longest name %q is no label value", longest.ConfigName())
	}
}

func TestGPUsIsTheFewestThatOfferTheUnits(t *testing.T) {
	check := func(replicas, units uint8) bool {
		s := sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: int(replicas)}
		n := s.GPUs(int(units))
		fewest := 0
		for s.Units(fewest) < int(units) {
			fewest++
		}
		return n == fewest
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func TestStateAgreesWithGFD(t *testing.T) {
	shape, ok := catalog.Default().Shape("g5.12xlarge")
	if !ok {
		t.Fatal("no g5.12xlarge")
	}
	for _, rename := range []bool{false, true} {
		s := sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: 4, RenameByDefault: rename}
		got := catalog.Labels(shape, catalog.State{Sharing: s.State()})
		if want := "NVIDIA-A10G" + s.Suffix(); got["nvidia.com/gpu.product"] != want {
			t.Errorf("renamed %t: product %q, want %q", rename, got["nvidia.com/gpu.product"], want)
		}
		if got["nvidia.com/gpu.replicas"] != "4" || got["nvidia.com/gpu.count"] != "4" {
			t.Errorf("renamed %t: count %q and replicas %q, want 4 and 4", rename, got["nvidia.com/gpu.count"], got["nvidia.com/gpu.replicas"])
		}
	}
}

func FuzzUnits(f *testing.F) {
	f.Add(4, 8)
	f.Add(math.MaxInt, math.MaxInt)
	f.Add(math.MinInt, -1)
	f.Fuzz(func(t *testing.T, replicas, gpus int) {
		s := sharing.Sharing{Strategy: sharing.TimeSlicing, Replicas: replicas}
		units := s.Units(gpus)
		if units < 0 {
			t.Errorf("Units(%d) with %d replicas = %d", gpus, replicas, units)
		}
		if gpus > 0 && units < min(gpus, math.MaxInt32) {
			t.Errorf("Units(%d) with %d replicas = %d, fewer than GPUs", gpus, replicas, units)
		}
		if got := s.GPUs(units); got < 0 || gpus >= 0 && got > gpus {
			t.Errorf("GPUs(Units(%d)) with %d replicas = %d", gpus, replicas, got)
		}
	})
}
