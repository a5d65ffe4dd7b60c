package node

import (
	"fmt"
	"maps"

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

// Catalogue returns the Hardware of the built-in GPU catalogue. It knows the layouts of the
// mig-parted file that it is given, and those that mig-parted generates by itself; other names are
// refused, as mig-manager refuses them.
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
	offered := map[string]int{mig.WholeGPUResource: shape.GPUs}
	if p.Layout != "" {
		layout, err := layoutOf(shape, p)
		if err != nil {
			return nil, nil, err
		}
		if offered, err = resourcesOf(layout, p.Strategy, shape.GPUs); err != nil {
			return nil, nil, err
		}
		state.MIG.Devices, state.MIG.WholeGPUs = catalog.PartitionsOf(layout, shape.GPUs)
	}
	shared, err := p.Sharing.state(shape, state.MIG)
	if err != nil {
		return nil, nil, err
	}
	state.Sharing = shared
	labels := catalog.Labels(shape, state)
	maps.Copy(labels, driverLabels)
	return labels, p.Sharing.multiply(offered), nil
}

// layoutOf finds a layout in the file, or else among those that mig-parted generates. It is the
// zero layout for a machine without MIG that is asked to have none.
func layoutOf(shape catalog.Shape, p Partition) (mig.NodeLayout, error) {
	geometry, ok := mig.ByKey(shape.Model.MIG)
	if !ok || !shape.MIGCapable() {
		if p.Layout == mig.AllDisabled {
			return mig.NodeLayout{}, nil
		}
		return mig.NodeLayout{}, fmt.Errorf("applying layout %q, %s of %s has no MIG", p.Layout, shape.Model.Product, shape.Name)
	}
	if own, ok, err := fromFile(p.File, p.Layout, geometry, shape.GPUs); ok || err != nil {
		return own, err
	}
	layout, err := geometry.Layout(p.Layout)
	if err != nil {
		return mig.NodeLayout{}, err
	}
	return mig.NewNodeLayout("", mig.AllDevices(layout))
}

// resourcesOf are those of a node. Strategy none shows whole GPUs whatever their layout.
func resourcesOf(layout mig.NodeLayout, strategy string, gpus int) (map[string]int, error) {
	if layout.Geometry() == nil || strategy == string(catalog.MIGStrategyNone) {
		return map[string]int{mig.WholeGPUResource: gpus}, nil
	}
	return layout.Resources(mig.Strategy(strategy), gpus)
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

// multiply returns the resources of a node whose GPUs offer so much unshared.
func (s Sharing) multiply(unshared map[string]int) map[string]int64 {
	_, section := s.section()
	total := map[string]int64{}
	for name, n := range unshared {
		replicas := 1
		if section != nil {
			name, replicas = section.offer(name)
		}
		total[name] = int64(n) * int64(replicas)
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
