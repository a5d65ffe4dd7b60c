package pools

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/sharing"
)

// Request is what a Pool is resolved from.
type Request struct {
	// GPUPool is copied.
	GPUPool *v1alpha1.GPUPool
	// NodePools are the names of those that have joined.
	NodePools []string
	// Catalog says which GPU counts nodes may have.
	Catalog *catalog.Catalog
	// Demand are the partitions that pending pods ask for. It matters only where
	// layouts are planned.
	Demand mig.Demand
	// Carried are the layouts that nodes and NodeClaims of the pool carry.
	Carried []string
	// Previous is what was resolved before; nil at first. Planned layouts that are
	// carried, or still of use to the demand, are taken from it.
	Previous *Pool
}

// Resolve turns a GPUPool into a Pool. The error lists all that is wrong with the
// spec; such a pool belongs in no Store.
func Resolve(r Request) (*Pool, error) {
	if err := r.GPUPool.RuntimeValidate(Names{}); err != nil {
		return nil, fmt.Errorf("validating gpu pool, %w", err)
	}
	p := &Pool{
		GPUPool:   r.GPUPool.DeepCopy(),
		NodePools: slices.Sorted(slices.Values(r.NodePools)),
		Sharing:   sharingOf(r.GPUPool.Spec.Partitioning),
	}
	if spec := r.GPUPool.Spec.Partitioning; spec.Kind() == v1alpha1.PartitioningMIG {
		p.MIG = resolveMIG(spec.MIG, r)
	}
	version, err := versionOf(p)
	if err != nil {
		return nil, err
	}
	p.Version = version
	return p, nil
}

func sharingOf(p *v1alpha1.Partitioning) sharing.Sharing {
	switch p.Kind() {
	case v1alpha1.PartitioningTimeSlicing:
		return sharing.Sharing{
			Strategy: sharing.TimeSlicing, Replicas: int(p.TimeSlicing.Replicas),
			RenameByDefault: p.TimeSlicing.RenameByDefault, FailRequestsGreaterThanOne: p.TimeSlicing.FailRequestsGreaterThanOne,
		}
	case v1alpha1.PartitioningMPS:
		// The device plugin refuses more than one replica under MPS whatever it is told.
		return sharing.Sharing{
			Strategy: sharing.MPS, Replicas: int(p.MPS.Replicas),
			RenameByDefault: p.MPS.RenameByDefault, FailRequestsGreaterThanOne: true,
		}
	}
	return sharing.Sharing{}
}

func versionOf(p *Pool) (string, error) {
	spec, err := json.Marshal(p.GPUPool.Spec)
	if err != nil {
		return "", fmt.Errorf("encoding the spec of gpu pool %s, %w", p.Name(), err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", p.Name(), spec)
	if p.MIG != nil {
		for _, l := range p.MIG.All() {
			fmt.Fprintf(h, "%s/%s\n", l.Geometry().Key(), l.Name())
		}
		fmt.Fprintf(h, "retired %s\n", strings.Join(p.MIG.Retired, " "))
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

func resolveMIG(spec *v1alpha1.MIG, r Request) *MIG {
	m := &MIG{Strategy: mig.Mixed, layouts: map[string][]mig.NodeLayout{}}
	if spec.GetStrategy() == v1alpha1.MIGStrategySingle {
		m.Strategy = mig.Single
	}
	for _, g := range mig.Geometries() {
		var layouts []mig.NodeLayout
		if spec.FromDemand() {
			layouts = planLayouts(g, spec.Profiles, r)
		} else {
			layouts = namedLayouts(g, spec.Layouts)
		}
		slices.SortFunc(layouts, func(a, b mig.NodeLayout) int { return strings.Compare(a.Name(), b.Name()) })
		layouts = slices.CompactFunc(layouts, func(a, b mig.NodeLayout) bool { return a.Name() == b.Name() })
		if len(layouts) > 0 {
			m.layouts[g.Key()] = layouts
		}
	}
	m.Retired = retired(m, r.Carried)
	return m
}

func namedLayouts(g *mig.Geometry, names []string) []mig.NodeLayout {
	var layouts []mig.NodeLayout
	for _, name := range names {
		if l, err := g.Layout(name); err == nil {
			layouts = appendUniform(layouts, l)
		}
	}
	return layouts
}

// appendUniform appends the layout for all GPUs of a node.
func appendUniform(layouts []mig.NodeLayout, l mig.Layout) []mig.NodeLayout {
	if n, err := mig.NewNodeLayout("", mig.AllDevices(l)); err == nil {
		layouts = append(layouts, n)
	}
	return layouts
}

// retired are the carried names that no model offers any more.
func retired(m *MIG, carried []string) []string {
	offered := map[string]bool{}
	for _, l := range m.All() {
		offered[l.Name()] = true
	}
	names := slices.DeleteFunc(slices.Clone(carried), func(name string) bool { return name == "" || offered[name] })
	slices.Sort(names)
	return slices.Compact(names)
}
