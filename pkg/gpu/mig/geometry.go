package mig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

var (
	// ErrUnknownProfile is in the chain of errors about a profile that the
	// model does not have.
	ErrUnknownProfile = errors.New("unknown MIG profile")
	// ErrDoesNotFit is in the chain of errors about partitions that one GPU
	// cannot hold together.
	ErrDoesNotFit = errors.New("partitions do not fit one GPU")
	// ErrPlacementsUnknown is in the chain where the data has no placements for
	// the model.
	ErrPlacementsUnknown = errors.New("placements of the GPU are not known")
)

// Geometry is how one GPU model splits into partitions. It is immutable and
// safe for concurrent use; Geometries, ForProduct, ByKey and Parse make it.
type Geometry struct {
	key      string
	spec     gpuSpec
	units    int // 0 where placements are not known
	profiles []Profile
	index    map[string]int // profile name to its place in profiles
	order    []int          // places in profiles, largest first
	layouts  map[string]Layout
	namings  []*Geometry
	base     *Geometry // what a naming is another naming of; else nil
	space    func() *space
}

// Geometries returns the GPU models that the package knows, by key. The caller
// owns the slice.
func Geometries() []*Geometry { return slices.Clone(builtin()) }

// ByKey finds a model, or one of its namings, by the key in the data, as in
// h100-80gb or gb200-189gb.
func ByKey(key string) (*Geometry, bool) {
	for _, g := range builtin() {
		for _, n := range append([]*Geometry{g}, g.namings...) {
			if n.key == key {
				return n, true
			}
		}
	}
	return nil, false
}

// ForProduct finds the model of an NVML product name (NVIDIA H100 80GB HBM3), a
// GFD product label with or without its -SHARED or -MIG-… ending
// (NVIDIA-H100-80GB-HBM3-MIG-1g.10gb), either without the vendor, as old drivers
// print it, or a key of the data.
func ForProduct(product string) (*Geometry, bool) {
	want := normalizeProduct(product)
	for _, g := range builtin() {
		for _, p := range g.spec.Products {
			if normalizeProduct(p) == want {
				return g, true
			}
		}
	}
	return ByKey(product)
}

func normalizeProduct(s string) string {
	s = strings.ReplaceAll(strings.TrimSpace(s), " ", "-")
	s = strings.TrimSuffix(s, "-SHARED")
	if i := strings.Index(s, "-MIG-"); i >= 0 {
		s = s[:i]
	}
	return strings.TrimPrefix(s, "NVIDIA-")
}

// Key returns the model's key in the data.
func (g *Geometry) Key() string { return g.key }

// Products returns the NVML product names. The caller owns the slice.
func (g *Geometry) Products() []string { return slices.Clone(g.spec.Products) }

// DeviceFilter returns the PCI IDs by which mig-parted picks the model; empty
// where not known. The caller owns the slice.
func (g *Geometry) DeviceFilter() []string { return slices.Clone(g.spec.DeviceFilter) }

// Architecture returns NVIDIA's name of the architecture, as in Hopper.
func (g *Geometry) Architecture() string { return g.spec.Arch }

// ResetToEnable reports whether turning MIG mode on resets the GPU. It does on
// Ampere; Hopper and later need no reset.
func (g *Geometry) ResetToEnable() bool { return g.spec.Arch == "Ampere" }

// MemoryUnits returns the units that placements count in; false where the data
// has no placements for the model.
func (g *Geometry) MemoryUnits() (int, bool) { return g.units, g.units != 0 }

// ComputeSlices returns the compute slices of the GPU.
func (g *Geometry) ComputeSlices() int { return g.spec.ComputeSlices }

// MediaBudget returns the engines that all instances of a GPU share; false
// where no engine is bounded. An engine that is 0 is not bounded.
func (g *Geometry) MediaBudget() (Engines, bool) {
	if g.spec.MediaBudget == nil {
		return Engines{}, false
	}
	return g.spec.MediaBudget.engines(), true
}

// Status says per column of the data whether it was verified or inferred. The
// caller owns the map.
func (g *Geometry) Status() map[string]string { return maps.Clone(g.spec.Status) }

// Profiles returns the profiles in the order of the data. The caller owns the
// slice.
func (g *Geometry) Profiles() []Profile { return slices.Clone(g.profiles) }

// Profile finds a profile by name. The error, an ErrUnknownProfile, lists what
// the model has.
func (g *Geometry) Profile(name string) (Profile, error) {
	i, ok := g.index[name]
	if !ok {
		return Profile{}, g.unknownProfile(name)
	}
	return g.profiles[i], nil
}

// BaseProfiles returns the names of the plain profiles, without +me, +gfx and
// -me, largest first.
func (g *Geometry) BaseProfiles() []string {
	var names []string
	for _, i := range g.order {
		if g.profiles[i].Base() {
			names = append(names, g.profiles[i].Name())
		}
	}
	return names
}

func (g *Geometry) unknownProfile(name string) error {
	if n, err := ParseProfile(name); err != nil {
		return fmt.Errorf("%w, %w", err, ErrUnknownProfile)
	} else if !n.WholeInstance() {
		return fmt.Errorf("looking for %s on %s, it is a compute instance inside a GPU instance; use %s, %w", name, g.key,
			Name{slices: n.slices, memoryGB: n.memoryGB, plus: n.plus, minus: n.minus}, ErrUnknownProfile)
	}
	return fmt.Errorf("looking for %s on %s, it has %s, %w", name, g.key, strings.Join(g.profileNames(), " "), ErrUnknownProfile)
}

func (g *Geometry) profileNames() []string {
	var names []string
	for _, p := range g.profiles {
		names = append(names, p.Name())
	}
	return names
}

// vector validates a demand and turns it into counts by place in profiles.
func (g *Geometry) vector(d Demand) ([]int, error) {
	if err := d.validate(); err != nil {
		return nil, err
	}
	v := make([]int, len(g.profiles))
	for _, name := range d.names() {
		i, ok := g.index[name]
		if !ok {
			return nil, g.unknownProfile(name)
		}
		v[i] = d[name]
	}
	return v, nil
}

func (g *Geometry) demand(v counts) Demand {
	d := Demand{}
	for i, n := range v[:len(g.profiles)] {
		if n != 0 {
			d[g.profiles[i].Name()] = int(n)
		}
	}
	return d
}
