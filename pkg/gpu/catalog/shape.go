package catalog

import "strings"

// Shape is one machine type that a provider sells.
type Shape struct {
	// Name is the provider's name of the type, such as "p5.48xlarge".
	Name string
	// Provider is "aws", "gcp" or "azure"; other names come from Overrides.
	Provider string
	// Family and Size are the two halves of an EC2 name. Other providers have
	// a family only.
	Family, Size string
	// VCPU and MemoryMiB are the advertised size.
	VCPU, MemoryMiB int
	// Arch is "amd64" or "arm64".
	Arch string

	// GPUs is how many GPU devices the guest sees; 0 is a machine without.
	GPUs int
	// GPUFraction is the part of a physical GPU that each of them is: 1 for
	// whole GPUs, 0.125 for an eighth, 0 on a machine without GPUs.
	GPUFraction float64
	// Model is the GPU model; the zero Model on a machine without GPUs.
	Model Model
	// GPUMemoryMiB is the memory by NVML of each device; 0 is unknown.
	GPUMemoryMiB int
	// Link is how the GPUs of this machine reach each other; LinkNone where
	// there is only one.
	Link Link
	// PCIeRoots is the number of PCIe roots with GPUs; 0 is unknown.
	PCIeRoots int

	// EC2GPUs, EC2GPUName and EC2GPUMemoryMiB are what DescribeInstanceTypes
	// reports, which is wrong for some types (GPU counts of 0).
	EC2GPUs         int
	EC2GPUName      string
	EC2GPUMemoryMiB int

	// EFAInterfaces is the number of EFA devices.
	EFAInterfaces int
	// LocalNVMeGB is the total of the local disks.
	LocalNVMeGB int
	// MaxENIs and IPv4PerENI bound the pods of the EC2 VPC CNI; 0 is unknown.
	MaxENIs, IPv4PerENI int
	// Hypervisor is "nitro", "xen" or empty (bare metal or unknown).
	Hypervisor string
	// BareMetal is true for machines without a hypervisor.
	BareMetal bool
	// BandwidthMbps is the baseline network bandwidth; 0 is unknown.
	BandwidthMbps int

	// PricePerHour is the on-demand price in USD in PriceRegion; 0 is unknown.
	PricePerHour float64
	// PriceRegion is the region of PricePerHour; empty without a price.
	PriceRegion string
	// Sources and Notes say where the figures come from and what is odd.
	Sources, Notes string
}

// HasGPU tells whether the guest sees any GPU, whole or fractional.
func (s Shape) HasGPU() bool { return s.GPUs > 0 }

// Fractional tells whether the GPUs are parts of physical ones.
func (s Shape) Fractional() bool { return s.GPUs > 0 && s.GPUFraction < 1 }

// MIGCapable tells whether the GPUs can be split by MIG.
func (s Shape) MIGCapable() bool { return s.GPUs > 0 && !s.Fractional() && s.Model.MIGCapable() }

// settleGPUMemory takes the memory from the model where the shape has no figure
// of its own. A part of a GPU whose model is the whole one stays unknown.
func (s *Shape) settleGPUMemory() {
	if s.GPUMemoryMiB == 0 && (!s.Fractional() || s.Model.VGPU) {
		s.GPUMemoryMiB = s.Model.MemoryMiB
	}
}

// splitName cuts an EC2 name into family and size.
func splitName(name string) (family, size string) {
	family, size, _ = strings.Cut(name, ".")
	return family, size
}
