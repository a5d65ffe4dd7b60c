package catalogprovider

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// named cuts an instance type into category and generation as the AWS provider does.
var named = regexp.MustCompile(`^([a-z]+)(-[0-9]+tb)?([0-9]+).*\.`)

// requirements are the labels that a node of the machine has or may have. What it has
// no value for is not on its nodes; UnknownLabels are left undefined.
func (m machine) requirements(zones []zone) scheduling.Requirements {
	values := m.labels()
	for _, key := range []string{
		corev1.LabelWindowsBuild, labelCPUManufacturer, labelNetworkBandwidth, labelCategory, labelFlex, labelFamily, labelGeneration, labelLocalNVMe, labelSize,
		labelGPUName, labelGPUManufacturer, labelGPUCount, labelGPUMemory, labelAccelName, labelAccelMaker, labelAccelCount,
		cloudprovider.ReservationIDLabel, labelReservationType, labelInterruptible,
	} {
		if _, ok := values[key]; !ok {
			values[key] = nil
		}
	}
	values[corev1.LabelTopologyZone] = lo.Map(zones, func(z zone, _ int) string { return z.name })
	if ids := lo.FilterMap(zones, func(z zone, _ int) (string, bool) { return z.id, z.id != "" }); len(ids) > 0 {
		values[labelZoneID] = ids
	}
	out := scheduling.NewRequirements()
	for _, key := range sortedKeys(values) {
		if values[key] == nil {
			out.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
			continue
		}
		out.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values[key]...))
	}
	return out
}

func (m machine) labels() map[string][]string {
	one := func(v any) []string { return []string{fmt.Sprint(v)} }
	out := map[string][]string{
		corev1.LabelInstanceTypeStable: one(m.Name),
		corev1.LabelArchStable:         one(m.Arch),
		corev1.LabelOSStable:           one(corev1.Linux),
		corev1.LabelTopologyRegion:     one(m.opts.Region),
		karpv1.CapacityTypeLabelKey:    {karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot},
		labelCPU:                       one(m.VCPU),
		labelMemory:                    one(m.MemoryMiB),
		labelCPUManufacturer:           one(cpuMaker(m.Family)),
		labelHypervisor:                one(m.Hypervisor),
		labelTenancy:                   {"default", "dedicated"},
		labelFamily:                    one(m.Family),
		labelSize:                      one(m.Size),
		labelFlex:                      one(strconv.FormatBool(strings.Contains(m.Family, "-flex"))),
	}
	if parts := named.FindStringSubmatch(m.Name); parts != nil {
		out[labelCategory], out[labelGeneration] = one(parts[1]), one(parts[3])
	}
	if m.BandwidthMbps > 0 {
		out[labelNetworkBandwidth] = one(m.BandwidthMbps)
	}
	if m.LocalNVMeGB > 0 {
		out[labelLocalNVMe] = one(m.LocalNVMeGB)
	}
	if m.HasGPU() {
		out[labelGPUName] = one(strings.ToLower(strings.ReplaceAll(m.EC2GPUName, " ", "-")))
		out[labelGPUManufacturer], out[labelGPUCount], out[labelGPUMemory] = one("nvidia"), one(m.EC2GPUs), one(m.EC2GPUMemoryMiB)
	}
	return out
}

// offerings are on-demand and spot in each zone. Without a price nothing can be
// compared, so that nothing is on sale.
func (m machine) offerings(zones []zone) cloudprovider.Offerings {
	var out cloudprovider.Offerings
	for _, z := range zones {
		for _, way := range []struct {
			capacityType string
			price        float64
		}{{karpv1.CapacityTypeOnDemand, m.PricePerHour}, {karpv1.CapacityTypeSpot, m.PricePerHour * m.opts.SpotPercent / 100}} {
			o := &cloudprovider.Offering{
				Requirements: scheduling.NewRequirements(
					scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, way.capacityType),
					scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, z.name),
					scheduling.NewRequirement(cloudprovider.ReservationIDLabel, corev1.NodeSelectorOpDoesNotExist),
					scheduling.NewRequirement(labelReservationType, corev1.NodeSelectorOpDoesNotExist),
					scheduling.NewRequirement(labelInterruptible, corev1.NodeSelectorOpDoesNotExist),
				),
				Price: way.price, Available: m.PricePerHour > 0,
			}
			if z.id != "" {
				o.Requirements.Add(scheduling.NewRequirement(labelZoneID, corev1.NodeSelectorOpIn, z.id))
			}
			out = append(out, o)
		}
	}
	return out
}
