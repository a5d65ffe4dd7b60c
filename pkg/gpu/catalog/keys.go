package catalog

import (
	"slices"
	"strings"
)

// LabelKey is a label that Labels may predict.
type LabelKey struct {
	Key string
	// Numeric is true where values are whole numbers, so that Gt, Lt, Gte and
	// Lte make sense.
	Numeric bool
}

// migSuffixes are the numbers that GFD writes for MIG devices beside memory.
var migSuffixes = []string{
	"engines.copy", "engines.decoder", "engines.encoder", "engines.jpeg", "engines.ofa",
	"multiprocessors", "slices.ci", "slices.gi",
}

// LabelKeys lists the labels of whole GPUs and nodes, ordered by key. Mixed MIG
// adds those of MIGLabelKeys for each profile.
func LabelKeys() []LabelKey {
	keys := []LabelKey{
		{labelPrefix + "mig.capable", false}, {labelPrefix + "mig.strategy", false}, {labelPrefix + "mps.capable", false},
		{labelPrefix + "vgpu.present", false}, {wholeGPU + ".compute.major", true}, {wholeGPU + ".compute.minor", true},
		{wholeGPU + ".family", false}, {wholeGPU + ".machine", false}, {wholeGPU + ".mode", false}, {wholeGPU + ".present", false},
	}
	return sortKeys(append(keys, resourceKeys(wholeGPU)...))
}

// MIGLabelKeys lists the labels that the mixed strategy adds for a profile such
// as "1g.10gb+me", ordered by key.
func MIGLabelKeys(profile string) []LabelKey {
	return sortKeys(resourceKeys(labelPrefix + "mig-" + MIGDevices{Profile: profile}.resourceName()))
}

func resourceKeys(resource string) []LabelKey {
	keys := []LabelKey{
		{resource + ".count", true}, {resource + ".memory", true}, {resource + ".product", false},
		{resource + ".replicas", true}, {resource + ".sharing-strategy", false},
	}
	for _, s := range migSuffixes {
		keys = append(keys, LabelKey{resource + "." + s, true})
	}
	return keys
}

func sortKeys(keys []LabelKey) []LabelKey {
	slices.SortFunc(keys, func(a, b LabelKey) int { return strings.Compare(a.Key, b.Key) })
	return keys
}

// UnpredictedLabels lists labels that GFD writes and Labels never predicts,
// with the reason.
func UnpredictedLabels() map[string]string {
	out := map[string]string{
		labelPrefix + "gfd.timestamp":            "it is the time at which GFD ran",
		wholeGPU + ".clique":                     "the fabric assigns cluster and clique IDs when a node joins",
		labelPrefix + "vgpu.host-driver-version": "the host of a virtual GPU decides it",
		labelPrefix + "vgpu.host-driver-branch":  "the host of a virtual GPU decides it",
	}
	for _, k := range []string{
		"driver.major", "driver.minor", "driver.rev", "driver-version.major", "driver-version.minor", "driver-version.revision", "driver-version.full",
	} {
		out[labelPrefix+"cuda."+k] = "the node's image or the GPU operator decides the driver"
	}
	for _, k := range []string{"runtime.major", "runtime.minor", "runtime-version.major", "runtime-version.minor", "runtime-version.full"} {
		out[labelPrefix+"cuda."+k] = "it follows from the driver, which the image or the GPU operator decides"
	}
	return out
}
