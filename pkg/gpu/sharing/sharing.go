// Package sharing does the arithmetic and the names of shared GPUs: how many
// replicas a node offers and under which resource, what the device plugin must
// be told, and which settings it would refuse.
//
// Facts are those of NVIDIA's device plugin v0.20. Replicas multiply each GPU,
// not the node: four replicas on eight GPUs are 32. A replica is a place in a
// queue (time-slicing) or a client of a daemon (MPS), not a fixed part of the
// GPU, so that two replicas give a pod no more than one: see
// Sharing.FailRequestsGreaterThanOne.
package sharing

import (
	"fmt"
	"math"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// Strategy is how a GPU is shared, by the names of GFD's label.
type Strategy string

// Strategies. The zero Sharing has the empty strategy, which means None.
const (
	None        Strategy = catalog.SharingNone
	TimeSlicing Strategy = catalog.SharingTimeSlicing
	MPS         Strategy = catalog.SharingMPS
)

// Resource names of whole and of renamed shared GPUs.
const (
	ResourceGPU    = "nvidia.com/gpu"
	ResourceShared = ResourceGPU + ".shared"
)

// Limits of the device plugin.
const (
	// MinReplicas is the least number of replicas that is sharing at all.
	MinReplicas = 2
	// MaxMPSClients is how many clients an MPS daemon serves on a GPU of
	// compute capability 7.5 and newer.
	MaxMPSClients = 48
	// MaxMPSClientsOld is the same for older GPUs. The plugin counts Volta (7.0)
	// among them.
	MaxMPSClientsOld = 16
)

// mpsSince is the compute capability from which MaxMPSClients holds.
var mpsSince = catalog.Capability{Major: 7, Minor: 5}

// Sharing is how every GPU of a node is shared. The zero value shares nothing.
type Sharing struct {
	Strategy Strategy
	// Replicas per GPU.
	Replicas int
	// RenameByDefault offers nvidia.com/gpu.shared in place of nvidia.com/gpu,
	// so that only pods that mean to share do.
	RenameByDefault bool
	// FailRequestsGreaterThanOne refuses a container that asks for two replicas
	// or more. Without it such a container starts, yet gets no more compute than
	// with one, and its replicas may lie on one GPU or on several.
	FailRequestsGreaterThanOne bool
}

// Enabled tells whether GPUs are shared.
func (s Sharing) Enabled() bool {
	return s.Strategy != "" && s.Strategy != None && s.Replicas >= MinReplicas
}

// Validate tells whether the device plugin accepts the sharing on nodes with
// this model and this MIG state. The error names the field, its value and the
// way out.
func (s Sharing) Validate(m catalog.Model, mig catalog.MIGState) error {
	switch s.Strategy {
	case "", None:
		if s.Replicas > 1 {
			return fmt.Errorf("replicas: %d without a strategy: choose time-slicing or mps, or leave replicas out", s.Replicas)
		}
		return nil
	case TimeSlicing, MPS:
	default:
		return fmt.Errorf("strategy: %q is not known: use time-slicing or mps", s.Strategy)
	}
	if s.Replicas < MinReplicas || s.Replicas > math.MaxInt32 {
		return fmt.Errorf("replicas: %d is out of range: use a whole number from %d to %d, or turn sharing off", s.Replicas, MinReplicas, math.MaxInt32)
	}
	if s.Strategy == MPS {
		return s.validateMPS(m, mig)
	}
	return nil
}

func (s Sharing) validateMPS(m catalog.Model, mig catalog.MIGState) error {
	if mig.Strategy == catalog.MIGStrategyMixed {
		return fmt.Errorf("strategy: %q is refused under MIG strategy mixed: use MIG strategy single or none, or time-slicing", s.Strategy)
	}
	if len(mig.Devices) > 0 {
		return fmt.Errorf("strategy: %q is refused on GPUs in MIG mode: use time-slicing, or a pool without MIG", s.Strategy)
	}
	if most := MaxReplicas(m); s.Replicas > most {
		return fmt.Errorf("replicas: %d is more than MPS serves on %s (compute capability %s): use at most %d, or time-slicing",
			s.Replicas, m.Product, m.Compute, most)
	}
	return nil
}

// MaxReplicas is the most replicas per GPU that MPS allows on a model.
// Time-slicing has no limit of its own.
func MaxReplicas(m catalog.Model) int {
	if m.Compute.AtLeast(mpsSince) {
		return MaxMPSClients
	}
	return MaxMPSClientsOld
}

// ResourceName is the resource that pods ask for.
func (s Sharing) ResourceName() string {
	if s.Enabled() && s.RenameByDefault {
		return ResourceShared
	}
	return ResourceGPU
}

// Resources is what a node with this many GPUs offers. Under RenameByDefault
// whole GPUs are not on offer beside the shared ones. No GPUs, no resources.
func (s Sharing) Resources(gpus int) map[string]int {
	if gpus <= 0 {
		return map[string]int{}
	}
	return map[string]int{s.ResourceName(): s.Units(gpus)}
}

// Units is how many replicas this many GPUs offer. It stops at the largest
// number that a Kubernetes quantity and a plugin agree on.
func (s Sharing) Units(gpus int) int {
	if gpus <= 0 {
		return 0
	}
	if !s.Enabled() {
		return gpus
	}
	if gpus > math.MaxInt32/s.Replicas {
		return math.MaxInt32
	}
	return gpus * s.Replicas
}

// GPUs is the fewest GPUs that offer this many units.
func (s Sharing) GPUs(units int) int {
	if units <= 0 {
		return 0
	}
	if !s.Enabled() {
		return units
	}
	return (units-1)/s.Replicas + 1
}

// Admits tells whether the device plugin starts a container that asks for this
// many units. What it refuses ends the pod with UnexpectedAdmissionError, which
// no other node mends.
func (s Sharing) Admits(request int) bool {
	return request <= 1 || !s.Enabled() || !s.FailRequestsGreaterThanOne
}

// Suffix is what GFD adds to the product label: "-SHARED", or nothing where
// GPUs are not shared or the resource is renamed.
func (s Sharing) Suffix() string {
	if s.Enabled() && !s.RenameByDefault {
		return "-SHARED"
	}
	return ""
}

// State is the sharing as the catalogue's label prediction takes it.
func (s Sharing) State() catalog.SharingState {
	if !s.Enabled() {
		return catalog.SharingState{}
	}
	return catalog.SharingState{Strategy: string(s.Strategy), Replicas: s.Replicas, Renamed: s.RenameByDefault}
}
