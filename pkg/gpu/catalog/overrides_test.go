package catalog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

func with(t *testing.T, text string) (*catalog.Catalog, error) {
	t.Helper()
	o, err := catalog.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	return catalog.Default().With(o)
}

func mustWith(t *testing.T, text string) *catalog.Catalog {
	t.Helper()
	c, err := with(t, text)
	if err != nil {
		t.Fatalf("With: %v", err)
	}
	return c
}

func TestOverridesCorrectAModelAndItsShapes(t *testing.T) {
	before := catalog.Default().Shapes()
	c := mustWith(t, `
models:
- {name: t4g, memoryMiB: 15109, product: NVIDIA T4G rev 2, link: none, mode: graphics}
`)
	for name, wantMemory := range map[string]int{"g5g.xlarge": 15109, "g5g.metal": 16384} {
		s, _ := c.Shape(name)
		if s.Model.Product != "NVIDIA T4G rev 2" || s.Model.Architecture != "Turing" || s.GPUMemoryMiB != wantMemory {
			t.Errorf("%s: model %+v, memory %d, want %d", name, s.Model, s.GPUMemoryMiB, wantMemory)
		}
	}
	if diff := cmp.Diff(before, catalog.Default().Shapes()); diff != "" {
		t.Errorf("the built-in catalogue changed (-before +after):\n%s", diff)
	}
}

func TestOverridesAddAModelAndAShape(t *testing.T) {
	c := mustWith(t, `
models:
- {name: rtx-4090, product: NVIDIA GeForce RTX 4090, memoryMiB: 24564, architecture: Ada, computeCapability: "8.9", mode: graphics}
shapes:
- {name: workstation, provider: local, vcpu: 16, memoryMiB: 65536, arch: amd64, gpus: 2, model: rtx-4090, link: pcie, pricePerHour: 0.4, priceRegion: home}
- {name: m7g.large, pricePerHour: 0.07}
- {name: p4d.24xlarge, gpus: 0}
- {name: g6.xlarge, gpuFraction: 0.5}
`)
	s, _ := c.Shape("workstation")
	want := map[string]string{
		"nvidia.com/gpu.compute.major": "8", "nvidia.com/gpu.compute.minor": "9", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.family": "ada-lovelace",
		"nvidia.com/gpu.memory": "24564", "nvidia.com/gpu.mode": "graphics", "nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-4090",
		"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/mig.capable": "false",
		"nvidia.com/mps.capable": "false", "nvidia.com/vgpu.present": "false",
	}
	if diff := cmp.Diff(want, catalog.Labels(s, catalog.State{})); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if s, _ := c.Shape("m7g.large"); s.PricePerHour != 0.07 || s.VCPU != 2 {
		t.Errorf("m7g.large: %+v", s)
	}
	if s, _ := c.Shape("p4d.24xlarge"); s.HasGPU() || !s.Model.IsZero() {
		t.Errorf("p4d.24xlarge still has GPUs: %+v", s)
	}
	if s, _ := c.Shape("g6.xlarge"); !s.Fractional() || s.GPUMemoryMiB != 0 {
		t.Errorf("half an L4 has %d MiB, want unknown", s.GPUMemoryMiB)
	}
}

func TestOverridesTakeMIGAway(t *testing.T) {
	s, _ := mustWith(t, `models: [{name: rtx-pro-4500, mig: none}]`).Shape("g7.2xlarge")
	if s.MIGCapable() {
		t.Error("g7.2xlarge still has MIG")
	}
}

