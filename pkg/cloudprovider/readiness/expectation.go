package readiness

import (
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

const nvidiaPrefix = "nvidia.com/"

// Shapes knows instance types. A catalog.Catalog does.
type Shapes interface {
	Shape(name string) (catalog.Shape, bool)
}

// expected is what a node was bought to be.
type expected struct {
	// gpus is the number of physical GPUs, 0 for none, -1 when it is not known.
	gpus int
	// product is NVML's name, memory its memory in MiB; empty and 0 are not compared.
	product string
	memory  int
	// partitions has one element for all GPUs or one for each; nil is not compared.
	partitions []map[string]int
	geometry   *mig.Geometry
	// resources are the amounts that the kubelet must show.
	resources corev1.ResourceList
}

// expect reads the NodeClaim and the catalogue. A type that is not in the catalogue is
// held against what the provider said when it launched it.
func expect(s Subject, shapes Shapes) expected {
	shape, known := shapes.Shape(s.label(corev1.LabelInstanceTypeStable))
	e := expected{gpus: shape.GPUs, resources: expectedResources(s)}
	switch {
	case known && !shape.HasGPU():
		return e
	case !known:
		e.gpus = -1
		if !slices.ContainsFunc(resourceNames(e.resources), func(n string) bool { return strings.HasPrefix(n, nvidiaPrefix) }) {
			e.gpus = 0
			return e
		}
	case !shape.Fractional() || shape.Model.VGPU:
		e.product, e.memory = shape.Model.Product, shape.GPUMemoryMiB
	default: // a part of a GPU shows a name and a memory of its own
		e.memory = shape.GPUMemoryMiB
	}
	e.layout(s, shape)
	e.wholeGPUs(s)
	return e
}

// layout fills partitions from the layout that the node was launched with.
func (e *expected) layout(s Subject, shape catalog.Shape) {
	name := s.label(v1alpha1.LayoutLabelKey)
	if name == "" {
		name = s.label(v1alpha1.MIGConfigLabelKey)
	}
	if name == "" || name == mig.AllDisabled {
		e.partitions = []map[string]int{{}}
		return
	}
	if g, ok := mig.ByKey(shape.Model.MIG); ok && shape.MIGCapable() {
		e.geometry = g
		if e.partitions = named(s, g, shape, name); e.partitions != nil {
			return
		}
	}
	e.partitions = fromCapacity(s.Claim, e.gpus)
}

// named resolves a layout of the pool or, for a layout that the pool has no more or that
// somebody else set, one of mig-parted's.
func named(s Subject, g *mig.Geometry, shape catalog.Shape, name string) []map[string]int {
	if s.Pool != nil {
		for _, l := range s.Pool.MIG.Layouts(shape) {
			if l.Name() != name {
				continue
			}
			if layouts, err := l.Layouts(shape.GPUs); err == nil {
				return lo.Map(layouts, func(l mig.Layout, _ int) map[string]int { return l.Counts() })
			}
		}
	}
	if l, err := g.Layout(name); err == nil {
		return []map[string]int{l.Counts()}
	}
	return nil
}

// fromCapacity divides the partitions that the launch promised evenly among the GPUs; nil
// where they do not divide, or where the strategy hides the profiles.
func fromCapacity(claim *karpv1.NodeClaim, gpus int) []map[string]int {
	if claim == nil || gpus <= 0 {
		return nil
	}
	counts := map[string]int{}
	for name, q := range claim.Status.Capacity {
		profile, err := mig.ParseResource(string(name))
		if err != nil || q.IsZero() {
			continue
		}
		if q.Value()%int64(gpus) != 0 {
			return nil
		}
		counts[profile.String()] = int(q.Value()) / gpus
	}
	if len(counts) == 0 {
		return nil
	}
	return []map[string]int{counts}
}

// expectedResources are NVIDIA's resources of the launch, and those extended resources that
// pods asked for: that a node has GPUs and no EFA yet is no reason to start on it.
func expectedResources(s Subject) corev1.ResourceList {
	if s.Claim == nil || draOnly(s.Claim) {
		return nil
	}
	out := corev1.ResourceList{}
	for name, q := range s.Claim.Status.Capacity {
		_, asked := s.Claim.Spec.Resources.Requests[name]
		if strings.HasPrefix(string(name), nvidiaPrefix) || asked && extended(name) {
			out[name] = q
		}
	}
	return out
}

// wholeGPUs demands the GPUs of a type for which the provider reports none.
func (e *expected) wholeGPUs(s Subject) {
	if e.gpus <= 0 || s.Claim == nil || draOnly(s.Claim) || len(e.partitions) != 1 || len(e.partitions[0]) > 0 {
		return
	}
	if !slices.ContainsFunc(resourceNames(e.resources), func(n string) bool { return strings.HasPrefix(n, nvidiaPrefix) }) {
		e.resources = lo.Assign(e.resources, corev1.ResourceList{v1alpha1.ResourceGPU: *resource.NewQuantity(int64(e.gpus), resource.DecimalSI)})
	}
}

// draOnly reports whether the node was bought for device claims alone, so that no device
// plugin need run on it.
func draOnly(claim *karpv1.NodeClaim) bool {
	if claim.Annotations[karpv1.DRADriversAnnotationKey] == "" {
		return false
	}
	return !slices.ContainsFunc(resourceNames(claim.Spec.Resources.Requests), func(n string) bool { return strings.HasPrefix(n, nvidiaPrefix) })
}

func extended(name corev1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

func resourceNames(list corev1.ResourceList) []string {
	names := lo.Map(lo.Keys(list), func(n corev1.ResourceName, _ int) string { return string(n) })
	slices.Sort(names)
	return names
}

// against returns the expectation of a report. Boards of one model name their profiles
// after the memory that they report, so that the layout is translated where needed.
func (e expected) against(r health.Report, s Subject) health.Expectation {
	out := health.Expectation{
		BootID: s.Node.Status.NodeInfo.BootID, GPUs: e.gpus, MemoryMiB: e.memory,
		Partitions: e.observed(r),
		MinDriver:  s.Pool.GPUPool.Spec.Readiness.MinDriverVersion, MinCUDA: s.Pool.GPUPool.Spec.Readiness.MinCUDAVersion,
	}
	if e.gpus < 0 {
		out.GPUs = len(r.GPUs)
	}
	if e.product != "" {
		out.Products = []string{e.product}
	}
	return out
}

func (e expected) observed(r health.Report) []map[string]int {
	if e.geometry == nil {
		return e.partitions
	}
	seen := map[string]bool{}
	for _, g := range r.GPUs {
		for _, p := range g.Partitions {
			if in, err := p.Parse(); err == nil {
				seen[in.Profile] = true
			}
		}
	}
	for _, other := range e.geometry.Namings() {
		if translated, ok := translate(e.partitions, e.geometry, other); ok && covers(other, seen) {
			return translated
		}
	}
	return e.partitions
}

func covers(g *mig.Geometry, names map[string]bool) bool {
	for name := range names {
		if _, err := g.Profile(name); err != nil {
			return false
		}
	}
	return len(names) > 0
}

// translate renames profiles by NVML's number for them, which all namings share.
func translate(partitions []map[string]int, from, to *mig.Geometry) ([]map[string]int, bool) {
	numbers, names := map[int]string{}, map[string]string{}
	for _, p := range to.Profiles() {
		numbers[p.NVMLProfile()] = p.Name()
	}
	for _, p := range from.Profiles() {
		names[p.Name()] = numbers[p.NVMLProfile()]
	}
	out := make([]map[string]int, len(partitions))
	for i, counts := range partitions {
		out[i] = map[string]int{}
		for name, n := range counts {
			if names[name] == "" {
				return nil, false
			}
			out[i][names[name]] = n
		}
	}
	return out, true
}
