package mig_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// rawGPU reads the data apart from the package.
type rawGPU struct {
	Products []string                     `yaml:"nvml_products"`
	Filter   []string                     `yaml:"mig_parted_device_filter"`
	Units    int                          `yaml:"memory_units"`
	Slices   int                          `yaml:"compute_slices"`
	Budget   map[string]int               `yaml:"media_budget"`
	Also     map[string]map[string]string `yaml:"also_observed"`
	Profiles []rawProfile                 `yaml:"profiles"`
	Layouts  map[string]mig.Demand        `yaml:"layouts"`
}

type rawProfile struct {
	Name         string         `yaml:"name"`
	Variant      string         `yaml:"variant"`
	NVML         int            `yaml:"nvml_profile"`
	GI           *int           `yaml:"gi_profile_id"`
	Max          int            `yaml:"max_instances"`
	Slices       int            `yaml:"compute_slices"`
	MemorySlices *int           `yaml:"memory_slices"`
	MemoryGiB    *float64       `yaml:"memory_gib"`
	SM           *int           `yaml:"sm"`
	Engines      map[string]int `yaml:"engines"`
	Resource     string         `yaml:"k8s_resource"`
	Placements   []struct {
		Start int `yaml:"start"`
		Size  int `yaml:"size"`
	} `yaml:"placements"`
}

func rawData(t testing.TB) map[string]rawGPU {
	t.Helper()
	var file struct {
		GPUs map[string]rawGPU `yaml:"gpus"`
	}
	readYAML(t, "data/mig.yaml", &file)
	if len(file.GPUs) != 15 {
		t.Fatalf("the data has %d models, want 15", len(file.GPUs))
	}
	return file.GPUs
}

func readYAML(t testing.TB, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestEveryProfileAndPlacement compares every figure of the data with what the
// package tells about it.
func TestEveryProfileAndPlacement(t *testing.T) {
	variants := map[string]string{"": "", "+me": "me", "+me.all": "me.all", "+gfx": "gfx", "-me": "no-me"}
	for key, raw := range rawData(t) {
		g := geometry(t, key)
		if len(g.Profiles()) != len(raw.Profiles) {
			t.Fatalf("%s has %d profiles, want %d", key, len(g.Profiles()), len(raw.Profiles))
		}
		for _, want := range raw.Profiles {
			t.Run(key+"/"+want.Name, func(t *testing.T) {
				p, err := g.Profile(want.Name)
				if err != nil {
					t.Fatal(err)
				}
				got := rawProfile{Name: p.Name(), Variant: variants[p.Parsed().Attributes()], NVML: p.NVMLProfile(),
					GI: optional(p.GIProfileID()), Max: p.MaxInstances(), Slices: p.ComputeSlices(),
					MemorySlices: optional(p.MemorySlices()), MemoryGiB: optional(p.MemoryGiB()), SM: optional(p.SMs()),
					Engines: engines(p.Engines()), Resource: p.ResourceName()}
				for _, pl := range p.Placements() {
					if pl.Profile != want.Name {
						t.Errorf("placement of %s", pl.Profile)
					}
					got.Placements = append(got.Placements, struct {
						Start int `yaml:"start"`
						Size  int `yaml:"size"`
					}{pl.Start, pl.Size})
				}
				if len(want.Engines) == 3 {
					want.Engines["enc"] = 0
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("(-data +package):\n%s", d)
				}
			})
		}
	}
}

// TestEveryPlacementIsTaken places a single instance and as many as the data
// allows of each profile.
func TestEveryPlacementIsTaken(t *testing.T) {
	for key, raw := range rawData(t) {
		g := geometry(t, key)
		for _, p := range raw.Profiles {
			if raw.Units == 0 {
				if _, err := g.Place(mig.Demand{p.Name: 1}); err == nil || !strings.Contains(err.Error(), "use one of its named layouts") {
					t.Errorf("%s: got error %v", key, err)
				}
				continue
			}
			full, err := g.Place(mig.Demand{p.Name: p.Max})
			if err != nil || len(full) != p.Max {
				t.Errorf("%s: placing %d×%s: %v, %v", key, p.Max, p.Name, full, err)
			}
			_, err = g.Place(mig.Demand{p.Name: p.Max + 1})
			wantError(t, err, fmt.Sprintf("a GPU holds at most %d of %s, not %d", p.Max, p.Name, p.Max+1))
		}
	}
}

func TestEveryLayout(t *testing.T) {
	for key, raw := range rawData(t) {
		g := geometry(t, key)
		names := []string{mig.AllDisabled, mig.AllEnabled}
		for name, want := range raw.Layouts {
			names = append(names, name)
			t.Run(key+"/"+name, func(t *testing.T) { checkLayout(t, raw, layout(t, key, name), want) })
		}
		slices.Sort(names)
		if d := cmp.Diff(names, g.LayoutNames()); d != "" {
			t.Errorf("%s names (-want +got):\n%s", key, d)
		}
	}
}

func checkLayout(t *testing.T, raw rawGPU, l mig.Layout, want mig.Demand) {
	t.Helper()
	if d := cmp.Diff(want, l.Counts()); d != "" {
		t.Errorf("(-data +package):\n%s", d)
	}
	if !l.MIGEnabled() || !mig.Fits(l, want) {
		t.Errorf("%s has MIG off or does not fit its own contents", l)
	}
	resources := map[string]int{}
	for _, p := range raw.Profiles {
		if n := want[p.Name]; n > 0 {
			resources[p.Resource] = n
		}
	}
	if d := cmp.Diff(resources, l.Resources()); d != "" {
		t.Errorf("resources (-want +got):\n%s", d)
	}
	if raw.Units > 0 && len(l.Placements()) != want.Total() {
		t.Errorf("placements %v for %s", l.Placements(), want)
	}
}

// TestLayoutsAgreeWithMigParted compares with the layouts of mig-parted's own
// configuration: another source than the one that the tables come from. An
// entry without filter speaks for the models whose PCI ID the file has anywhere.
func TestLayoutsAgreeWithMigParted(t *testing.T) {
	b, err := os.ReadFile("testdata/mig-parted-layouts.txt")
	if err != nil {
		t.Fatal(err)
	}
	compared, covered := 0, strings.FieldsFunc(string(b), func(r rune) bool { return r == ' ' || r == ',' || r == '\n' })
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if strings.HasPrefix(line, "#") || len(f) < 3 {
			continue
		}
		want := parseDemand(t, strings.Join(f[2:], " "))
		ids := covered
		if f[1] != "*" {
			ids = strings.Split(f[1], ",")
		}
		if compared++; !agreesWithAny(t, f[0], f[1] == "*", ids, want) {
			t.Errorf("no model has %s with %s for %s", f[0], want, f[1])
		}
	}
	if compared < 70 {
		t.Errorf("compared %d layouts", compared)
	}
}

