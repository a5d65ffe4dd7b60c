package health

import (
	"fmt"
	"maps"
	"slices"
)

// defaultTolerance is how far, in percent, the reported memory may be from the
// catalogue: drivers reserve a little more or less between versions.
const defaultTolerance = 5

// Expectation is what a machine was bought to be.
type Expectation struct {
	// BootID is the boot that the node is in now; empty accepts any.
	BootID string
	// Products are the accepted device names, as NVML or as GFD spells them;
	// empty accepts any.
	Products []string
	// GPUs is the number of physical GPUs.
	GPUs int
	// MemoryMiB is NVML's memory per GPU; zero is not compared.
	MemoryMiB int
	// MemoryTolerance is in percent; zero means 5.
	MemoryTolerance int
	// Partitions is the MIG layout as counts per profile: one element holds for
	// every GPU, otherwise there is one per GPU in index order. An empty map is a
	// GPU without MIG. Nil is not compared.
	Partitions []map[string]int
	// MinDriver and MinCUDA are the oldest versions; empty accepts any.
	MinDriver, MinCUDA string
}

// MismatchReason says what differs.
type MismatchReason string

// The reasons, in the order in which Compare tells them.
const (
	MismatchBoot       MismatchReason = "BootDiffers"
	MismatchState      MismatchReason = "NotVerified"
	MismatchDriver     MismatchReason = "DriverTooOld"
	MismatchCUDA       MismatchReason = "CUDATooOld"
	MismatchCount      MismatchReason = "GPUCountDiffers"
	MismatchLost       MismatchReason = "GPULost"
	MismatchProduct    MismatchReason = "ProductDiffers"
	MismatchMemory     MismatchReason = "MemoryDiffers"
	MismatchPartitions MismatchReason = "PartitionsDiffer"
)

// Mismatch is one difference between a report and an expectation.
type Mismatch struct {
	Reason MismatchReason
	// GPU is the index, -1 for the node.
	GPU int
	// Want and Got are for a person.
	Want, Got string
	// Excess says that the report claims more than the machine can have: waiting
	// does not cure it, and the report is not to be trusted.
	Excess bool
}

// String tells the mismatch in one sentence.
func (m Mismatch) String() string {
	place := ""
	if m.GPU >= 0 {
		place = fmt.Sprintf("GPU %d: ", m.GPU)
	}
	return fmt.Sprintf("%s%s, want %s, got %s", place, m.Reason, m.Want, m.Got)
}

// Compare holds a report against an expectation and lists every difference in one
// stable order. None means that the node is what was bought, verified in this boot.
func Compare(r Report, e Expectation) []Mismatch {
	c := &comparison{}
	if e.BootID != "" && r.BootID != e.BootID {
		// Whatever else the report says is about another boot.
		c.add(MismatchBoot, -1, e.BootID, orNone(r.BootID))
		return c.out
	}
	if r.State != Ready {
		c.add(MismatchState, -1, string(Ready), fmt.Sprintf("%s (%s)", orNone(string(r.State)), r.Reason))
	}
	if e.MinDriver != "" && !atLeast(r.Driver, e.MinDriver) {
		c.add(MismatchDriver, -1, e.MinDriver+" or newer", orNone(r.Driver))
	}
	if e.MinCUDA != "" && !atLeast(r.CUDA, e.MinCUDA) {
		c.add(MismatchCUDA, -1, e.MinCUDA+" or newer", orNone(r.CUDA))
	}
	if len(r.GPUs) != e.GPUs {
		c.add(MismatchCount, -1, plural(e.GPUs, "GPU"), plural(len(r.GPUs), "GPU"))
		c.out[len(c.out)-1].Excess = len(r.GPUs) > e.GPUs
	}
	for i, g := range r.GPUs {
		c.gpu(i, g, e)
	}
	slices.SortStableFunc(c.out, func(a, b Mismatch) int { return mismatchRank(a.Reason) - mismatchRank(b.Reason) })
	return c.out
}

func mismatchRank(r MismatchReason) int {
	return slices.Index([]MismatchReason{MismatchBoot, MismatchState, MismatchDriver, MismatchCUDA, MismatchCount,
		MismatchLost, MismatchProduct, MismatchMemory, MismatchPartitions}, r)
}

type comparison struct{ out []Mismatch }

func (c *comparison) add(reason MismatchReason, gpu int, want, got string) {
	c.out = append(c.out, Mismatch{Reason: reason, GPU: gpu, Want: want, Got: got})
}

func (c *comparison) gpu(i int, g ReportGPU, e Expectation) {
	if g.Lost {
		c.add(MismatchLost, g.Index, "a GPU that answers", "a lost GPU")
		return
	}
	same := func(p string) bool { return ProductName(p) == ProductName(g.Product) }
	if len(e.Products) > 0 && !slices.ContainsFunc(e.Products, same) {
		c.add(MismatchProduct, g.Index, told(e.Products), orNone(g.Product))
	}
	c.memory(g, e)
	if e.Partitions == nil {
		return
	}
	want, ok := e.layoutOf(i)
	if !ok {
		c.add(MismatchPartitions, g.Index, "no such GPU", partitionString(g))
		c.out[len(c.out)-1].Excess = true
		return
	}
	c.partitions(g, want)
}

// layoutOf returns the layout of the i-th GPU; false where there is to be none.
func (e Expectation) layoutOf(i int) (map[string]int, bool) {
	if len(e.Partitions) == 1 && i < e.GPUs {
		return e.Partitions[0], true
	}
	if i < len(e.Partitions) {
		return e.Partitions[i], true
	}
	return nil, false
}

func (c *comparison) memory(g ReportGPU, e Expectation) {
	if e.MemoryMiB <= 0 {
		return
	}
	tolerance := e.MemoryTolerance
	if tolerance <= 0 {
		tolerance = defaultTolerance
	}
	low, high := e.MemoryMiB-e.MemoryMiB*tolerance/100, e.MemoryMiB+e.MemoryMiB*tolerance/100
	if g.MemoryMiB < low || g.MemoryMiB > high {
		c.add(MismatchMemory, g.Index, fmt.Sprintf("%d MiB within %d%%", e.MemoryMiB, tolerance), fmt.Sprintf("%d MiB", g.MemoryMiB))
		c.out[len(c.out)-1].Excess = g.MemoryMiB > high
	}
}

func (c *comparison) partitions(g ReportGPU, want map[string]int) {
	want = positive(want)
	got := map[string]int{}
	for _, p := range g.Partitions {
		in, err := p.Parse()
		if err != nil { // only a report that did not come from Decode
			c.add(MismatchPartitions, g.Index, layoutString(want), clean(string(p), maxName))
			return
		}
		got[in.Profile]++
	}
	if !maps.Equal(want, got) || g.MIG != (len(want) > 0) {
		c.add(MismatchPartitions, g.Index, layoutString(want), partitionString(g))
	}
}

func positive(counts map[string]int) map[string]int {
	out := map[string]int{}
	for k, n := range counts {
		if n > 0 {
			out[k] = n
		}
	}
	return out
}

func partitionString(g ReportGPU) string {
	if !g.MIG {
		return "MIG off"
	}
	var instances []MIGInstance
	for _, p := range g.Partitions {
		if in, err := p.Parse(); err == nil {
			instances = append(instances, in)
		}
	}
	return layoutString(profileCounts(instances))
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
