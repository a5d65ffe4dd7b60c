package catalog

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Catalog is an immutable set of models and shapes. The zero Catalog is empty.
type Catalog struct {
	models map[string]Model
	shapes map[string]Shape
	sorted []Shape
}

// Default returns the built-in catalogue.
func Default() *Catalog { return builtIn() }

var builtIn = sync.OnceValue(func() *Catalog {
	c, err := load(files)
	if err != nil {
		// The files are compiled in and covered by tests.
		panic(err)
	}
	return c
})

func build(models map[string]Model, shapes map[string]Shape) *Catalog {
	c := &Catalog{models: models, shapes: shapes}
	c.sorted = slices.SortedFunc(maps.Values(shapes), func(a, b Shape) int {
		return cmp.Or(strings.Compare(a.Provider, b.Provider), strings.Compare(a.Name, b.Name))
	})
	return c
}

// Shapes returns every shape, ordered by provider and name. The slice is the
// caller's own.
func (c *Catalog) Shapes() []Shape { return slices.Clone(c.sorted) }

// GPUShapes returns the shapes that carry GPUs, in the order of Shapes.
func (c *Catalog) GPUShapes() []Shape {
	return slices.DeleteFunc(c.Shapes(), func(s Shape) bool { return !s.HasGPU() })
}

// Shape finds a shape by name.
func (c *Catalog) Shape(name string) (Shape, bool) {
	s, ok := c.shapes[name]
	return s, ok
}

// Models returns every model, ordered by key. The slice is the caller's own.
func (c *Catalog) Models() []Model {
	return slices.SortedFunc(maps.Values(c.models), func(a, b Model) int { return strings.Compare(a.Key, b.Key) })
}

// Model finds a model by key, such as "a100-80gb".
func (c *Catalog) Model(key string) (Model, bool) {
	m, ok := c.models[key]
	return m, ok
}

// ModelByProduct finds a model by NVML's device name or GFD's spelling of it.
func (c *Catalog) ModelByProduct(product string) (Model, bool) {
	want := sanitize(product)
	for _, m := range c.Models() {
		if m.GFDProduct() == want {
			return m, true
		}
	}
	return Model{}, false
}
