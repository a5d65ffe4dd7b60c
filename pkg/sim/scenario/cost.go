package scenario

import (
	"cmp"
	"slices"
	"time"
)

// minimumBilled is the least time that EC2 bills for a Linux instance.
const minimumBilled = time.Minute

// Cost is what the cloud asked for, in dollars.
type Cost struct {
	// Total is accumulated by the second with EC2's minimum of 60 s an instance.
	Total float64 `json:"total"`
	// PeakPerHour is the highest price an hour at any moment.
	PeakPerHour float64 `json:"peakPerHour"`
	// PeakInstances is how many instances ran at the moment when most did.
	PeakInstances int `json:"peakInstances"`
	// Lines are by type, then by capacity type.
	Lines []CostLine `json:"lines"`
}

// CostLine is the share of one type and capacity type.
type CostLine struct {
	InstanceType  string  `json:"instanceType"`
	CapacityType  string  `json:"capacityType"`
	Launches      int     `json:"launches"`
	InstanceHours float64 `json:"instanceHours"`
	PricePerHour  float64 `json:"pricePerHour"`
	Total         float64 `json:"total"`
}

// PricePerHour sums the prices of the instances that run.
func (c Cloud) PricePerHour() float64 {
	sum := 0.0
	for _, i := range c.Instances {
		if i.End.IsZero() {
			sum += i.Price
		}
	}
	return sum
}

// CostOf accounts for instances until now.
func CostOf(instances []Instance, now time.Time) Cost {
	lines := map[[2]string]*CostLine{}
	cost := Cost{}
	for _, i := range sorted(instances) {
		key := [2]string{i.Type, i.CapacityType}
		line := lines[key]
		if line == nil {
			line = &CostLine{InstanceType: i.Type, CapacityType: i.CapacityType}
			lines[key] = line
		}
		end := i.End
		if end.IsZero() {
			end = now
		}
		hours := max(end.Sub(i.Start), minimumBilled).Hours()
		line.Launches++
		line.InstanceHours += hours
		line.Total += hours * i.Price
		line.PricePerHour = max(line.PricePerHour, i.Price)
		cost.Total += hours * i.Price
	}
	for _, line := range lines {
		cost.Lines = append(cost.Lines, *line)
	}
	slices.SortFunc(cost.Lines, func(a, b CostLine) int {
		return cmp.Or(cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.CapacityType, b.CapacityType))
	})
	cost.PeakPerHour, cost.PeakInstances = peaks(instances)
	return cost
}

func sorted(instances []Instance) []Instance {
	return slices.SortedFunc(slices.Values(instances), func(a, b Instance) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID))
	})
}

// peaks sweeps over starts and ends. At one moment ends come first: a replacement that starts when
// its predecessor ends is no peak.
func peaks(instances []Instance) (price float64, running int) {
	type change struct {
		at    time.Time
		price float64
		n     int
	}
	var changes []change
	for _, i := range sorted(instances) {
		changes = append(changes, change{i.Start, i.Price, 1})
		if !i.End.IsZero() {
			changes = append(changes, change{i.End, -i.Price, -1})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.n, b.n))
	})
	sum, n := 0.0, 0
	for _, c := range changes {
		sum, n = sum+c.price, n+c.n
		price, running = max(price, sum), max(running, n)
	}
	return price, running
}

// PerHour returns the price of the owned fleet in dollars an hour, in use or not: purchase written
// off over its years, and power at full load.
func (f PeakFleet) PerHour() float64 {
	if f.GPUsPerServer <= 0 || f.Years <= 0 {
		return 0
	}
	servers := float64((f.GPUs + f.GPUsPerServer - 1) / f.GPUsPerServer)
	return servers * (f.ServerPrice/(f.Years*365*24) + f.KilowattsEach*f.PricePerKWh)
}
