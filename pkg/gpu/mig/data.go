package mig

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"gopkg.in/yaml.v3"
)

//go:embed data/mig.yaml
var embedded []byte

// Bounds that keep count vectors in a fixed array and occupancy in one word.
const (
	maxProfiles    = 16
	maxMemoryUnits = 32
	maxPerGPU      = 32
)

type fileSpec struct {
	Rules        []string           `yaml:"rules"`
	GPUs         map[string]gpuSpec `yaml:"gpus"`
	NotTabulated []string           `yaml:"not_tabulated"`
}

type gpuSpec struct {
	Products      []string                     `yaml:"nvml_products"`
	DeviceFilter  []string                     `yaml:"mig_parted_device_filter"`
	Arch          string                       `yaml:"arch"`
	Capability    string                       `yaml:"compute_capability"`
	NameTotalGB   int                          `yaml:"name_total_gb"`
	MemoryUnits   *int                         `yaml:"memory_units"`
	ComputeSlices int                          `yaml:"compute_slices"`
	MaxInstances  int                          `yaml:"max_instances"`
	Status        map[string]string            `yaml:"status"`
	Notes         []string                     `yaml:"notes"`
	MediaBudget   *engineSpec                  `yaml:"media_budget"`
	AlsoObserved  map[string]map[string]string `yaml:"also_observed"`
	Profiles      []profileSpec                `yaml:"profiles"`
	Layouts       map[string]map[string]int    `yaml:"layouts"`
}

type profileSpec struct {
	Name          string          `yaml:"name"`
	Variant       string          `yaml:"variant"`
	NVML          int             `yaml:"nvml_profile"`
	GIProfileID   *int            `yaml:"gi_profile_id"`
	MaxInstances  int             `yaml:"max_instances"`
	ComputeSlices int             `yaml:"compute_slices"`
	MemorySlices  *int            `yaml:"memory_slices"`
	MemoryGiB     *float64        `yaml:"memory_gib"`
	SMs           *int            `yaml:"sm"`
	Engines       *engineSpec     `yaml:"engines"`
	Resource      string          `yaml:"k8s_resource"`
	Placements    []placementSpec `yaml:"placements"`
}

type engineSpec struct {
	Decoders *int `yaml:"dec"`
	JPEG     *int `yaml:"jpeg"`
	OFA      *int `yaml:"ofa"`
	Encoders *int `yaml:"enc"`
}

type placementSpec struct {
	Start int `yaml:"start"`
	Size  int `yaml:"size"`
}

var builtin = sync.OnceValue(func() []*Geometry {
	all, err := Parse(embedded)
	if err != nil {
		panic(err) // the file is compiled in and tested
	}
	return all
})

// Parse reads geometries in the format of data/mig.yaml, sorted by key. Every
// fault is reported, joined; unknown fields are faults.
func Parse(data []byte) ([]*Geometry, error) {
	var file fileSpec
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("reading MIG geometries, %w", err)
	}
	var all []*Geometry
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(file.GPUs)) {
		g, err := newGeometry(key, file.GPUs[key])
		if err != nil {
			errs = append(errs, fmt.Errorf("reading MIG geometry %q, %w", key, err))
			continue
		}
		all = append(all, g)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

func newGeometry(key string, spec gpuSpec) (*Geometry, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	g := &Geometry{key: key, spec: spec, index: map[string]int{}, layouts: map[string]Layout{}}
	if spec.MemoryUnits != nil {
		g.units = *spec.MemoryUnits
	}
	for i, p := range spec.Profiles {
		profile, err := newProfile(p, g.units, spec.ComputeSlices)
		if err != nil {
			return nil, fmt.Errorf("profiles[%d], %w", i, err)
		}
		if _, ok := g.index[p.Name]; ok {
			return nil, fmt.Errorf("profiles[%d].name %q is there twice; keep one", i, p.Name)
		}
		g.index[p.Name] = i
		g.profiles = append(g.profiles, profile)
	}
	g.order = creationOrder(g.profiles)
	g.space = sync.OnceValue(g.enumerate)
	if err := g.addLayouts(spec.Layouts); err != nil {
		return nil, err
	}
	return g, g.addNamings(spec.AlsoObserved)
}

func (s gpuSpec) validate() error {
	switch {
	case len(s.Profiles) == 0 || len(s.Profiles) > maxProfiles:
		return fmt.Errorf("profiles has %d entries, want 1 to %d", len(s.Profiles), maxProfiles)
	case s.MemoryUnits != nil && (*s.MemoryUnits < 1 || *s.MemoryUnits > maxMemoryUnits):
		return fmt.Errorf("memory_units is %d, want 1 to %d, or null where placements are not known", *s.MemoryUnits, maxMemoryUnits)
	case s.ComputeSlices < 1 || s.ComputeSlices > maxMemoryUnits:
		return fmt.Errorf("compute_slices is %d, want 1 to %d", s.ComputeSlices, maxMemoryUnits)
	}
	return nil
}

func newProfile(s profileSpec, units, computeSlices int) (Profile, error) {
	name, err := ParseProfile(s.Name)
	if err != nil {
		return Profile{}, err
	}
	if err := s.validate(name, units, computeSlices); err != nil {
		return Profile{}, err
	}
	starts, err := s.starts(units)
	if err != nil {
		return Profile{}, err
	}
	p := Profile{name: name, nvml: s.NVML, giProfileID: s.GIProfileID, maxInstances: s.MaxInstances,
		memorySlices: s.MemorySlices, memoryGiB: s.MemoryGiB, sms: s.SMs, starts: starts}
	if s.Engines != nil {
		e := s.Engines.engines()
		p.engines = &e
	}
	return p, nil
}

func (s profileSpec) validate(name Name, units, computeSlices int) error {
	switch {
	case !name.WholeInstance():
		return fmt.Errorf("name %q is a compute instance; list its GPU instance", s.Name)
	case s.ComputeSlices != name.ComputeSlices() || s.ComputeSlices > computeSlices:
		return fmt.Errorf("compute_slices of %s is %d, want what the name says and at most %d", s.Name, s.ComputeSlices, computeSlices)
	case s.MaxInstances < 1 || s.MaxInstances > maxPerGPU:
		return fmt.Errorf("max_instances of %s is %d, want 1 to %d", s.Name, s.MaxInstances, maxPerGPU)
	case (units == 0) != (len(s.Placements) == 0) || (units == 0) != (s.MemorySlices == nil):
		return fmt.Errorf("placements and memory_slices of %s must be given exactly where memory_units is", s.Name)
	case s.Resource != "" && s.Resource != name.ResourceName():
		return fmt.Errorf("k8s_resource of %s is %q, want %q", s.Name, s.Resource, name.ResourceName())
	}
	return nil
}

func (s profileSpec) starts(units int) ([]int, error) {
	var starts []int
	for _, p := range s.Placements {
		if p.Size < 1 || p.Size != *s.MemorySlices || p.Start < 0 || p.Start > units-p.Size {
			return nil, fmt.Errorf("placements of %s has {start: %d, size: %d}, want size memory_slices (%d) and an end within %d units", s.Name, p.Start, p.Size, *s.MemorySlices, units)
		}
		starts = append(starts, p.Start)
	}
	slices.Sort(starts)
	return slices.Compact(starts), nil
}

func (e engineSpec) engines() Engines {
	val := func(p *int) int { v, _ := deref(p); return v }
	return Engines{Decoders: val(e.Decoders), JPEG: val(e.JPEG), OFA: val(e.OFA), Encoders: val(e.Encoders)}
}
