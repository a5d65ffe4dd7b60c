package mig

import "slices"

// Engines counts the media engines of a profile or a GPU.
type Engines struct {
	Decoders, JPEG, OFA, Encoders int
}

// Placement is one GPU instance on a GPU: it covers the memory units
// [Start, Start+Size). Units are NVML's, as in nvmlGpuInstancePlacement_t.
type Placement struct {
	Profile     string
	Start, Size int
}

// Profile is one kind of partition of one GPU model. It is immutable; the zero
// Profile is no profile.
type Profile struct {
	name         Name
	nvml         int
	giProfileID  *int
	maxInstances int
	memorySlices *int
	memoryGiB    *float64
	sms          *int
	engines      *Engines
	starts       []int
}

// Name returns the name as NVIDIA prints it, as in 1g.10gb+me.
func (p Profile) Name() string { return p.name.String() }

// Parsed returns the parts of the name.
func (p Profile) Parsed() Name { return p.name }

// ResourceName returns the extended resource under the mixed strategy, as in
// nvidia.com/mig-1g.10gb.me.
func (p Profile) ResourceName() string { return p.name.ResourceName() }

// Base reports whether the profile is a plain one, without +me, +gfx or -me.
func (p Profile) Base() bool { return p.name.Attributes() == "" }

// ComputeSlices returns the compute slices of an instance.
func (p Profile) ComputeSlices() int { return p.name.slices }

// MemorySlices returns the memory units of an instance; false where the model's
// placements are not known.
func (p Profile) MemorySlices() (int, bool) { return deref(p.memorySlices) }

// MemoryGiB returns the memory of an instance; false where not known. The GB in
// the name is rounded from the whole GPU's and is not this figure.
func (p Profile) MemoryGiB() (float64, bool) { return deref(p.memoryGiB) }

// SMs returns the streaming multiprocessors of an instance; false where not
// known. It is no multiple of ComputeSlices.
func (p Profile) SMs() (int, bool) { return deref(p.sms) }

// Engines returns the media engines of an instance; false where not known.
func (p Profile) Engines() (Engines, bool) { return deref(p.engines) }

// GIProfileID returns the driver's profile ID that CreateGpuInstance takes;
// false where not known.
func (p Profile) GIProfileID() (int, bool) { return deref(p.giProfileID) }

// NVMLProfile returns the NVML_GPU_INSTANCE_PROFILE_* index.
func (p Profile) NVMLProfile() int { return p.nvml }

// MaxInstances returns how many instances one GPU can hold.
func (p Profile) MaxInstances() int { return p.maxInstances }

// MediaExtensions reports whether the profile takes the GPU's media extensions
// (+me or +me.all).
func (p Profile) MediaExtensions() bool { return p.name.plus == "me" || p.name.plus == "me.all" }

// Placements returns where an instance may lie, by start; nil where not known.
// The caller owns the slice.
func (p Profile) Placements() []Placement {
	var all []Placement
	for _, s := range p.starts {
		all = append(all, Placement{Profile: p.Name(), Start: s, Size: p.weight()})
	}
	return all
}

// weight is the size by which profiles are ordered and waste is counted: memory
// units, or compute slices on models whose units are not known.
func (p Profile) weight() int {
	if p.memorySlices != nil {
		return *p.memorySlices
	}
	return p.ComputeSlices()
}

// creationOrder puts large instances first: NVIDIA asks for it where the driver
// picks placements, because a small one would land in the middle.
func creationOrder(profiles []Profile) []int {
	order := make([]int, len(profiles))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if d := profiles[b].weight() - profiles[a].weight(); d != 0 {
			return d
		}
		return profiles[b].ComputeSlices() - profiles[a].ComputeSlices()
	})
	return order
}

func deref[T any](p *T) (T, bool) {
	if p == nil {
		var zero T
		return zero, false
	}
	return *p, true
}
