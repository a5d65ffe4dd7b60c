package catalog

import (
	"embed"
	"encoding/csv"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
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
		Architecture: r.need("architecture"), Compute: r.capability("compute_capability"), MIG: r.text("mig"),
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
	if s.GPUMemoryMiB == 0 && s.GPUFraction == 1 {
		s.GPUMemoryMiB = s.Model.MemoryMiB
	}
	readPrice(r, &s)
	return s
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

// record is one line of a data file. It keeps the first error, so that readers
// need not check each cell.
type record struct {
	columns map[string]int
	cells   []string
	err     error
}

func (r *record) fail(column, problem string) {
	if r.err == nil {
		r.err = fmt.Errorf("column %s, value %q: %s", column, r.optional(column), problem)
	}
}

func (r *record) optional(column string) string {
	if i, ok := r.columns[column]; ok {
		return r.cells[i]
	}
	return ""
}

func (r *record) text(column string) string {
	if _, ok := r.columns[column]; !ok {
		r.fail(column, "no such column")
	}
	return r.optional(column)
}

func (r *record) need(column string) string {
	v := r.text(column)
	if v == "" {
		r.fail(column, "must not be empty")
	}
	return v
}

func (r *record) int(column string) int {
	v := r.text(column)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		r.fail(column, "is not a whole number")
	}
	return n
}

func (r *record) float(column string) float64 {
	n, err := strconv.ParseFloat(r.text(column), 64)
	if err != nil || n <= 0 || n > 1e6 {
		r.fail(column, "is not a positive number")
	}
	return n
}

func (r *record) capability(column string) Capability {
	c, err := parseCapability(r.text(column))
	if err != nil {
		r.fail(column, err.Error())
	}
	return c
}

func (r *record) model(column string, models map[string]Model) Model {
	m, ok := models[r.text(column)]
	if !ok {
		r.fail(column, "is not in models.csv")
	}
	return m
}

func parseCapability(s string) (Capability, error) {
	major, minor, _ := strings.Cut(s, ".")
	a, err := strconv.ParseUint(major, 10, 8)
	if err != nil {
		return Capability{}, fmt.Errorf("is not a compute capability such as 8.9")
	}
	b, err := strconv.ParseUint(minor, 10, 8)
	if err != nil {
		return Capability{}, fmt.Errorf("is not a compute capability such as 8.9")
	}
	return Capability{int(a), int(b)}, nil
}

// eachRecord reads a CSV file with a header line and # comments.
func eachRecord(fsys fs.FS, name string, read func(*record)) error {
	f, err := fsys.Open(name)
	if err != nil {
		return fmt.Errorf("opening %s, %w", name, err)
	}
	defer f.Close()
	rd := csv.NewReader(f)
	rd.Comment = '#'
	rows, err := rd.ReadAll()
	if err != nil || len(rows) == 0 {
		return fmt.Errorf("reading %s, %w", name, err)
	}
	columns := map[string]int{}
	for i, c := range rows[0] {
		columns[c] = i
	}
	for _, cells := range rows[1:] {
		r := &record{columns: columns, cells: cells}
		if read(r); r.err != nil {
			return fmt.Errorf("reading %s, line of %q, %w", name, cells[0], r.err)
		}
	}
	return nil
}
