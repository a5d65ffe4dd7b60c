package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Overrides are a user's corrections: models and shapes that the built-in data
// lacks, or figures of its own models and shapes that are wrong for the user.
// Fields left out keep their built-in value.
type Overrides struct {
	Models []ModelOverride `yaml:"models"`
	Shapes []ShapeOverride `yaml:"shapes"`
}

// ModelOverride adds or corrects the model of its name. A new model needs
// product, architecture and computeCapability.
type ModelOverride struct {
	Name              string  `yaml:"name"`
	Product           *string `yaml:"product"`
	MemoryMiB         *int    `yaml:"memoryMiB"`
	Architecture      *string `yaml:"architecture"`
	ComputeCapability *string `yaml:"computeCapability"`
	// MIG is a geometry that some built-in model has; "none" takes MIG away.
	MIG      *string `yaml:"mig"`
	VGPU     *bool   `yaml:"vgpu"`
	Link     *string `yaml:"link"`
	LinkGBps *int    `yaml:"linkGBps"`
	Mode     *string `yaml:"mode"`
}

// ShapeOverride adds or corrects the shape of its name. A new shape needs
// provider, vcpu, memoryMiB and arch, and with GPUs also model.
type ShapeOverride struct {
	Name          string   `yaml:"name"`
	Provider      *string  `yaml:"provider"`
	VCPU          *int     `yaml:"vcpu"`
	MemoryMiB     *int     `yaml:"memoryMiB"`
	Arch          *string  `yaml:"arch"`
	GPUs          *int     `yaml:"gpus"`
	GPUFraction   *float64 `yaml:"gpuFraction"`
	Model         *string  `yaml:"model"`
	GPUMemoryMiB  *int     `yaml:"gpuMemoryMiB"`
	Link          *string  `yaml:"link"`
	EFAInterfaces *int     `yaml:"efaInterfaces"`
	LocalNVMeGB   *int     `yaml:"localNVMeGB"`
	PricePerHour  *float64 `yaml:"pricePerHour"`
	PriceRegion   *string  `yaml:"priceRegion"`
}

// Parse reads overrides from YAML and checks every field that can be checked
// without a catalogue. The error lists all problems, each with the field, its
// value and the way out.
func Parse(data []byte) (Overrides, error) {
	var o Overrides
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&o); err != nil {
		if errors.Is(err, io.EOF) {
			return Overrides{}, nil
		}
		return Overrides{}, fmt.Errorf("parsing gpu catalogue overrides, %w", err)
	}
	if err := d.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return Overrides{}, errors.New("parsing gpu catalogue overrides, more than one YAML document: put all models and shapes into the first one")
	}
	if err := o.validate(); err != nil {
		return Overrides{}, fmt.Errorf("validating gpu catalogue overrides, %w", err)
	}
	return o, nil
}

func (o Overrides) validate() error {
	p := &problems{}
	seen := map[string]bool{}
	for i, m := range o.Models {
		at := fmt.Sprintf("models[%d]", i)
		p.name(at, "model", m.Name, seen)
		p.model(at, m)
	}
	seen = map[string]bool{}
	for i, s := range o.Shapes {
		at := fmt.Sprintf("shapes[%d]", i)
		p.name(at, "shape", s.Name, seen)
		p.shape(at, s)
	}
	return p.err()
}

// problems collects what is wrong, so that the user sees all of it at once.
type problems struct{ list []error }

func (p *problems) err() error { return errors.Join(p.list...) }

func (p *problems) add(field string, value any, way string) {
	p.list = append(p.list, fmt.Errorf("%s: %q %s", field, fmt.Sprint(value), way))
}

func (p *problems) name(at, kind, name string, seen map[string]bool) {
	switch {
	case name == "":
		p.add(at+".name", name, "is empty: give the "+kind+" a name")
	case seen[name]:
		p.add(at+".name", name, "occurs twice: merge both entries into one")
	}
	seen[name] = true
}

