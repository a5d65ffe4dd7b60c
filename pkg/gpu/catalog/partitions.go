package catalog

import (
	"maps"
	"math"
	"slices"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// PartitionsOf describes a node's partitions for [Labels]: the devices of a layout
// over so many GPUs, by profile name, and how many GPUs it leaves whole. Both are
// zero for the zero layout, for one that does not cover the GPUs, and for one that
// makes no partition, whose GPUs are no different from those of a node without MIG.
func PartitionsOf(layout mig.NodeLayout, gpus int) (devices []MIGDevices, whole int) {
	if layout.Geometry() == nil {
		return nil, 0
	}
	layouts, err := layout.Layouts(gpus)
	if err != nil {
		return nil, 0
	}
	counts := mig.Demand{}
	for _, l := range layouts {
		if !l.MIGEnabled() {
			whole++
		}
		counts = counts.Plus(l.Counts())
	}
	if len(counts) == 0 {
		return nil, 0
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		devices = append(devices, devicesOf(layout.Geometry(), name, counts[name]))
	}
	return devices, whole
}

// devicesOf leaves out what the geometry does not know of a profile.
func devicesOf(g *mig.Geometry, name string, count int) MIGDevices {
	d := MIGDevices{Profile: name, Count: count, Attributes: map[string]int{}}
	profile, err := g.Profile(name)
	if err != nil {
		return d
	}
	d.Attributes["slices.gi"] = profile.ComputeSlices()
	d.Attributes["slices.ci"] = profile.ComputeSlices()
	if gib, ok := profile.MemoryGiB(); ok {
		d.MemoryMiB = int(math.Round(gib * 1024))
	}
	if sms, ok := profile.SMs(); ok {
		d.Attributes["multiprocessors"] = sms
	}
	return d
}
