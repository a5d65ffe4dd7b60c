package pools_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

func request(p *v1alpha1.Partitioning) pools.Request {
	return pools.Request{
		GPUPool:   &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "inference"}, Spec: v1alpha1.GPUPoolSpec{Partitioning: p}},
		NodePools: []string{"b", "a"}, Catalog: catalog.Default(),
	}
}

func resolve(t *testing.T, r pools.Request) *pools.Pool {
	t.Helper()
	p, err := pools.Resolve(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func shape(t *testing.T, name string) catalog.Shape {
	t.Helper()
	s, ok := catalog.Default().Shape(name)
	if !ok {
		t.Fatalf("no shape %s", name)
	}
	return s
}

func names(p *pools.Pool, s catalog.Shape) []string {
	var out []string
	for _, l := range p.MIG.Layouts(s) {
		out = append(out, l.Name())
	}
	return out
}

func layouts(of ...string) *v1alpha1.Partitioning {
	return &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Layouts: of}}
}

func profiles(of ...string) *v1alpha1.Partitioning {
	return &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Profiles: of}}
}

func TestLayoutsOfAShape(t *testing.T) {
	single := layouts("all-1g.10gb", "all-2g.20gb")
	single.MIG.Strategy = v1alpha1.MIGStrategySingle
	for name, tc := range map[string]struct {
		p     *v1alpha1.Partitioning
		shape string
		want  []string
	}{
		"named layouts are sorted":                         {layouts("all-disabled", "all-1g.10gb", "all-balanced"), "p5.48xlarge", []string{"all-1g.10gb", "all-balanced", "all-disabled"}},
		"a model has the layouts that it can":              {layouts("all-1g.5gb", "all-balanced"), "p5.48xlarge", []string{"all-balanced"}},
		"a GPU without MIG has none":                       {layouts("all-balanced"), "g5.48xlarge", nil},
		"no part of a GPU has any":                         {layouts("all-balanced"), "g6f.xlarge", nil},
		"one profile makes one layout":                     {profiles("1g.10gb"), "p5.4xlarge", []string{"all-1g.10gb"}},
		"two profiles make every mix that is full":         {profiles("2g.20gb", "3g.40gb"), "p5.4xlarge", []string{"1x3g.40gb_2x2g.20gb", "all-2g.20gb", "all-3g.40gb"}},
		"profiles of another model are passed over":        {profiles("1g.5gb", "1g.18gb"), "p4d.24xlarge", []string{"all-1g.5gb"}},
		"strategy Single keeps layouts that are all alike": {single, "p5.48xlarge", []string{"all-1g.10gb", "all-2g.20gb"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := names(resolve(t, request(tc.p)), shape(t, tc.shape))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("layouts differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlannedLayouts(t *testing.T) {
	r := request(profiles("1g.10gb", "3g.40gb"))
	uniform := names(resolve(t, r), shape(t, "p5.48xlarge"))
	r.Demand = mig.Demand{"3g.40gb": 14, "1g.10gb": 7}
	p := resolve(t, r)
	var planned []mig.NodeLayout
	for _, l := range p.MIG.Layouts(shape(t, "p5.48xlarge")) {
		if !slices.Contains(uniform, l.Name()) {
			planned = append(planned, l)
		}
	}
	if len(planned) != 1 {
		t.Fatalf("%d planned layouts, want 1", len(planned))
	}
	offered, err := planned[0].Resources(mig.Mixed, 8)
	if err != nil {
		t.Fatal(err)
	}
	if offered["nvidia.com/mig-3g.40gb"] < 14 || offered["nvidia.com/mig-1g.10gb"] < 7 {
		t.Errorf("the planned layout offers %v, which is not what was asked for", offered)
	}

	t.Run("stays while pods wait for something else", func(t *testing.T) {
		r.Previous, r.Demand = p, mig.Demand{"1g.10gb": 1}
		if got := names(resolve(t, r), shape(t, "p5.48xlarge")); !slices.Contains(got, planned[0].Name()) {
			t.Errorf("got %v, want %s among them", got, planned[0].Name())
		}
	})
	t.Run("goes when nobody waits", func(t *testing.T) {
		r.Previous, r.Demand = p, nil
		if diff := cmp.Diff(uniform, names(resolve(t, r), shape(t, "p5.48xlarge"))); diff != "" {
			t.Errorf("layouts differ (-want +got):\n%s", diff)
		}
	})
	t.Run("stays when a node carries it", func(t *testing.T) {
		r.Carried = []string{planned[0].Name()}
		got := resolve(t, r)
		if !slices.Contains(names(got, shape(t, "p5.48xlarge")), planned[0].Name()) || len(got.MIG.Retired) > 0 {
			t.Errorf("got %v, retired %v", names(got, shape(t, "p5.48xlarge")), got.MIG.Retired)
		}
	})
	t.Run("is retired by name after a restart", func(t *testing.T) {
		r.Previous = nil
		if diff := cmp.Diff([]string{planned[0].Name()}, resolve(t, r).MIG.Retired); diff != "" {
			t.Errorf("retired layouts differ (-want +got):\n%s", diff)
		}
	})
}

// TestPlannedLayoutsServeTheDemand checks for many demands that nodes with the planned
// and the uniform layouts hold what the planner says that their GPUs do.
func TestPlannedLayoutsServeTheDemand(t *testing.T) {
	g, _ := mig.ByKey("h100-80gb")
	for three := range 20 {
		for one := 0; one < 60; one += 7 {
			r := request(profiles("1g.10gb", "3g.40gb"))
			r.Demand = mig.Demand{"3g.40gb": three, "1g.10gb": one}
			plan, err := g.Plan(r.Demand)
			if err != nil {
				t.Fatal(err)
			}
			if plan.GPUs() > 8 || plan.GPUs() == 0 {
				continue
			}
			held := slices.ContainsFunc(resolve(t, r).MIG.Layouts(shape(t, "p5.48xlarge")), func(l mig.NodeLayout) bool {
				offered, err := l.Resources(mig.Mixed, 8)
				return err == nil && offered["nvidia.com/mig-3g.40gb"] >= three && offered["nvidia.com/mig-1g.10gb"] >= one
			})
			if !held {
				t.Errorf("%d of 3g and %d of 1g fit %d GPUs, and no layout of an 8-GPU node holds them", three, one, plan.GPUs())
			}
		}
	}
}

func TestLayoutsAreBounded(t *testing.T) {
	r := request(profiles("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.10gb+me"))
	for n := 1; n < 40; n++ {
		r.Demand = mig.Demand{"1g.10gb": n, "1g.20gb": n % 5, "3g.40gb": n % 7, "4g.40gb": n % 3, "7g.80gb": 1}
		r.Previous = resolve(t, r)
		got := names(r.Previous, shape(t, "p5.48xlarge"))
		if len(got) > pools.MaxLayouts+8 {
			t.Fatalf("%d layouts after %d rounds, want at most %d: %v", len(got), n, pools.MaxLayouts+8, got)
		}
		for _, l := range got {
			if len(l) > 63 {
				t.Errorf("%q is no label value", l)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	base := request(layouts("all-balanced"))
	one := resolve(t, base)
	if again := resolve(t, base); again.Version != one.Version {
		t.Errorf("versions of equal content are %s and %s", one.Version, again.Version)
	}
	seen := map[string]string{one.Version: "base"}
	retiring := base
	retiring.Carried = []string{"all-1g.10gb"}
	for name, r := range map[string]pools.Request{"another layout": request(layouts("all-1g.10gb")), "no partitioning": request(nil), "a retired layout": retiring, "other strategy": func() pools.Request {
		r := request(layouts("all-1g.10gb"))
		r.GPUPool.Spec.Partitioning.MIG.Strategy = v1alpha1.MIGStrategySingle
		return r
	}()} {
		p := resolve(t, r)
		if twin, ok := seen[p.Version]; ok {
			t.Errorf("%s and %s have the same version", name, twin)
		}
		seen[p.Version] = name
	}
}

func TestResolveRefusesWhatCannotBe(t *testing.T) {
	for name, tc := range map[string]struct {
		p    *v1alpha1.Partitioning
		want string
	}{
		"a layout that no GPU has":  {layouts("all-9g.1gb"), `spec.partitioning.mig.layouts[0]: Invalid value: "all-9g.1gb"`},
		"a profile that no GPU has": {profiles("9g.1gb"), `spec.partitioning.mig.profiles[0]: Invalid value: "9g.1gb"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pools.Resolve(request(tc.p))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that contains %q", err, tc.want)
			}
		})
	}
}

func TestSupports(t *testing.T) {
	mps := func(n int32) *v1alpha1.Partitioning { return &v1alpha1.Partitioning{MPS: &v1alpha1.MPS{Replicas: n}} }
	for name, tc := range map[string]struct {
		p     *v1alpha1.Partitioning
		shape string
		want  string
	}{
		"whole GPUs are always possible": {nil, "g5.xlarge", ""},
		"MIG on an H100":                 {layouts("all-balanced"), "p5.48xlarge", ""},
		"MIG on an A10G":                 {layouts("all-balanced"), "g5.xlarge", "NVIDIA A10G has no MIG"},
		"no layout for the model":        {layouts("all-1g.5gb"), "p5.48xlarge", "NVIDIA H100 80GB HBM3 has none of the pool's layouts or profiles"},
		"20 clients of MPS on an A10G":   {mps(20), "g5.xlarge", ""},
		"20 clients of MPS on a V100":    {mps(20), "p3.2xlarge", "replicas: 20 is more than MPS serves on Tesla V100-SXM2-16GB (compute capability 7.0): use at most 16, or time-slicing"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := resolve(t, request(tc.p)).Supports(shape(t, tc.shape)); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStore(t *testing.T) {
	labeled := func(name, pool string) *karpv1.NodePool {
		return &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.PoolLabelKey: pool}}}
	}
	s := &pools.Store{}
	if s.Evaluated(labeled("a", "inference")) || !s.Evaluated(&karpv1.NodePool{}) || s.Generation() != 0 {
		t.Error("an empty store has evaluated NodePools without a label, and no others")
	}
	p := resolve(t, request(nil))
	first := s.Swap([]*pools.Pool{p}, map[string]string{"a": "inference", "b": "inference", "c": "gone"})
	for name, want := range map[string]bool{"a": true, "b": true, "c": false, "d": false} {
		if _, ok := s.ForNodePool(name); ok != want {
			t.Errorf("NodePool %s in a pool: %t, want %t", name, ok, want)
		}
	}
	for _, tc := range []struct {
		nodePool *karpv1.NodePool
		want     bool
	}{{labeled("a", "inference"), true}, {labeled("a", "other"), false}, {labeled("c", "gone"), true}, {labeled("d", "inference"), false}} {
		if got := s.Evaluated(tc.nodePool); got != tc.want {
			t.Errorf("%s with %v evaluated: %t, want %t", tc.nodePool.Name, tc.nodePool.Labels, got, tc.want)
		}
	}
	if again := s.Swap([]*pools.Pool{resolve(t, request(nil))}, nil); again != first {
		t.Errorf("generation %d after an equal swap, want %d", again, first)
	}
	if next := s.Swap([]*pools.Pool{resolve(t, request(layouts("all-balanced")))}, nil); next != first+1 {
		t.Errorf("generation %d after a change, want %d", next, first+1)
	}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.PoolLabelKey: "inference"}}}
	if _, ok := s.ForNodeClaim(claim); !ok {
		t.Error("a standalone NodeClaim that names a pool is not in it")
	}
	claim.Labels[karpv1.NodePoolLabelKey] = "d"
	if _, ok := s.ForNodeClaim(claim); ok {
		t.Error("a NodeClaim of a NodePool without pool is in one, by its own label")
	}
	s.Bypass()
	if !s.Evaluated(labeled("d", "inference")) {
		t.Error("a NodePool waits for an evaluation that never comes")
	}
}

func ExampleStore() {
	pool, err := pools.Resolve(pools.Request{
		GPUPool:   &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "inference"}},
		NodePools: []string{"h100"}, Catalog: catalog.Default(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	store := pools.NewStore(pool)
	found, ok := store.ForNodePool("h100")
	fmt.Println(found.Name(), ok)
	// Output: inference true
}
