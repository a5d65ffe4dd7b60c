package mig

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	// ResourcePrefix precedes a profile in the extended resources that the
	// device plugin advertises under the mixed strategy.
	ResourcePrefix = "nvidia.com/mig-"
	// WholeGPUResource is the extended resource of a GPU without MIG, and of
	// every partition under the single strategy.
	WholeGPUResource = "nvidia.com/gpu"

	layoutPrefix = "all-"
	sharedSuffix = ".shared"
)

var profilePattern = regexp.MustCompile(
	`^(?:([1-9])c\.)?([1-9])g\.(0|[1-9][0-9]{0,3})gb(?:\+([a-z]+(?:\.[a-z]+)*))?(?:-([a-z]+(?:\.[a-z]+)*))?$`)

// Name is a parsed MIG profile name such as 1g.10gb or 1g.10gb+me. It is
// comparable; ParseProfile and ParseResource are the only ways to make one that
// is not zero. The zero Name prints as the empty string.
type Name struct {
	compute, slices, memoryGB int
	plus, minus               string
}

// ParseProfile parses a profile name as nvidia-smi and NVML print it:
// <slices>g.<memory>gb, with +me, +me.all, +gfx or -me behind it, and <n>c. in
// front where a compute instance takes only part of the GPU instance.
func ParseProfile(s string) (Name, error) {
	m := profilePattern.FindStringSubmatch(s)
	if m == nil {
		return Name{}, fmt.Errorf("parsing MIG profile %q, want <slices>g.<memory>gb and at most one suffix, as in 1g.10gb, 1g.10gb+me or 1g.24gb-me", s)
	}
	n := Name{compute: atoi(m[1]), slices: atoi(m[2]), memoryGB: atoi(m[3]), plus: m[4], minus: m[5]}
	if n.compute >= n.slices && n.compute != 0 {
		return Name{}, fmt.Errorf("parsing MIG profile %q, a compute instance of %d slices takes all of a %dg instance; leave %dc. out", s, n.compute, n.slices, n.compute)
	}
	return n, nil
}

// ParseResource parses the extended resource of a profile, as in
// nvidia.com/mig-1g.10gb.me. Shared replicas (.shared) are no partitions and
// are refused.
func ParseResource(s string) (Name, error) {
	profile, ok := strings.CutPrefix(s, ResourcePrefix)
	if !ok || strings.Contains(profile, "+") {
		return Name{}, fmt.Errorf("parsing MIG resource %q, want %s<profile> with + written as a dot, as in nvidia.com/mig-1g.10gb.me", s, ResourcePrefix)
	}
	if whole, shared := strings.CutSuffix(s, sharedSuffix); shared {
		return Name{}, fmt.Errorf("parsing MIG resource %q, it counts shared replicas; ask for %s and divide by its replicas", s, whole)
	}
	n, err := ParseProfile(strings.Replace(profile, "gb.", "gb+", 1))
	if err != nil {
		return Name{}, fmt.Errorf("parsing MIG resource %q, %w", s, err)
	}
	return n, nil
}

// String returns the name as NVIDIA prints it.
func (n Name) String() string {
	if n == (Name{}) {
		return ""
	}
	s := fmt.Sprintf("%dg.%dgb", n.slices, n.memoryGB)
	if n.compute != 0 {
		s = fmt.Sprintf("%dc.%s", n.compute, s)
	}
	if n.plus != "" {
		s += "+" + n.plus
	}
	if n.minus != "" {
		s += "-" + n.minus
	}
	return s
}

// ResourceName returns the extended resource under the mixed strategy.
func (n Name) ResourceName() string { return ResourcePrefix + n.dotted() }

// LayoutName returns the mig-parted layout that fills a GPU with this profile.
func (n Name) LayoutName() string { return layoutPrefix + n.dotted() }

// ComputeSlices returns the compute slices of the GPU instance.
func (n Name) ComputeSlices() int { return n.slices }

// MemoryGB returns the rounded memory that the name carries, in GB.
func (n Name) MemoryGB() int { return n.memoryGB }

// WholeInstance reports whether the name stands for a whole GPU instance and
// not for one of several compute instances in it. Layouts hold whole ones only.
func (n Name) WholeInstance() bool { return n.compute == 0 }

// Attributes returns what follows the memory: "", "+me", "+me.all", "+gfx",
// "-me". Names with equal slices and attributes are one kind of partition, or
// two that differ in memory.
func (n Name) Attributes() string {
	return strings.TrimPrefix(n.String(), Name{compute: n.compute, slices: n.slices, memoryGB: n.memoryGB}.String())
}

func (n Name) dotted() string { return strings.Replace(n.String(), "+", ".", 1) }

// atoi reads digits that the pattern has already bounded; "" is 0.
func atoi(s string) int {
	i, _ := strconv.Atoi(s)
	return i
}
