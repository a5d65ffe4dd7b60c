package catalog

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Prefix of every label that NVIDIA's components write.
const labelPrefix = "nvidia.com/"

const wholeGPU = labelPrefix + "gpu"

// Labels predicts the nvidia.com labels of a node of this shape in this state,
// as GFD v0.20 writes them. It is empty for shapes without GPUs. A label whose
// value cannot be known beforehand is left out, and so is one whose value is no
// valid label value (longer than 63 characters), which node-feature-discovery
// drops. Settings that the device plugin refuses, such as MPS beside MIG, are
// the caller's to reject; see pkg/gpu/sharing.
func Labels(s Shape, st State) map[string]string {
	if !s.HasGPU() {
		return map[string]string{}
	}
	l := labels{}
	l.set(labelPrefix+"mig.capable", strconv.FormatBool(s.MIGCapable()))
	l.set(labelPrefix+"mps.capable", strconv.FormatBool(st.Sharing.covers(wholeGPU) && st.Sharing.Strategy == SharingMPS && !st.MIG.enabled()))
	l.set(wholeGPU+".machine", sanitize(machine(s)))
	l.set(wholeGPU+".mode", s.Model.Mode)
	if !s.Model.VGPU && !s.Fractional() {
		l.set(labelPrefix+"vgpu.present", "false")
	}
	if st.Operator {
		l.set(wholeGPU+".present", "true")
	}
	l.gpus(s, st)
	l.mig(s, st)
	return l
}

// labels collects valid labels.
type labels map[string]string

// maxValue is how long Kubernetes lets a label value be.
const maxValue = 63

// validValue tells whether Kubernetes accepts the text as a label value. GFD
// writes no empty ones but one.
func validValue(v string) bool {
	if v == "" || len(v) > maxValue || !alphanumeric(rune(v[0])) || !alphanumeric(rune(v[len(v)-1])) {
		return false
	}
	return !strings.ContainsFunc(v, func(r rune) bool { return r == ' ' || !printable(r) })
}

func alphanumeric(r rune) bool {
	return '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'
}

// printable are the characters that GFD keeps.
func printable(r rune) bool { return alphanumeric(r) || strings.ContainsRune("-_. ", r) }

func (l labels) set(key, value string) {
	if validValue(value) {
		l[key] = value
		return
	}
	delete(l, key)
}

func (l labels) number(key string, n int) { l.set(key, strconv.Itoa(n)) }

// gpus writes the labels of whole GPUs.
func (l labels) gpus(s Shape, st State) {
	sharing, replicas := st.Sharing, 1
	switch {
	case st.MIG.enabled() && st.MIG.WholeGPUs == 0:
		sharing, replicas = SharingState{}, 0
	case sharing.covers(wholeGPU):
		replicas = sharing.Replicas
	}
	l.base(wholeGPU, product(s), s.GPUs, replicas, sharing)
	if s.GPUMemoryMiB > 0 {
		l.number(wholeGPU+".memory", s.GPUMemoryMiB)
	}
	l.set(wholeGPU+".family", family(s.Model.Compute))
	l.number(wholeGPU+".compute.major", s.Model.Compute.Major)
	l.number(wholeGPU+".compute.minor", s.Model.Compute.Minor)
}

// base writes the four labels that every resource has.
func (l labels) base(resource, product string, count, replicas int, sharing SharingState) {
	strategy := SharingNone
	if sharing.covers(resource) {
		strategy = sharing.Strategy
		if !sharing.Renamed && product != "" {
			product += "-SHARED"
		}
	}
	l.set(resource+".product", product)
	l.number(resource+".count", count)
	l.number(resource+".replicas", replicas)
	l.set(resource+".sharing-strategy", strategy)
}

// mig writes the labels of MIG devices over those of whole GPUs.
func (l labels) mig(s Shape, st State) {
	switch st.MIG.Strategy {
	case MIGStrategySingle:
		l.set(labelPrefix+"mig.strategy", string(MIGStrategySingle))
		l.migSingle(s, st)
	case MIGStrategyMixed:
		l.set(labelPrefix+"mig.strategy", string(MIGStrategyMixed))
		for _, d := range st.MIG.Devices {
			l.migDevices(s, labelPrefix+"mig-"+d.resourceName(), d, st.Sharing)
		}
	}
}

// migSingle shows MIG devices as whole GPUs. GFD marks a node that mixes
// profiles, or MIG with whole GPUs, as invalid.
func (l labels) migSingle(s Shape, st State) {
	switch {
	case !st.MIG.enabled():
	case len(st.MIG.Devices) == 1 && st.MIG.WholeGPUs == 0 && st.MIG.Devices[0].Count > 0:
		l.migDevices(s, wholeGPU, st.MIG.Devices[0], st.Sharing)
	default:
		l.set(wholeGPU+".product", suffixed(product(s), "-MIG-INVALID"))
		l.number(wholeGPU+".count", 0)
		l.number(wholeGPU+".replicas", 0)
		l.number(wholeGPU+".memory", 0)
		// GFD writes the label, but no value.
		l[wholeGPU+".sharing-strategy"] = ""
	}
}

func (l labels) migDevices(s Shape, resource string, d MIGDevices, sharing SharingState) {
	if d.Count <= 0 {
		return
	}
	replicas := 1
	if sharing.covers(resource) {
		replicas = sharing.Replicas
	}
	l.base(resource, suffixed(product(s), "-MIG-"+sanitize(d.resourceName())), d.Count, replicas, sharing)
	delete(l, resource+".memory")
	if d.MemoryMiB > 0 {
		l.number(resource+".memory", d.MemoryMiB)
	}
	for _, suffix := range slices.Sorted(maps.Keys(d.Attributes)) {
		l.number(resource+"."+suffix, d.Attributes[suffix])
	}
}

// product is the product label without suffixes, or empty where the guest sees
// a virtual GPU of unknown name.
func product(s Shape) string {
	if s.Fractional() && !s.Model.VGPU {
		return ""
	}
	return s.Model.GFDProduct()
}

func suffixed(product, suffix string) string {
	if product == "" {
		return ""
	}
	return product + suffix
}

// family is GFD's name of the architecture, which it takes from the compute
// capability.
func family(c Capability) string {
	switch {
	case c.Major == 7 && c.Minor >= 5:
		return "turing"
	case c.Major == 8 && c.Minor >= 9:
		return "ada-lovelace"
	}
	name, ok := map[int]string{1: "tesla", 2: "fermi", 3: "kepler", 5: "maxwell", 6: "pascal", 7: "volta", 8: "ampere", 9: "hopper", 10: "blackwell", 12: "blackwell", 13: "rubin"}[c.Major]
	if !ok {
		return "undefined"
	}
	return name
}

// machine is the product name that the firmware of the provider's machines
// reports; empty where it is not known.
func machine(s Shape) string {
	switch s.Provider {
	case "aws":
		return s.Name
	case "gcp":
		return "Google Compute Engine"
	case "azure":
		return "Virtual Machine"
	}
	return ""
}

// sanitize turns text into a label value as GFD does.
func sanitize(text string) string {
	kept := strings.Map(func(r rune) rune {
		if printable(r) {
			return r
		}
		return -1
	}, text)
	return strings.Join(strings.Fields(kept), "-")
}