func TestOverridesAreRejected(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"an unknown field":             {"models: [{name: t4, memory: 1}]", "parsing gpu catalogue overrides, yaml: unmarshal errors:\n  line 1: field memory not found in type catalog.ModelOverride"},
		"two documents":                {"models: []\n---\nshapes: []", "parsing gpu catalogue overrides, more than one YAML document: put all models and shapes into the first one"},
		"a model without a name":       {"models: [{product: X}]", `validating gpu catalogue overrides, models[0].name: "" is empty: give the model a name`},
		"a name that occurs twice":     {"shapes: [{name: a}, {name: a}]", `validating gpu catalogue overrides, shapes[1].name: "a" occurs twice: merge both entries into one`},
		"an empty product":             {"models: [{name: t4, product: ' '}]", `validating gpu catalogue overrides, models[0].product: " " is empty: leave the field out to keep the built-in value`},
		"no memory":                    {"models: [{name: t4, memoryMiB: 0}]", `validating gpu catalogue overrides, models[0].memoryMiB: "0" is out of range: use a whole number from 1 to 1073741824`},
		"a capability that is none":    {"models: [{name: t4, computeCapability: sm_75}]", `validating gpu catalogue overrides, models[0].computeCapability: "sm_75" is not a compute capability such as 8.9: write it in quotes, "8.9"`},
		"an unknown link":              {"models: [{name: t4, link: sli}]", `validating gpu catalogue overrides, models[0].link: "sli" is not known: use one of none, pcie, nvlink, nvswitch`},
		"an unknown architecture":      {"shapes: [{name: a, arch: x86}]", `validating gpu catalogue overrides, shapes[0].arch: "x86" is not known: use one of amd64, arm64`},
		"a fraction above one":         {"shapes: [{name: g5.xlarge, gpuFraction: 2}]", `validating gpu catalogue overrides, shapes[0].gpuFraction: "2" is not above 0 and at most 1: write 1 for whole GPUs, 0.125 for an eighth`},
		"a fraction that is no number": {"shapes: [{name: g5.xlarge, gpuFraction: .nan}]", `validating gpu catalogue overrides, shapes[0].gpuFraction: "NaN" is not above 0 and at most 1: write 1 for whole GPUs, 0.125 for an eighth`},
		"an infinite price":            {"shapes: [{name: g5.xlarge, pricePerHour: .inf}]", `validating gpu catalogue overrides, shapes[0].pricePerHour: "+Inf" is no price in USD per hour: leave it out where the price is not known`},
		"a new model in part":          {"models: [{name: t4x, product: X, architecture: Y}]", `applying gpu catalogue overrides, models[0].computeCapability: "" is missing on the new model "t4x": add it, or correct the name if you meant a built-in model`},
		"an unknown geometry":          {"models: [{name: t4, mig: t4-16gb}]", `models[0].mig: "t4-16gb" is not known: use one of a100-40gb, `},
		"an unknown model":             {"shapes: [{name: g5.xlarge, model: a11g}]", `applying gpu catalogue overrides, shapes[0].model: "a11g" is no model: use a built-in key such as a100-80gb, or add the model under models`},
		"GPUs without a model":         {"shapes: [{name: m7g.large, gpus: 1}]", `applying gpu catalogue overrides, shapes[0].model: "" is missing on a shape with GPUs: name a model, such as a100-80gb`},
		"every problem at once":        {"models: [{name: t4, memoryMiB: -1, mode: fast}]", "\nmodels[0].mode: \"fast\" is not known: use one of compute, graphics"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := with(t, tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error:\n got %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestNoOverridesChangeNothing(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "{}", "models: []\nshapes: []\n"} {
		if diff := cmp.Diff(catalog.Default().Shapes(), mustWith(t, text).Shapes()); diff != "" {
			t.Errorf("%q changed the catalogue:\n%s", text, diff)
		}
	}
}

func TestOverridesOfTheZeroCatalog(t *testing.T) {
	o, err := catalog.Parse([]byte(`shapes: [{name: box, provider: local, vcpu: 1, memoryMiB: 1024, arch: arm64}]`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := (&catalog.Catalog{}).With(o)
	if err != nil || len(c.Shapes()) != 1 {
		t.Errorf("got %v and error %v, want one shape", c, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("models: [{name: x, product: X, architecture: Y, computeCapability: \"1.0\"}]")
	f.Add("shapes: [{name: g6f.large, gpus: 1, gpuFraction: 0.125, model: l4-3q}]")
	f.Add("shapes: [{name: '', vcpu: -1}]\n---\n")
	f.Add("models: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := catalog.Parse([]byte(text))
		if err != nil {
			return
		}
		c, err := catalog.Default().With(o)
		if err != nil {
			return
		}
		for _, s := range o.Shapes {
			got, ok := c.Shape(s.Name)
			if !ok || got.HasGPU() == got.Model.IsZero() || got.VCPU <= 0 || !(got.GPUFraction >= 0 && got.GPUFraction <= 1) {
				t.Errorf("accepted an unsound shape: %+v", got)
			}
			catalog.Labels(got, catalog.State{})
		}
	})
}