func (p *problems) model(at string, m ModelOverride) {
	p.text(at+".product", m.Product)
	p.text(at+".architecture", m.Architecture)
	p.count(at+".memoryMiB", m.MemoryMiB, 1)
	p.count(at+".linkGBps", m.LinkGBps, 0)
	p.oneOf(at+".link", m.Link, links...)
	p.oneOf(at+".mode", m.Mode, "compute", "graphics")
	if m.ComputeCapability != nil {
		if _, err := parseCapability(*m.ComputeCapability); err != nil {
			p.add(at+".computeCapability", *m.ComputeCapability, err.Error()+`: write it in quotes, "8.9"`)
		}
	}
}

func (p *problems) shape(at string, s ShapeOverride) {
	p.text(at+".provider", s.Provider)
	p.count(at+".vcpu", s.VCPU, 1)
	p.count(at+".memoryMiB", s.MemoryMiB, 1)
	p.oneOf(at+".arch", s.Arch, "amd64", "arm64")
	p.count(at+".gpus", s.GPUs, 0)
	p.count(at+".gpuMemoryMiB", s.GPUMemoryMiB, 1)
	p.count(at+".efaInterfaces", s.EFAInterfaces, 0)
	p.count(at+".localNVMeGB", s.LocalNVMeGB, 0)
	p.oneOf(at+".link", s.Link, links...)
	if f := s.GPUFraction; f != nil && !(*f > 0 && *f <= 1) {
		p.add(at+".gpuFraction", *f, "is not above 0 and at most 1: write 1 for whole GPUs, 0.125 for an eighth")
	}
	if f := s.PricePerHour; f != nil && !(*f > 0 && *f <= maxPrice) {
		p.add(at+".pricePerHour", *f, "is no price in USD per hour: leave it out where the price is not known")
	}
}

// Bounds that keep sums over many nodes exact.
const (
	maxPrice = 1e6
	maxCount = 1 << 30
)

var links = []string{"none", string(LinkPCIe), string(LinkNVLink), string(LinkNVSwitch)}

func (p *problems) text(field string, v *string) {
	if v != nil && strings.TrimSpace(*v) == "" {
		p.add(field, *v, "is empty: leave the field out to keep the built-in value")
	}
}

func (p *problems) count(field string, v *int, least int) {
	if v != nil && (*v < least || *v > maxCount) {
		p.add(field, *v, fmt.Sprintf("is out of range: use a whole number from %d to %d", least, maxCount))
	}
}

func (p *problems) oneOf(field string, v *string, allowed ...string) {
	if v != nil && !slices.Contains(allowed, *v) {
		p.add(field, *v, "is not known: use one of "+strings.Join(allowed, ", "))
	}
}

// With returns a catalogue that differs from c by the overrides. c stays as it
// is. Shapes follow the corrected figures of their models.
func (c *Catalog) With(o Overrides) (*Catalog, error) {
	p := &problems{}
	models, shapes := maps.Clone(c.models), maps.Clone(c.shapes)
	if models == nil {
		models, shapes = map[string]Model{}, map[string]Shape{}
	}
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("validating gpu catalogue overrides, %w", err)
	}
	geometries := geometries(models)
	for i, m := range o.Models {
		models[m.Name] = p.applyModel(fmt.Sprintf("models[%d]", i), m, models, geometries)
	}
	for name, s := range shapes {
		if m, ok := models[s.Model.Key]; ok {
			shapes[name] = s.carrying(m)
		}
	}
	for i, s := range o.Shapes {
		shapes[s.Name] = p.applyShape(fmt.Sprintf("shapes[%d]", i), s, shapes, models)
	}
	if err := p.err(); err != nil {
		return nil, fmt.Errorf("applying gpu catalogue overrides, %w", err)
	}
	return build(models, shapes), nil
}

// carrying is the shape with another version of its model. Memory that came from
// the model follows it; memory of the shape's own stays.
func (s Shape) carrying(m Model) Shape {
	if s.GPUMemoryMiB == s.Model.MemoryMiB {
		s.GPUMemoryMiB = 0
	}
	s.Model = m
	s.settleGPUMemory()
	return s
}

