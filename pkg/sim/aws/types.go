package aws

import (
	"slices"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// InstanceType is a machine type on offer. GPU fields are what DescribeInstanceTypes
// reports, which for some types differs from what the machine has.
type InstanceType struct {
	Name         string  `json:"name"`
	VCPU         int     `json:"vcpu"`
	MemoryMiB    int     `json:"memoryMiB"`
	Arch         string  `json:"arch"` // amd64 or arm64
	PricePerHour float64 `json:"pricePerHour"`

	GPUs            int    `json:"gpus,omitempty"`
	GPUName         string `json:"gpuName,omitempty"`
	GPUManufacturer string `json:"gpuManufacturer,omitempty"` // NVIDIA where empty
	GPUMemoryMiB    int    `json:"gpuMemoryMiB,omitempty"`    // of one

	LocalNVMeGB   int    `json:"localNVMeGB,omitempty"`
	EFAInterfaces int    `json:"efaInterfaces,omitempty"`
	MaxENIs       int    `json:"maxENIs,omitempty"`
	IPv4PerENI    int    `json:"ipv4PerENI,omitempty"`
	Hypervisor    string `json:"hypervisor,omitempty"`
	BareMetal     bool   `json:"bareMetal,omitempty"`
}

// catalogTypes are the catalogue's EC2 types that have a price. A type without one
// cannot be bought by a controller that compares prices.
func catalogTypes() []InstanceType {
	var out []InstanceType
	for _, shape := range catalog.Default().Shapes() {
		if shape.Provider != "aws" || shape.PricePerHour == 0 {
			continue
		}
		out = append(out, InstanceType{
			Name: shape.Name, VCPU: shape.VCPU, MemoryMiB: shape.MemoryMiB, Arch: shape.Arch,
			PricePerHour: shape.PricePerHour,
			GPUs:         shape.EC2GPUs, GPUName: shape.EC2GPUName, GPUMemoryMiB: shape.EC2GPUMemoryMiB,
			LocalNVMeGB: shape.LocalNVMeGB, EFAInterfaces: shape.EFAInterfaces,
			MaxENIs: shape.MaxENIs, IPv4PerENI: shape.IPv4PerENI,
			Hypervisor: shape.Hypervisor, BareMetal: shape.BareMetal,
		})
	}
	return out
}

// ENIs are the network interfaces and the addresses of each that the VPC CNI can use;
// 4 and 15, those of a small type, where the data has none.
func (t InstanceType) ENIs() (interfaces, addresses int) {
	if t.MaxENIs == 0 || t.IPv4PerENI == 0 {
		return 4, 15
	}
	return t.MaxENIs, t.IPv4PerENI
}

func (t InstanceType) ec2Arch() string {
	if t.Arch == "arm64" {
		return "arm64"
	}
	return "x86_64"
}

func (s *Server) offered(instanceType, zone string) bool {
	return !slices.ContainsFunc(s.opts.NotOffered, func(p Pool) bool {
		return matchOr(p.InstanceType, instanceType) && matchOr(p.Zone, zone)
	})
}

type gpuXML struct {
	Name         string `xml:"name"`
	Manufacturer string `xml:"manufacturer"`
	Count        int    `xml:"count"`
	MemoryMiB    int    `xml:"memoryInfo>sizeInMiB"`
}

type gpuInfoXML struct {
	GPUs  []gpuXML `xml:"gpus>item"`
	Total int      `xml:"totalGpuMemoryInMiB"`
}

type diskXML struct {
	SizeGB int    `xml:"sizeInGB"`
	Count  int    `xml:"count"`
	Type   string `xml:"type"`
}

type storageXML struct {
	TotalGB int       `xml:"totalSizeInGB"`
	Disks   []diskXML `xml:"disks>item"`
	NVMe    string    `xml:"nvmeSupport"`
}

type efaXML struct {
	Maximum int `xml:"maximumEfaInterfaces"`
}

type cardXML struct {
	Index      int `xml:"networkCardIndex"`
	Interfaces int `xml:"maximumNetworkInterfaces"`
}

type networkXML struct {
	Interfaces  int       `xml:"maximumNetworkInterfaces"`
	Cards       int       `xml:"maximumNetworkCards"`
	DefaultCard int       `xml:"defaultNetworkCardIndex"`
	CardSet     []cardXML `xml:"networkCards>item"`
	IPv4        int       `xml:"ipv4AddressesPerInterface"`
	IPv6        int       `xml:"ipv6AddressesPerInterface"`
	IPv6OK      bool      `xml:"ipv6Supported"`
	ENA         string    `xml:"enaSupport"`
	EFA         bool      `xml:"efaSupported"`
	EFAInfo     *efaXML   `xml:"efaInfo"`
	Encryption  bool      `xml:"encryptionInTransitSupported"`
}

type typeXML struct {
	Name           string      `xml:"instanceType"`
	Current        bool        `xml:"currentGeneration"`
	FreeTier       bool        `xml:"freeTierEligible"`
	UsageClasses   []string    `xml:"supportedUsageClasses>item"`
	RootDevices    []string    `xml:"supportedRootDeviceTypes>item"`
	Virtualization []string    `xml:"supportedVirtualizationTypes>item"`
	BareMetal      bool        `xml:"bareMetal"`
	Hypervisor     string      `xml:"hypervisor,omitempty"`
	Architectures  []string    `xml:"processorInfo>supportedArchitectures>item"`
	CPUMaker       string      `xml:"processorInfo>manufacturer"`
	Cores          int         `xml:"vCpuInfo>defaultCores"`
	VCPUs          int         `xml:"vCpuInfo>defaultVCpus"`
	Threads        int         `xml:"vCpuInfo>defaultThreadsPerCore"`
	MemoryMiB      int         `xml:"memoryInfo>sizeInMiB"`
	HasStorage     bool        `xml:"instanceStorageSupported"`
	Storage        *storageXML `xml:"instanceStorageInfo"`
	Network        networkXML  `xml:"networkInfo"`
	GPU            *gpuInfoXML `xml:"gpuInfo"`
	Placement      []string    `xml:"placementGroupInfo>supportedStrategies>item"`
	Enclaves       string      `xml:"nitroEnclavesSupport"`
}

type describeInstanceTypesResponse struct {
	envelope
	Types     []typeXML `xml:"instanceTypeSet>item"`
	NextToken string    `xml:"nextToken,omitempty"`
}

func typeToXML(t InstanceType) typeXML {
	out := typeXML{
		Name: t.Name, Current: true, UsageClasses: []string{"on-demand", "spot"},
		RootDevices: []string{"ebs"}, Virtualization: []string{"hvm"},
		BareMetal: t.BareMetal, Hypervisor: t.Hypervisor,
		Architectures: []string{t.ec2Arch()}, CPUMaker: cpuMaker(t),
		VCPUs: t.VCPU, Cores: t.VCPU, Threads: 1, MemoryMiB: t.MemoryMiB,
		Network:   networkToXML(t),
		Placement: []string{"cluster", "partition", "spread"}, Enclaves: "unsupported",
	}
	if t.Arch == "amd64" && t.VCPU > 1 {
		out.Cores, out.Threads = t.VCPU/2, 2
	}
	if t.LocalNVMeGB > 0 {
		out.HasStorage = true
		out.Storage = &storageXML{TotalGB: t.LocalNVMeGB, NVMe: "required",
			Disks: []diskXML{{SizeGB: t.LocalNVMeGB, Count: 1, Type: "ssd"}}}
	}
	if t.GPUName != "" {
		out.GPU = &gpuInfoXML{Total: t.GPUs * t.GPUMemoryMiB, GPUs: []gpuXML{{
			Name: t.GPUName, Manufacturer: gpuMaker(t), Count: t.GPUs, MemoryMiB: t.GPUMemoryMiB}}}
	}
	return out
}

func networkToXML(t InstanceType) networkXML {
	interfaces, addresses := t.ENIs()
	cards := max(t.EFAInterfaces, 1)
	out := networkXML{Interfaces: interfaces * cards, Cards: cards, IPv4: addresses, IPv6: addresses, IPv6OK: true,
		ENA: "required", EFA: t.EFAInterfaces > 0, Encryption: true}
	for n := range cards {
		out.CardSet = append(out.CardSet, cardXML{Index: n, Interfaces: interfaces})
	}
	if t.EFAInterfaces > 0 {
		out.EFAInfo = &efaXML{Maximum: t.EFAInterfaces}
	}
	return out
}

func gpuMaker(t InstanceType) string {
	if t.GPUManufacturer == "" {
		return "NVIDIA"
	}
	return t.GPUManufacturer
}

// cpuMaker goes by EC2's naming: arm64 is Graviton, an "a" after the generation is AMD.
func cpuMaker(t InstanceType) string {
	switch {
	case t.Arch == "arm64":
		return "AWS"
	case amdName(t.Name):
		return "AMD"
	default:
		return "Intel"
	}
}

func amdName(name string) bool {
	for n := 1; n < len(name)-1 && name[n] != '.'; n++ {
		if name[n] >= '0' && name[n] <= '9' && name[n+1] == 'a' {
			return true
		}
	}
	return false
}

func (s *Server) describeInstanceTypes(p *params) (sealer, error) {
	items := sortedValues(s.types)
	names := p.strings("InstanceType")
	for _, name := range names {
		if _, ok := s.types[name]; !ok {
			return nil, newError("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", name)
		}
	}
	items = slices.DeleteFunc(items, func(t InstanceType) bool { return len(names) > 0 && !slices.Contains(names, t.Name) })
	items, err := filtered(p, items, typeFilters)
	if err != nil {
		return nil, err
	}
	items, next, err := page(p, items)
	out := &describeInstanceTypesResponse{NextToken: next}
	for _, t := range items {
		out.Types = append(out.Types, typeToXML(t))
	}
	return out, err
}

func typeFilters(t InstanceType, name string) ([]string, bool) {
	switch name {
	case "instance-type":
		return []string{t.Name}, true
	case "supported-virtualization-type":
		return []string{"hvm"}, true
	case "supported-usage-class":
		return []string{"on-demand", "spot"}, true
	case "processor-info.supported-architecture":
		return []string{t.ec2Arch()}, true
	case "bare-metal":
		return []string{boolText(t.BareMetal)}, true
	case "current-generation":
		return []string{"true"}, true
	default:
		return nil, false
	}
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

type offeringXML struct {
	Type     string `xml:"instanceType"`
	Kind     string `xml:"locationType"`
	Location string `xml:"location"`
}

type describeInstanceTypeOfferingsResponse struct {
	envelope
	Offerings []offeringXML `xml:"instanceTypeOfferingSet>item"`
	NextToken string        `xml:"nextToken,omitempty"`
}

func (s *Server) describeInstanceTypeOfferings(p *params) (sealer, error) {
	kind := p.str("LocationType")
	var items []offeringXML
	for _, t := range sortedValues(s.types) {
		for _, zone := range s.opts.Zones {
			location := zone
			if kind == "availability-zone-id" {
				location = zoneID(s.opts.Region, zone)
			}
			if s.offered(t.Name, zone) {
				items = append(items, offeringXML{Type: t.Name, Kind: kind, Location: location})
			}
		}
	}
	if kind == "" || kind == "region" {
		items = slices.CompactFunc(items, func(a, b offeringXML) bool { return a.Type == b.Type })
		for n := range items {
			items[n].Kind, items[n].Location = "region", s.opts.Region
		}
	}
	items, err := filtered(p, items, fields(func(o offeringXML) map[string]string {
		return map[string]string{"instance-type": o.Type, "location": o.Location}
	}))
	if err != nil {
		return nil, err
	}
	items, next, err := page(p, items)
	return &describeInstanceTypeOfferingsResponse{Offerings: items, NextToken: next}, err
}
