package mig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxDemand bounds the partitions of one demand, so that sums never overflow.
const MaxDemand = 1_000_000

// Demand counts wanted partitions by profile name. Zero counts mean nothing;
// negative ones are refused. The nil Demand asks for nothing.
type Demand map[string]int

// DemandFromResources picks the MIG partitions out of extended resources and
// counts them by profile. Other resources are skipped; nvidia.com/mig- names
// that are no profile are errors, all of them joined.
func DemandFromResources(resources map[string]int) (Demand, error) {
	d := Demand{}
	var errs []error
	for _, r := range slices.Sorted(maps.Keys(resources)) {
		if !strings.HasPrefix(r, ResourcePrefix) {
			continue
		}
		name, err := ParseResource(r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if n := resources[r]; n != 0 {
			d[name.String()] = n
		}
	}
	return d, errors.Join(errs...)
}

// Total returns how many partitions the demand asks for.
func (d Demand) Total() int {
	sum := 0
	for _, n := range d {
		sum += n
	}
	return sum
}

// Plus returns the sum of both demands. Neither is changed.
func (d Demand) Plus(other Demand) Demand {
	sum := Demand{}
	for _, m := range []Demand{d, other} {
		for name, n := range m {
			sum[name] += n
		}
	}
	return sum
}

// String prints the demand by profile name, as in "2×1g.10gb, 1×3g.40gb".
func (d Demand) String() string {
	var parts []string
	for _, name := range d.names() {
		parts = append(parts, fmt.Sprintf("%d×%s", d[name], name))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// names returns the profiles with a count, sorted.
func (d Demand) names() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d)) {
		if d[name] != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (d Demand) validate() error {
	total := 0
	for _, name := range d.names() {
		n := d[name]
		if n < 0 {
			return fmt.Errorf("counting %s in the demand, %d is negative; use 0 or leave it out", name, n)
		}
		if total += min(n, MaxDemand+1); total > MaxDemand {
			return fmt.Errorf("counting %s in the demand, %d is more than %d partitions in all; split the demand", name, n, MaxDemand)
		}
	}
	return nil
}