func geometries(models map[string]Model) []string {
	set := map[string]bool{"none": true}
	for _, m := range models {
		set[m.MIG] = true
	}
	delete(set, "")
	return slices.Sorted(maps.Keys(set))
}

func (p *problems) applyModel(at string, o ModelOverride, models map[string]Model, geometries []string) Model {
	m, known := models[o.Name]
	if !known {
		p.required(at, o.Name, "model", map[string]bool{
			"product": o.Product != nil, "architecture": o.Architecture != nil, "computeCapability": o.ComputeCapability != nil,
		})
	}
	m.Key, m.Sources = o.Name, "override"
	assign(&m.Product, o.Product)
	assign(&m.MemoryMiB, o.MemoryMiB)
	assign(&m.Architecture, o.Architecture)
	assign(&m.VGPU, o.VGPU)
	assign(&m.LinkGBps, o.LinkGBps)
	assign(&m.Mode, o.Mode)
	assignLink(&m.Link, o.Link)
	if o.ComputeCapability != nil {
		// Checked by validate.
		m.Compute, _ = parseCapability(*o.ComputeCapability)
	}
	if o.MIG != nil {
		p.oneOf(at+".mig", o.MIG, geometries...)
		m.MIG = strings.TrimPrefix(*o.MIG, "none")
	}
	return m
}

func (p *problems) applyShape(at string, o ShapeOverride, shapes map[string]Shape, models map[string]Model) Shape {
	s, known := shapes[o.Name]
	if !known {
		p.required(at, o.Name, "shape", map[string]bool{
			"provider": o.Provider != nil, "vcpu": o.VCPU != nil, "memoryMiB": o.MemoryMiB != nil, "arch": o.Arch != nil,
		})
		s.Name = o.Name
		s.Family, s.Size = splitName(o.Name)
	}
	s.Sources = "override"
	assign(&s.Provider, o.Provider)
	assign(&s.VCPU, o.VCPU)
	assign(&s.MemoryMiB, o.MemoryMiB)
	assign(&s.Arch, o.Arch)
	assign(&s.EFAInterfaces, o.EFAInterfaces)
	assign(&s.LocalNVMeGB, o.LocalNVMeGB)
	assign(&s.PricePerHour, o.PricePerHour)
	assign(&s.PriceRegion, o.PriceRegion)
	assignLink(&s.Link, o.Link)
	p.applyGPUs(at, o, &s, models)
	return s
}

// applyGPUs settles the GPU side: how many, which part of one, which model.
func (p *problems) applyGPUs(at string, o ShapeOverride, s *Shape, models map[string]Model) {
	assign(&s.GPUs, o.GPUs)
	assign(&s.GPUFraction, o.GPUFraction)
	if s.GPUs == 0 {
		s.GPUFraction, s.Model, s.GPUMemoryMiB, s.Link = 0, Model{}, 0, LinkNone
		return
	}
	if s.GPUFraction == 0 {
		s.GPUFraction = 1
	}
	m := s.Model
	if o.Model != nil {
		known := false
		if m, known = models[*o.Model]; !known {
			p.add(at+".model", *o.Model, "is no model: use a built-in key such as a100-80gb, or add the model under models")
		}
	} else if m.IsZero() {
		p.add(at+".model", "", "is missing on a shape with GPUs: name a model, such as a100-80gb")
	}
	*s = s.carrying(m)
	assign(&s.GPUMemoryMiB, o.GPUMemoryMiB)
}

func (p *problems) required(at, name, kind string, given map[string]bool) {
	for _, f := range slices.Sorted(maps.Keys(given)) {
		if !given[f] {
			p.add(at+"."+f, "", fmt.Sprintf("is missing on the new %s %q: add it, or correct the name if you meant a built-in %s", kind, name, kind))
		}
	}
}

func assign[T any](field *T, v *T) {
	if v != nil {
		*field = *v
	}
}

func assignLink(field *Link, v *string) {
	if v != nil {
		*field = Link(strings.TrimPrefix(*v, "none"))
	}
}
