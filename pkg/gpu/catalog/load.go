package catalog

import (
	"embed"
	"io/fs"
	"strconv"
	"strings"
	"unicode"
)

//go:embed data/*.csv
var files embed.FS

// load reads the data files into a catalogue.
func load(fsys fs.FS) (*Catalog, error) {
	models, shapes := map[string]Model{}, map[string]Shape{}
	for _, f := range []struct {
		name string
		read func(*record)
	}{
		{"models.csv", func(r *record) { m := readModel(r); models[m.Key] = m }},
		{"ec2-gpus.csv", func(r *record) { s := readEC2GPU(r, models); shapes[s.Name] = s }},
		{"ec2-net.csv", func(r *record) {
			s := shapes[r.text("instance_type")]
			readNetwork(r, &s)
			shapes[s.Name] = s
		}},
		{"ec2-cpu.csv", func(r *record) { s := readEC2CPU(r); shapes[s.Name] = s }},
		{"gcp.csv", func(r *record) { s := readCloud(r, "gcp", models); shapes[s.Name] = s }},
		{"azure.csv", func(r *record) { s := readCloud(r, "azure", models); shapes[s.Name] = s }},
	} {
		if err := eachRecord(fsys, "data/"+f.name, f.read); err != nil {
			return nil, err
		}
	}
	return build(models, shapes), nil
}

func readModel(r *record) Model {
	return Model{
		Key: r.need("key"), Product: r.need("product"), MemoryMiB: r.int("memory_mib"),
		Architecture: r.need("architecture"), Compute: r.capability("compute_capability"), MIG: r.text("mig"), VGPU: r.text("vgpu") == "yes",
		Link: Link(r.text("link")), LinkGBps: r.int("link_gbps"), Mode: r.text("mode"),
		Sources: r.need("sources"), Notes: r.text("notes"),
	}
}

func readEC2GPU(r *record, models map[string]Model) Shape {
	s := Shape{
		Name: r.need("instance_type"), Provider: "aws", VCPU: r.int("vcpu"), MemoryMiB: r.int("ram_mib"), Arch: r.need("cpu_arch"),
		GPUs: r.int("gpu_count"), GPUFraction: r.float("gpu_fraction"), Model: r.model("model", models),
		GPUMemoryMiB: r.int("gpu_mem_mib_nvml"), PCIeRoots: r.int("pcie_roots_with_gpu"),
		EC2GPUs: r.int("ec2_gpu_count"), EC2GPUName: r.need("ec2_gpu_name"), EC2GPUMemoryMiB: r.int("ec2_gpu_mem_mib"),
		EFAInterfaces: r.int("efa_interfaces"), LocalNVMeGB: r.int("local_nvme_gb"),
		Sources: r.need("sources"), Notes: r.text("notes"),
	}
	s.Family, s.Size = splitName(s.Name)
	s.Link = shapeLink(r.text("gpu_link"), r.text("nvswitch"))
	s.settleGPUMemory()
	readPrice(r, &s)
	return s
}

func readCloud(r *record, provider string, models map[string]Model) Shape {
	s := Shape{
		Name: r.need("instance_type"), Provider: provider, VCPU: r.int("vcpu"), MemoryMiB: r.int("ram_mib"), Arch: r.need("cpu_arch"),
		GPUs: r.int("gpu_count"), GPUFraction: r.float("gpu_fraction"), Model: r.model("model", models), Link: Link(r.text("link")),
		PriceRegion: r.text("price_region"), Sources: r.need("sources"), Notes: r.text("notes"),
	}
	s.Family = cloudFamily(s.Name)
	s.settleGPUMemory()
	if r.text("price_usd_h") != "" {
		s.PricePerHour = r.float("price_usd_h")
	}
	return s
}

// cloudFamily is the part of a GCP or Azure name before its sizes: a3 of
// a3-highgpu-8g, ND of Standard_ND96isr_H100_v5.
func cloudFamily(name string) string {
	rest, azure := strings.CutPrefix(name, "Standard_")
	end := strings.IndexByte(rest, '-')
	if azure {
		end = strings.IndexFunc(rest, unicode.IsDigit)
	}
	if end < 0 {
		return rest
	}
	return rest[:end]
}

func shapeLink(link, nvswitch string) Link {
	switch {
	case strings.HasPrefix(link, "none"):
		return LinkNone
	case strings.HasPrefix(nvswitch, "yes"):
		return LinkNVSwitch
	case strings.HasPrefix(link, "nvlink"):
		return LinkNVLink
	}
	return LinkPCIe
}

func readEC2CPU(r *record) Shape {
	s := Shape{
		Name: r.need("instance_type"), Provider: "aws", VCPU: r.int("vcpu"), MemoryMiB: r.int("ram_mib"), Arch: r.need("cpu_arch"),
		EFAInterfaces: r.int("efa_interfaces"), LocalNVMeGB: r.int("local_nvme_gb"),
		Sources: "ec2instances.info+pricing+vpclimits", Notes: r.text("notes"),
	}
	s.Family, s.Size = splitName(s.Name)
	readNetwork(r, &s)
	readPrice(r, &s)
	return s
}

func readNetwork(r *record, s *Shape) {
	if s.Name == "" {
		r.fail("instance_type", "is in no other file")
	}
	s.Hypervisor, s.BareMetal = r.text("hypervisor"), r.text("bare_metal") == "yes"
	s.MaxENIs, s.IPv4PerENI, s.BandwidthMbps = r.int("max_enis"), r.int("ipv4_per_eni"), r.int("bandwidth_mbps")
}

// readPrice prefers us-east-1; another region is written as "region:price".
func readPrice(r *record, s *Shape) {
	if r.text("price_usd_h_us_east_1") != "" {
		s.PricePerHour, s.PriceRegion = r.float("price_usd_h_us_east_1"), "us-east-1"
		return
	}
	region, price, ok := strings.Cut(r.optional("price_other_region"), ":")
	if !ok {
		return
	}
	p, err := strconv.ParseFloat(price, 64)
	if err != nil {
		r.fail("price_other_region", "is not region:price")
	}
	s.PricePerHour, s.PriceRegion = p, region
}
