package upstream_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/karpenter-provider-aws/pkg/providers/drametadata"
	"github.com/aws/karpenter-provider-aws/pkg/providers/instancetype"
	"github.com/aws/karpenter-provider-aws/pkg/providers/pricing"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// differ reports a disagreement unless the notes of the shape or of its model
// quote the upstream value.
func differ(t *testing.T, s catalog.Shape, what string, ours, theirs any) {
	t.Helper()
	quoted := regexp.MustCompile(`(^|[^\w.])` + regexp.QuoteMeta(fmt.Sprint(theirs)) + `($|[^\w.])`)
	if fmt.Sprint(ours) == fmt.Sprint(theirs) || quoted.MatchString(s.Notes+" "+s.Model.Notes) {
		return
	}
	t.Errorf("%s: %s is %v here and %v upstream: correct the data file, or explain the upstream value in its notes column", s.Name, what, ours, theirs)
}

func shape(t *testing.T, name string) catalog.Shape {
	t.Helper()
	s, ok := catalog.Default().Shape(name)
	if !ok {
		t.Errorf("%s: upstream knows it, the catalogue does not: add it to ec2-gpus.csv", name)
	}
	return s
}

func text(d drametadata.DRADevice, attribute resourcev1.QualifiedName) string {
	a := d.Attributes[attribute]
	if a.VersionValue != nil {
		return *a.VersionValue
	}
	if a.StringValue != nil {
		return *a.StringValue
	}
	return ""
}

func TestGPUsAgreeWithDRAMetadata(t *testing.T) {
	if len(drametadata.GPUMetadataByInstanceType) < 40 {
		t.Fatalf("upstream lists %d types only", len(drametadata.GPUMetadataByInstanceType))
	}
	for name, meta := range drametadata.GPUMetadataByInstanceType {
		s := shape(t, name)
		differ(t, s, "gpu_count", s.GPUs, meta.Count)
		roots := map[string]bool{}
		for _, d := range meta.Devices {
			memory := d.Capacity["memory"]
			roots[text(d, "resource.kubernetes.io/pcieRoot")] = true
			differ(t, s, "product", s.Model.Product, text(d, "productName"))
			differ(t, s, "memory_mib", s.GPUMemoryMiB, memory.Value.Value()>>20)
			differ(t, s, "compute_capability", s.Model.Compute.String()+".0", text(d, "cudaComputeCapability"))
			differ(t, s, "architecture", s.Model.Architecture, strings.TrimSuffix(text(d, "architecture"), " Lovelace"))
		}
		if s.PCIeRoots != 0 {
			differ(t, s, "pcie_roots_with_gpu", s.PCIeRoots, len(roots))
		}
	}
}

func TestEFAAgreesWithDRAMetadata(t *testing.T) {
	for name, meta := range drametadata.EFAMetadataByInstanceType {
		if s, ok := catalog.Default().Shape(name); ok {
			differ(t, s, "efa_interfaces", s.EFAInterfaces, meta.Count)
		}
	}
}

func TestPricesAgree(t *testing.T) {
	prices, compared := pricing.InitialOnDemandPricesAWS["us-east-1"], 0
	for _, s := range catalog.Default().Shapes() {
		if s.Provider != "aws" {
			continue
		}
		price, ok := prices[ec2types.InstanceType(s.Name)]
		switch {
		case ok:
			differ(t, s, "price_usd_h_us_east_1", s.PricePerHour, price)
			compared++
		case s.PriceRegion == "us-east-1" && !strings.Contains(s.Notes, "price"):
			t.Errorf("%s: price_usd_h_us_east_1 is %v here, upstream has none", s.Name, s.PricePerHour)
		}
	}
	if compared < 700 {
		t.Errorf("compared %d prices only", compared)
	}
}

func TestNetworkLimitsAgree(t *testing.T) {
	compared := 0
	for _, s := range catalog.Default().Shapes() {
		limits, ok := instancetype.Limits[s.Name]
		if s.Provider != "aws" || !ok {
			continue
		}
		compared++
		differ(t, s, "max_enis", s.MaxENIs, limits.Interface)
		differ(t, s, "ipv4_per_eni", s.IPv4PerENI, limits.IPv4PerInterface)
		differ(t, s, "bare_metal", s.BareMetal, limits.IsBareMetal)
		differ(t, s, "hypervisor", s.Hypervisor, limits.Hypervisor)
		differ(t, s, "bandwidth_mbps", s.BandwidthMbps, instancetype.InstanceTypeBandwidthMegabits[s.Name])
	}
	if compared < 700 {
		t.Errorf("compared %d types only", compared)
	}
}