// agreesWithAny reports whether a model of the IDs has the layout with what is
// wanted. With all, none of them may have other contents.
func agreesWithAny(t *testing.T, name string, all bool, ids []string, want mig.Demand) bool {
	t.Helper()
	agreed := false
	for _, g := range mig.Geometries() {
		for _, n := range append([]*mig.Geometry{g}, g.Namings()...) {
			l, err := n.Layout(name)
			if err != nil || !overlap(n.DeviceFilter(), ids) {
				continue
			}
			if cmp.Equal(want, l.Counts()) {
				agreed = true
			} else if all {
				t.Errorf("%s of %s has %s, mig-parted %s", name, n.Key(), l.Counts(), want)
			}
		}
	}
	return agreed
}

func TestMediaBudgetIsThatOfTheWholeGPU(t *testing.T) {
	for key, raw := range rawData(t) {
		for _, p := range raw.Profiles {
			for engine, have := range raw.Budget {
				if n := p.Engines[engine] * p.Max; n > have {
					t.Errorf("%s: %d×%s take %d %s of %d", key, p.Max, p.Name, n, engine, have)
				}
				if p.Slices == raw.Slices && p.Variant == "" && p.Engines[engine] != have {
					t.Errorf("%s: %s has %d %s, the budget is %d", key, p.Name, p.Engines[engine], engine, have)
				}
			}
		}
		got, known := geometry(t, key).MediaBudget()
		if known != (raw.Budget != nil) || got.OFA != raw.Budget["ofa"] || got.Decoders != raw.Budget["dec"] {
			t.Errorf("%s: budget %v, %v", key, got, known)
		}
	}
}

func TestForProduct(t *testing.T) {
	for key, raw := range rawData(t) {
		for _, product := range append(raw.Products, key) {
			label := strings.ReplaceAll(product, " ", "-")
			for _, s := range []string{product, label, label + "-SHARED", label + "-MIG-1g.10gb", label + "-MIG-1g.10gb-SHARED", strings.TrimPrefix(label, "NVIDIA-")} {
				if product == key && s != key {
					continue
				}
				g, ok := mig.ForProduct(s)
				if !ok || g.Key() != key {
					t.Errorf("%q finds %v, want %s", s, g, key)
				}
			}
		}
	}
	for _, s := range []string{"", "NVIDIA", "Tesla T4", "NVIDIA A10G", "NVIDIA H100", "NVIDIA-", "-MIG-1g.10gb"} {
		if g, ok := mig.ForProduct(s); ok {
			t.Errorf("%q finds %s", s, g.Key())
		}
	}
}

