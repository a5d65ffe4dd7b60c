package node

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/sharing"
)

// driverLabels are what GFD writes of the simulated driver. The catalogue does not predict them:
// the image decides.
var driverLabels = map[string]string{
	"nvidia.com/cuda.driver-version.full":     "580.95.05",
	"nvidia.com/cuda.driver-version.major":    "580",
	"nvidia.com/cuda.driver-version.minor":    "95",
	"nvidia.com/cuda.driver-version.revision": "05",
	"nvidia.com/cuda.runtime-version.full":    "13.0",
	"nvidia.com/cuda.runtime-version.major":   "13",
	"nvidia.com/cuda.runtime-version.minor":   "0",
}

// Catalogue returns the Hardware of the built-in GPU catalogue. It knows the layouts that
// mig-parted names; layouts of an own mig-parted file are refused, as mig-manager refuses a name
// that its file lacks.
func Catalogue() Hardware { return catalogue{catalog.Default()} }

type catalogue struct{ *catalog.Catalog }

// GPUs returns the number of GPUs of a shape.
func (c catalogue) GPUs(instanceType string) int {
	shape, _ := c.Shape(instanceType)
	return shape.GPUs
}

// Predict asks the domain packages for labels and resources.
func (c catalogue) Predict(instanceType string, p Partition) (map[string]string, map[string]int64, error) {
	shape, ok := c.Shape(instanceType)
	if !ok || !shape.HasGPU() {
		return nil, nil, fmt.Errorf("predicting instance type %q, it has no GPUs in the catalogue", instanceType)
	}
	state := catalog.State{Operator: true, MIG: catalog.MIGState{Strategy: catalog.MIGStrategy(p.Strategy)}}
	perGPU := map[string]int{mig.WholeGPUResource: 1}
	if p.Layout != "" {
		layout, err := layoutOf(shape, p.Layout)
		if err != nil {
			return nil, nil, err
		}
		if perGPU, err = resourcesOf(layout, p.Strategy); err != nil {
			return nil, nil, err
		}
		state.MIG.Devices = devicesOf(layout, shape.GPUs)
	}
	shared, err := p.Sharing.state(shape, state.MIG)
	if err != nil {
		return nil, nil, err
	}
	state.Sharing = shared
	labels := catalog.Labels(shape, state)
	maps.Copy(labels, driverLabels)
	return labels, p.Sharing.multiply(perGPU, shape.GPUs), nil
}

func layoutOf(shape catalog.Shape, name string) (mig.Layout, error) {
	geometry, ok := mig.ByKey(shape.Model.MIG)
	if !ok || !shape.MIGCapable() {
		if name == mig.AllDisabled {
			return mig.Layout{}, nil
		}
		return mig.Layout{}, fmt.Errorf("applying layout %q, %s of %s has no MIG", name, shape.Model.Product, shape.Name)
	}
	return geometry.Layout(name)
}

// resourcesOf are those of one GPU. Strategy none shows whole GPUs whatever their layout.
func resourcesOf(layout mig.Layout, strategy string) (map[string]int, error) {
	if !layout.MIGEnabled() || strategy == string(catalog.MIGStrategyNone) {
		return map[string]int{mig.WholeGPUResource: 1}, nil
	}
	return layout.ResourcesUnder(mig.Strategy(strategy))
}

func devicesOf(layout mig.Layout, gpus int) []catalog.MIGDevices {
	var devices []catalog.MIGDevices
	counts := layout.Counts()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		d := catalog.MIGDevices{Profile: name, Count: counts[name] * gpus, Attributes: map[string]int{}}
		if profile, err := layout.Geometry().Profile(name); err == nil {
			describe(&d, profile)
		}
		devices = append(devices, d)
	}
	return devices
}

func describe(d *catalog.MIGDevices, p mig.Profile) {
	d.Attributes["slices.gi"] = p.ComputeSlices()
	d.Attributes["slices.ci"] = p.ComputeSlices()
	if gib, ok := p.MemoryGiB(); ok {
		d.MemoryMiB = int(math.Round(gib * 1024))
	}
	if sms, ok := p.SMs(); ok {
		d.Attributes["multiprocessors"] = sms
	}
}

func (s Sharing) section() (strategy sharing.Strategy, section *Replicated) {
	switch {
	case s.MPS != nil:
		return sharing.MPS, s.MPS
	case s.TimeSlicing != nil:
		return sharing.TimeSlicing, s.TimeSlicing
	}
	return sharing.None, nil
}

// state describes the sharing for labels, and refuses what the plugin would refuse.
func (s Sharing) state(shape catalog.Shape, m catalog.MIGState) (catalog.SharingState, error) {
	strategy, section := s.section()
	if section == nil {
		return catalog.SharingState{}, nil
	}
	state := catalog.SharingState{Strategy: string(strategy), Renamed: section.RenameByDefault}
	for _, r := range section.Resources {
		state.Resources = append(state.Resources, r.Name)
		state.Replicas = r.Replicas
		asked := sharing.Sharing{Strategy: strategy, Replicas: r.Replicas, RenameByDefault: section.RenameByDefault}
		if err := asked.Validate(shape.Model, m); err != nil {
			return state, fmt.Errorf("sharing %s, %w", r.Name, err)
		}
	}
	return state, nil
}

// multiply returns the resources of a node with so many GPUs.
func (s Sharing) multiply(perGPU map[string]int, gpus int) map[string]int64 {
	_, section := s.section()
	total := map[string]int64{}
	for name, n := range perGPU {
		replicas := 1
		if section != nil {
			name, replicas = section.offer(name)
		}
		total[name] = int64(n) * int64(gpus) * int64(replicas)
	}
	return total
}

func (r *Replicated) offer(name string) (offered string, replicas int) {
	for _, x := range r.Resources {
		if x.Name != name || x.Replicas < sharing.MinReplicas {
			continue
		}
		if r.RenameByDefault {
			return name + ".shared", x.Replicas
		}
		return name, x.Replicas
	}
	return name, 1
}
