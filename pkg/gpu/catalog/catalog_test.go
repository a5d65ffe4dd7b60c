package catalog_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

func mustShape(t testing.TB, name string) catalog.Shape {
	t.Helper()
	s, ok := catalog.Default().Shape(name)
	if !ok {
		t.Fatalf("no shape %q", name)
	}
	return s
}

func TestDefaultHoldsEveryProvider(t *testing.T) {
	gpus, cpus := map[string]int{}, map[string]int{}
	for _, s := range catalog.Default().Shapes() {
		if s.HasGPU() {
			gpus[s.Provider]++
		} else {
			cpus[s.Provider]++
		}
	}
	if diff := cmp.Diff(map[string]int{"aws": 69, "gcp": 33, "azure": 25}, gpus); diff != "" {
		t.Errorf("gpu shapes by provider (-want +got):\n%s", diff)
	}
	if cpus["aws"] < 700 {
		t.Errorf("got %d cpu shapes, want at least 700", cpus["aws"])
	}
}

func TestShapesTheEC2APIMisreports(t *testing.T) {
	type figures struct {
		GPUs         int
		Fraction     float64
		Product      string
		MemoryMiB    int
		EC2GPUs      int
		EC2Name      string
		EC2MemoryMiB int
	}
	for name, want := range map[string]figures{
		"p5.4xlarge":   {1, 1, "NVIDIA H100 80GB HBM3", 81559, 0, "H100", 81920},
		"g6f.large":    {1, 0.125, "NVIDIA L4-3Q", 3072, 0, "L4", 2861},
		"g6f.2xlarge":  {1, 0.25, "NVIDIA L4-6Q", 6144, 0, "L4", 5722},
		"gr6f.4xlarge": {1, 0.5, "NVIDIA L4-12Q", 12288, 0, "L4", 11444},
		"g4dn.xlarge":  {1, 1, "Tesla T4", 15360, 1, "T4", 16384},
		"g5g.metal":    {2, 1, "NVIDIA T4G", 16384, 2, "T4g", 16384},
		"p5.48xlarge":  {8, 1, "NVIDIA H100 80GB HBM3", 81559, 8, "H100", 81920},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustShape(t, name)
			got := figures{s.GPUs, s.GPUFraction, s.Model.Product, s.GPUMemoryMiB, s.EC2GPUs, s.EC2GPUName, s.EC2GPUMemoryMiB}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLinks(t *testing.T) {
	for name, want := range map[string]catalog.Link{
		"g5.xlarge": catalog.LinkNone, "p5.4xlarge": catalog.LinkNone, "g5.12xlarge": catalog.LinkPCIe, "p3.8xlarge": catalog.LinkNVLink,
		"p4d.24xlarge": catalog.LinkNVSwitch, "p6e-gb200.36xlarge": catalog.LinkNVSwitch, "g6f.large": catalog.LinkNone,
		"Standard_ND40rs_v2": catalog.LinkNVLink, "a3-highgpu-1g": catalog.LinkNone, "m7g.large": catalog.LinkNone,
	} {
		if got := mustShape(t, name).Link; got != want {
			t.Errorf("%s: link %q, want %q", name, got, want)
		}
	}
}

func TestFamilies(t *testing.T) {
	for name, want := range map[string][2]string{
		"p5.48xlarge": {"p5", "48xlarge"}, "c8a.metal-24xl": {"c8a", "metal-24xl"}, "a3-highgpu-8g": {"a3", ""},
		"Standard_ND96isr_H100_v5": {"ND", ""}, "Standard_NCC40ads_H100_v5": {"NCC", ""},
	} {
		s := mustShape(t, name)
		if got := [2]string{s.Family, s.Size}; got != want {
			t.Errorf("%s: family and size %q, want %q", name, got, want)
		}
	}
}

func TestEveryShapeIsSound(t *testing.T) {
	for _, s := range catalog.Default().Shapes() {
		if s.VCPU <= 0 || s.MemoryMiB <= 0 || s.Sources == "" || s.Family == "" {
			t.Errorf("%s: incomplete: %+v", s.Name, s)
		}
		if s.Arch != "amd64" && s.Arch != "arm64" {
			t.Errorf("%s: architecture %q", s.Name, s.Arch)
		}
		if (s.PricePerHour > 0) != (s.PriceRegion != "") {
			t.Errorf("%s: price %v in region %q", s.Name, s.PricePerHour, s.PriceRegion)
		}
		if s.HasGPU() == s.Model.IsZero() || s.HasGPU() != (s.GPUFraction > 0) || s.GPUFraction > 1 {
			t.Errorf("%s: %d gpus, fraction %v, model %q", s.Name, s.GPUs, s.GPUFraction, s.Model.Key)
		}
		if s.GPUs < 2 && s.Link != catalog.LinkNone {
			t.Errorf("%s: link %q between %d gpus", s.Name, s.Link, s.GPUs)
		}
	}
}

func TestEveryGeometryIsKnownToMIG(t *testing.T) {
	for _, m := range catalog.Default().Models() {
		if !m.MIGCapable() {
			continue
		}
		g, ok := mig.ByKey(m.MIG)
		if !ok {
			t.Errorf("%s: pkg/gpu/mig has no geometry %q", m.Key, m.MIG)
			continue
		}
		if byProduct, ok := mig.ForProduct(m.Product); !ok || byProduct != g {
			t.Errorf("%s: pkg/gpu/mig does not list %q under %q", m.Key, m.Product, m.MIG)
		}
	}
}

// Rows whose size rule gave vCPU and memory rest on this.
func TestPublishedTypesObeyTheSizeRule(t *testing.T) {
	eighth := regexp.MustCompile(`^([cmr])8([a-z]*)(?:-flex)?\.(medium|large|xlarge|(\d+)xlarge|metal-(\d+)xl)$`)
	perVCPU := map[string]int{"c": 2048, "m": 4096, "r": 8192}
	published := 0
	for _, s := range catalog.Default().Shapes() {
		m := eighth.FindStringSubmatch(s.Name)
		if m == nil || strings.Contains(m[2], "d") {
			continue
		}
		if s.Notes != "size rule" {
			published++
		}
		want := map[string]int{"medium": 1, "large": 2, "xlarge": 4}[m[3]]
		if n, err := strconv.Atoi(m[4] + m[5]); err == nil {
			want = 4 * n
		}
		if s.VCPU != want || s.MemoryMiB != want*perVCPU[m[1]] {
			t.Errorf("%s: %d vCPU and %d MiB, the size says %d and %d", s.Name, s.VCPU, s.MemoryMiB, want, want*perVCPU[m[1]])
		}
	}
	if published < 30 {
		t.Errorf("%d published rows only, too few to rest a rule on", published)
	}
}

func TestLookups(t *testing.T) {
	c := catalog.Default()
	for _, product := range []string{"NVIDIA A100 80GB PCIe", "NVIDIA-A100-80GB-PCIe"} {
		if m, ok := c.ModelByProduct(product); !ok || m.Key != "a100-pcie-80gb" {
			t.Errorf("ModelByProduct(%q) = %q, %t", product, m.Key, ok)
		}
	}
	if m, ok := c.ModelByProduct("NVIDIA A1000"); ok {
		t.Errorf("ModelByProduct of an unknown product found %q", m.Key)
	}
	if _, ok := c.Shape("p99.large"); ok {
		t.Error("found a shape that is none")
	}
}

func TestReturnedSlicesAreTheCallersOwn(t *testing.T) {
	c := catalog.Default()
	before := c.Shapes()
	scribbled := c.Shapes()
	slices.Reverse(scribbled)
	scribbled[0].Name = "scribbled"
	if diff := cmp.Diff(before, c.Shapes()); diff != "" {
		t.Errorf("a caller changed the catalogue (-before +after):\n%s", diff)
	}
	if !slices.IsSortedFunc(before, func(a, b catalog.Shape) int {
		return strings.Compare(a.Provider+"\x00"+a.Name, b.Provider+"\x00"+b.Name)
	}) {
		t.Error("shapes are not ordered by provider and name")
	}
}

func TestTheZeroCatalogIsEmpty(t *testing.T) {
	var c catalog.Catalog
	if n := len(c.Shapes()) + len(c.Models()) + len(c.GPUShapes()); n != 0 {
		t.Errorf("%d entries, want none", n)
	}
}