func TestParseRefuses(t *testing.T) {
	valid := `gpus: {x: {memory_units: 4, compute_slices: 4, media_budget: {ofa: 1}, profiles: [
 {name: 1g.6gb, max_instances: 4, compute_slices: 1, memory_slices: 1, engines: {ofa: 0}, placements: [{start: 0, size: 1}, {start: 3, size: 1}]},
 {name: 2g.12gb, max_instances: 2, compute_slices: 2, memory_slices: 2, placements: [{start: 0, size: 2}]}], layouts: {all-1g.6gb: {1g.6gb: 2}}}}`
	if _, err := mig.Parse([]byte(valid)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ old, new, wantErr string }{
		"an unknown field":              {"max_instances: 4", "max_instancess: 4", "field max_instancess not found"},
		"no profiles":                   {"layouts: {all-1g.6gb: {1g.6gb: 2}}", "profiles2: []", "profiles2"},
		"a placement past the end":      {"start: 3, size: 1", "start: 4, size: 1", "an end within 4 units"},
		"a placement of another size":   {"start: 3, size: 1", "start: 3, size: 2", "want size memory_slices (1)"},
		"a start that would overflow":   {"start: 3, size: 1", "start: 9223372036854775807, size: 1", "an end within 4 units"},
		"slices against the name":       {"compute_slices: 2", "compute_slices: 1", "want what the name says"},
		"a profile twice":               {"2g.12gb, max_instances: 2, compute_slices: 2", "1g.6gb, max_instances: 2, compute_slices: 1", "is there twice"},
		"a compute instance":            {"name: 2g.12gb", "name: 1c.2g.12gb", "list its GPU instance"},
		"a bad profile name":            {"name: 2g.12gb", "name: 2g", "profiles[1], parsing MIG profile"},
		"no instances":                  {"max_instances: 4", "max_instances: 0", "max_instances of 1g.6gb is 0"},
		"too many memory units":         {"memory_units: 4", "memory_units: 64", "memory_units is 64, want 1 to 32"},
		"placements without units":      {"memory_units: 4", "memory_units: null", "exactly where memory_units is"},
		"no compute slices":             {"x: {memory_units: 4, compute_slices: 4", "x: {memory_units: 4, compute_slices: 0", "compute_slices is 0"},
		"a layout that overlaps":        {"{1g.6gb: 2}", "{1g.6gb: 3}", "no arrangement on its 4 memory units"},
		"a layout of an unknown part":   {"{1g.6gb: 2}", "{3g.6gb: 1}", "unknown MIG profile"},
		"a layout with a reserved name": {"layouts: {all-1g.6gb", "layouts: {all-disabled", "other than all-disabled"},
		"a layout beyond the engines":   {"engines: {ofa: 0}", "engines: {ofa: 1}", "take 2 optical flow engines of 1"},
		"a wrong resource":              {"name: 1g.6gb,", "name: 1g.6gb, k8s_resource: nvidia.com/gpu,", `k8s_resource of 1g.6gb is "nvidia.com/gpu"`},
		"a naming of nothing":           {"compute_slices: 4, media", "compute_slices: 4, also_observed: {y: {7g.1gb: 7g.2gb}}, media", "no profile of the GPU"},
		"a naming that is no name":      {"compute_slices: 4, media", "compute_slices: 4, also_observed: {y: {1g.6gb: six}}, media", `also_observed[y], parsing MIG profile "six"`},
		"no YAML":                       {"gpus:", "\t", "reading MIG geometries"},
	} {
		t.Run(name, func(t *testing.T) {
			in := strings.Replace(valid, tc.old, tc.new, 1)
			if in == valid {
				t.Fatal("the case changes nothing")
			}
			_, err := mig.Parse([]byte(in))
			wantError(t, err, tc.wantErr)
		})
	}
}

// FuzzParse checks that no input panics, and that what is accepted can be used.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`gpus: {x: {memory_units: 4, compute_slices: 4, profiles: [{name: 1g.6gb, max_instances: 4, compute_slices: 1, memory_slices: 1, placements: [{start: 0, size: 1}]}], layouts: {all-1g.6gb: {1g.6gb: 1}}}}`))
	f.Add([]byte(`gpus: {x: {compute_slices: 2, profiles: [{name: 1g.6gb, max_instances: 2, compute_slices: 1}], layouts: {all-1g.6gb: {1g.6gb: 2}}}}`))
	f.Add([]byte(`gpus: {x: {compute_slices: 2, also_observed: {y: {1g.6gb: 1g.7gb}}, profiles: [{name: 1g.6gb, max_instances: 2, compute_slices: 1}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := mig.Parse(b)
		if err != nil {
			return
		}
		for _, g := range all {
			for _, name := range g.LayoutNames() {
				if l, err := g.Layout(name); err != nil || !mig.Fits(l, l.Counts()) {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
	})
}

func geometry(t testing.TB, key string) *mig.Geometry {
	t.Helper()
	g, ok := mig.ByKey(key)
	if !ok {
		t.Fatalf("no geometry %s", key)
	}
	return g
}

func optional[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}

func engines(e mig.Engines, ok bool) map[string]int {
	if !ok {
		return nil
	}
	return map[string]int{"dec": e.Decoders, "jpeg": e.JPEG, "ofa": e.OFA, "enc": e.Encoders}
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}
