package fleet

import (
	"errors"
	"fmt"
	"slices"
)

// maxCount bounds pods, nodes and GPUs so that their sums and products stay far
// from overflow; it is far above any cluster.
const maxCount = 1 << 24

// Validate returns every fault of the problem, joined, or nil. Solve, Greedy and
// LowerBound call it, so that a fault is an error and never a wrong plan.
func (p Problem) Validate() error {
	errs := []error{unique("resources", len(p.Resources), func(i int) string { return p.Resources[i] })}
	for i, r := range p.GPUResources {
		if !slices.Contains(p.Resources, r) {
			errs = append(errs, fmt.Errorf("gpuResources[%d] is %q, which is not in resources; add it there", i, r))
		}
	}
	errs = append(errs,
		unique("classes", len(p.Classes), func(i int) string { return p.Classes[i].Name }),
		unique("shapes", len(p.Shapes), func(i int) string { return p.Shapes[i].Name }),
		p.Limits.validate())
	total := 0
	for i := range p.Classes {
		errs = append(errs, p.Classes[i].validate(i, p))
		total = min(total+max(0, min(p.Classes[i].Count, maxCount)), 2*maxCount)
	}
	if total > maxCount {
		errs = append(errs, fmt.Errorf("classes have more than %d pods together; solve them in parts", maxCount))
	}
	for i := range p.Shapes {
		errs = append(errs, p.Shapes[i].validate(i, len(p.Resources)))
	}
	return errors.Join(errs...)
}

func unique(field string, n int, name func(int) string) error {
	seen := make(map[string]int, n)
	var errs []error
	for i := range n {
		k := name(i)
		if k == "" {
			errs = append(errs, fmt.Errorf("%s[%d] has no name; give it one", field, i))
			continue
		}
		if j, ok := seen[k]; ok {
			errs = append(errs, fmt.Errorf("%s[%d] and [%d] are both named %q; give them different names", field, j, i, k))
			continue
		}
		seen[k] = i
	}
	return errors.Join(errs...)
}

func (l Limits) validate() error {
	var errs []error
	if l.MaxUnusedGPUs != nil && *l.MaxUnusedGPUs < 0 {
		errs = append(errs, fmt.Errorf("limits.maxUnusedGPUs is %d; use 0 or more, or leave it out", *l.MaxUnusedGPUs))
	}
	if l.GPUs != nil && *l.GPUs < 0 {
		errs = append(errs, fmt.Errorf("limits.gpus is %d; use 0 or more, or leave it out", *l.GPUs))
	}
	if l.PricePerHour != nil && !validPrice(*l.PricePerHour) {
		errs = append(errs, fmt.Errorf("limits.pricePerHour is %v; use a number from 0 to 1e12, or leave it out", *l.PricePerHour))
	}
	return errors.Join(errs...)
}

func (c Class) validate(i int, p Problem) error {
	var errs []error
	at := fmt.Sprintf("classes[%d] (%s)", i, c.Name)
	errs = append(errs, vector(at+".requests", c.Requests, len(p.Resources)))
	if c.Count < 0 || c.Count > maxCount {
		errs = append(errs, fmt.Errorf("%s.count is %d; use 0 to %d", at, c.Count, maxCount))
	}
	if c.MaxPerNode < 0 {
		errs = append(errs, fmt.Errorf("%s.maxPerNode is %d; use 1 or more, or 0 for no cap", at, c.MaxPerNode))
	}
	for _, s := range c.Shapes {
		if s < 0 || s >= len(p.Shapes) {
			errs = append(errs, fmt.Errorf("%s.shapes has index %d; use 0 to %d", at, s, len(p.Shapes)-1))
		}
	}
	return errors.Join(errs...)
}

func (s Shape) validate(i, dims int) error {
	at := fmt.Sprintf("shapes[%d] (%s)", i, s.Name)
	errs := []error{vector(at+".allocatable", s.Allocatable, dims)}
	if !validPrice(s.Price) {
		errs = append(errs, fmt.Errorf("%s.price is %v; use a number from 0 to 1e12", at, s.Price))
	}
	if s.GPUs < 0 || s.GPUs > maxCount {
		errs = append(errs, fmt.Errorf("%s.gpus is %d; use 0 to %d", at, s.GPUs, maxCount))
	}
	if s.MaxNodes < 0 {
		errs = append(errs, fmt.Errorf("%s.maxNodes is %d; use 1 or more, or 0 for no cap", at, s.MaxNodes))
	}
	return errors.Join(errs...)
}

func vector(at string, v []int64, dims int) error {
	if len(v) != dims {
		return fmt.Errorf("%s has %d entries; give one for each of the %d resources", at, len(v), dims)
	}
	for d, q := range v {
		if q < 0 {
			return fmt.Errorf("%s[%d] is %d; use 0 or more", at, d, q)
		}
	}
	return nil
}

// maxPrice keeps sums and ratios of prices far from the ends of float64.
const maxPrice = 1e12

func validPrice(p float64) bool {
	return p >= 0 && p <= maxPrice // false for NaN
}
