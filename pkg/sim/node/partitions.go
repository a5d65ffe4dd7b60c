package node

import (
	"slices"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// applicationXIDs are those that the device plugin takes for the application's and ignores.
var applicationXIDs = []int{13, 31, 43, 45, 68, 109}

// withhold plays the health checks of the device plugin for MIG: a partition that an XID has hit
// stays in capacity and leaves allocatable.
func (t troubles) withhold(allocatable map[string]int64, instanceType string, p Partition) {
	if t.kinds[PluginBlind] {
		return
	}
	var hit []int
	for _, x := range t.xids {
		if x.Instance > 0 && !slices.Contains(applicationXIDs, x.Code) {
			hit = append(hit, x.Instance)
		}
	}
	slices.Sort(hit)
	for _, instance := range slices.Compact(hit) {
		if name, ok := resourceOf(instance, instanceType, p); ok && allocatable[name] > 0 {
			allocatable[name]--
		}
	}
}

// resourceOf is the resource that a MIG instance of GPU 0 counts for. Instances have numbers from 1
// in the order in which they were created.
func resourceOf(instance int, instanceType string, p Partition) (name string, ok bool) {
	layouts := LayoutsOf(instanceType, p.Layout, p.File)
	if len(layouts) == 0 {
		return "", false
	}
	placed := layouts[0].Placements()
	if instance > len(placed) {
		return "", false
	}
	if p.Strategy != "mixed" {
		return mig.WholeGPUResource, true
	}
	profile, err := mig.ParseProfile(placed[instance-1].Profile)
	return profile.ResourceName(), err == nil
}
