package catalogprovider

import (
	"fmt"
	"math"
	"slices"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// Options say what is assumed about the cloud. Zero values are not defaults; start
// from DefaultOptions.
type Options struct {
	// Catalog holds the shapes; those of other providers than AWS are left out.
	Catalog *catalog.Catalog
	// Region is the value of topology.kubernetes.io/region. Prices are those of the
	// catalogue whatever the region.
	Region string
	// Zones are where every type is taken to be on sale, unless the EC2NodeClass
	// knows its subnets.
	Zones []string
	// SpotPercent is the price of spot capacity in percent of on-demand, 1 to 100.
	// Spot prices change by the minute; this is an assumption, not a quote.
	SpotPercent float64
	// VMMemoryOverheadPercent is the controller's setting of that name, a fraction of
	// the advertised memory from 0 to below 1.
	VMMemoryOverheadPercent float64
	// ReservedENIs is the controller's setting of that name.
	ReservedENIs int
}

// DefaultOptions are the controller's own defaults where it has any.
func DefaultOptions() Options {
	return Options{
		Catalog: catalog.Default(), Region: "us-east-1", Zones: []string{"us-east-1a", "us-east-1b", "us-east-1c"},
		SpotPercent: 40, VMMemoryOverheadPercent: 0.075,
	}
}

// Validate returns the first setting that makes no sense.
func (o Options) Validate() error { //nolint:gocyclo // flat: a case for each setting
	switch {
	case o.Catalog == nil:
		return fmt.Errorf("the catalogue is missing")
	case o.Region == "":
		return fmt.Errorf("region is empty; name one, such as us-east-1")
	case len(o.Zones) == 0 || slices.Contains(o.Zones, ""):
		return fmt.Errorf("zones are %q; name at least one and no empty one, such as us-east-1a", o.Zones)
	case math.IsNaN(o.SpotPercent) || o.SpotPercent < 1 || o.SpotPercent > 100:
		return fmt.Errorf("the spot price is %v percent of on-demand; use 1 to 100", o.SpotPercent)
	case math.IsNaN(o.VMMemoryOverheadPercent) || o.VMMemoryOverheadPercent < 0 || o.VMMemoryOverheadPercent >= 1:
		return fmt.Errorf("vm memory overhead is %v; use a fraction from 0 to below 1, such as 0.075", o.VMMemoryOverheadPercent)
	case o.ReservedENIs < 0:
		return fmt.Errorf("reserved ENIs are %d; use 0 or more", o.ReservedENIs)
	}
	return nil
}
