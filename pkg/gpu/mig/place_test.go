package mig_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

func TestPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		gpu     string
		demand  mig.Demand
		want    []mig.Placement
		wantErr string
		wantIs  error
	}{
		"nothing needs no place": {gpu: "h100-80gb", demand: mig.Demand{"1g.10gb": 0}, want: []mig.Placement{}},
		"3g beside 4g goes to the upper half": {gpu: "h100-80gb", demand: mig.Demand{"3g.40gb": 1, "4g.40gb": 1},
			want: []mig.Placement{{"4g.40gb", 0, 4}, {"3g.40gb", 4, 4}}},
		"large ones come first, so that small ones find room": {gpu: "a100-40gb", demand: mig.Demand{"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
			want: []mig.Placement{{"3g.20gb", 4, 4}, {"2g.10gb", 2, 2}, {"1g.5gb", 1, 1}, {"1g.5gb", 0, 1}}},
		"only a double-memory 1g can use the last units beside three 2g": {gpu: "a100-80gb", demand: mig.Demand{"2g.20gb": 3, "1g.20gb": 1},
			want: []mig.Placement{{"2g.20gb", 4, 2}, {"2g.20gb", 2, 2}, {"2g.20gb", 0, 2}, {"1g.20gb", 6, 2}}},
		"RTX PRO 6000 counts twelve units": {gpu: "rtxpro6000-96gb", demand: mig.Demand{"2g.48gb": 1, "1g.24gb": 2},
			want: []mig.Placement{{"2g.48gb", 6, 6}, {"1g.24gb", 3, 3}, {"1g.24gb", 0, 3}}},
		"all media engines at once leave room for -me": {gpu: "rtxpro6000-96gb", demand: mig.Demand{"1g.24gb+me.all": 1, "1g.24gb-me": 3},
			want: []mig.Placement{{"1g.24gb+me.all", 9, 3}, {"1g.24gb-me", 6, 3}, {"1g.24gb-me", 3, 3}, {"1g.24gb-me", 0, 3}}},
		"the names of another board": {gpu: "gb200-186gb", demand: mig.Demand{"7g.189gb": 1}, want: []mig.Placement{{"7g.189gb", 0, 8}}},
		"two 3g fill the memory": {gpu: "h100-80gb", demand: mig.Demand{"3g.40gb": 2, "1g.10gb": 1}, wantIs: mig.ErrDoesNotFit,
			wantErr: "placing 1×1g.10gb, 2×3g.40gb on h100-80gb, no arrangement on its 8 memory units is free of overlap; take some away or plan for more GPUs"},
		"the eighth 1g": {gpu: "h100-80gb", demand: mig.Demand{"1g.10gb": 8}, wantIs: mig.ErrDoesNotFit,
			wantErr: "a GPU holds at most 7 of 1g.10gb, not 8"},
		"media engines are spent": {gpu: "rtxpro6000-96gb", demand: mig.Demand{"1g.24gb+me.all": 1, "1g.24gb": 1}, wantIs: mig.ErrDoesNotFit,
			wantErr: "take 5 decoders of 4; use profiles with fewer media engines, such as -me"},
		"two media sets on A30": {gpu: "a30-24gb", demand: mig.Demand{"1g.6gb+me": 1, "2g.12gb+me": 1}, wantIs: mig.ErrDoesNotFit,
			wantErr: "take 2 JPEG engines of 1"},
		"a profile of another model": {gpu: "h100-80gb", demand: mig.Demand{"1g.5gb": 1}, wantIs: mig.ErrUnknownProfile,
			wantErr: "looking for 1g.5gb on h100-80gb, it has 1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"},
		"a compute instance": {gpu: "h100-80gb", demand: mig.Demand{"1c.3g.40gb": 1}, wantIs: mig.ErrUnknownProfile, wantErr: "use 3g.40gb"},
		"no profile at all":  {gpu: "h100-80gb", demand: mig.Demand{"big": 1}, wantIs: mig.ErrUnknownProfile, wantErr: `parsing MIG profile "big"`},
		"names of two boards at once": {gpu: "gb200-186gb", demand: mig.Demand{"7g.189gb": 1, "3g.93gb": 1}, wantIs: mig.ErrUnknownProfile,
			wantErr: "looking for 7g.189gb on gb200-186gb"},
		"less than nothing": {gpu: "h100-80gb", demand: mig.Demand{"1g.10gb": -1}, wantErr: "counting 1g.10gb in the demand, -1 is negative"},
		"no table to place by": {gpu: "rtxpro4500-32gb", demand: mig.Demand{"1g.16gb": 1}, wantIs: mig.ErrPlacementsUnknown,
			wantErr: "use one of its named layouts"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := geometry(t, tc.gpu).Place(tc.demand)
			if wantError(t, err, tc.wantErr) {
				if tc.wantIs != nil && !errors.Is(err, tc.wantIs) {
					t.Errorf("%v is not %v", err, tc.wantIs)
				}
				return
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestPlaceAgreesWithOracle places every multiset up to one instance above what
// the oracle holds, on every model: what fits is placed by the rules, and what
// does not is refused.
func TestPlaceAgreesWithOracle(t *testing.T) {
	for key, o := range oracles(t) {
		g := geometry(t, key)
		for _, d := range o.fits {
			placed, err := g.Place(d)
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			checkPlacements(t, o.raw, d, placed)
			for _, p := range o.raw.Profiles {
				more := d.Plus(mig.Demand{p.Name: 1})
				if _, err := g.Place(more); (err == nil) != o.holds(more) {
					t.Fatalf("%s: %s: error %v, oracle holds it: %t", key, more, err, o.holds(more))
				}
			}
		}
	}
}

func checkPlacements(t *testing.T, raw rawGPU, d mig.Demand, placed []mig.Placement) {
	t.Helper()
	held, owner, compute := mig.Demand{}, map[int]string{}, 0
	last := raw.Units
	for _, p := range placed {
		i := slices.IndexFunc(raw.Profiles, func(r rawProfile) bool { return r.Name == p.Profile })
		if !slices.ContainsFunc(raw.Profiles[i].Placements, func(pl struct {
			Start int `yaml:"start"`
			Size  int `yaml:"size"`
		}) bool {
			return pl.Start == p.Start && pl.Size == p.Size
		}) {
			t.Fatalf("%s: %v is no placement of the data", d, p)
		}
		for u := p.Start; u < p.Start+p.Size; u++ {
			if owner[u] != "" {
				t.Fatalf("%s: unit %d belongs to %s and %s", d, u, owner[u], p.Profile)
			}
			owner[u] = p.Profile
		}
		if p.Size > last {
			t.Fatalf("%s: %v is created after a smaller one", d, p)
		}
		last = p.Size
		held[p.Profile]++
		compute += raw.Profiles[i].Slices
	}
	if !cmp.Equal(held, d) || compute > raw.Slices {
		t.Fatalf("placed %s with %d compute slices for %s", held, compute, d)
	}
}

// TestMaximal compares with the layouts and counts that came with the data.
func TestMaximal(t *testing.T) {
	var want map[string]struct {
		Derived struct {
			Multisets int `yaml:"base_profile_multisets"`
			Maximal   int `yaml:"maximal_base_multisets"`
		} `yaml:"derived"`
		Layouts []mig.Demand `yaml:"maximal_base_layouts"`
	}
	readYAML(t, "testdata/maximal.yaml", &want)
	all := oracles(t)
	if len(want) != len(all) {
		t.Fatalf("%d models with counts, %d with placements", len(want), len(all))
	}
	for key, w := range want {
		g := geometry(t, key)
		var got []mig.Demand
		for _, l := range g.Maximal() {
			got = append(got, l.Counts())
		}
		if d := cmp.Diff(w.Layouts, got); d != "" || len(got) != w.Derived.Maximal {
			t.Errorf("%s has %d (-want +got):\n%s", key, len(got), d)
		}
		base := 0
		for _, d := range all[key].fits {
			if d.Total() > 0 && !slices.ContainsFunc(all[key].raw.Profiles, func(p rawProfile) bool { return p.Variant != "" && d[p.Name] > 0 }) {
				base++
			}
		}
		if base != w.Derived.Multisets {
			t.Errorf("%s: %d feasible multisets, want %d", key, base, w.Derived.Multisets)
		}
	}
}

// TestLayoutsForEverySubset compares the layouts of every subset of profiles
// with the oracle's, and checks that names are label values, differ, and stay.
func TestLayoutsForEverySubset(t *testing.T) {
	for key, o := range oracles(t) {
		if !slices.Contains([]string{"a30-24gb", "h100-80gb", "rtxpro6000-96gb"}, key) {
			continue // the others have the same table with other names
		}
		g := geometry(t, key)
		names := map[string]string{}
		for subset := 1; subset < 1<<len(o.raw.Profiles); subset++ {
			var profiles []string
			for i, p := range o.raw.Profiles {
				if subset>>i&1 == 1 {
					profiles = append(profiles, p.Name)
				}
			}
			checkSubset(t, o, g, profiles, names)
		}
	}
}

func checkSubset(t *testing.T, o *oracle, g *mig.Geometry, profiles []string, names map[string]string) {
	t.Helper()
	layouts, err := g.LayoutsFor(profiles)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, l := range layouts {
		held := l.Counts().String()
		got = append(got, held)
		if other, ok := names[l.Name()]; ok && other != held || !labelValue.MatchString(l.Name()) {
			t.Fatalf("name %q of %s and %s", l.Name(), held, other)
		}
		names[l.Name()] = held
	}
	for _, d := range o.maximal(profiles) {
		want = append(want, d.String())
	}
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s %v (-want +got):\n%s", g.Key(), profiles, d)
	}
}

func TestModelsWithoutPlacementsKeepToNamedLayouts(t *testing.T) {
	g := geometry(t, "rtxpro4500-32gb")
	if _, known := g.MemoryUnits(); known {
		t.Error("memory units are known")
	}
	var got []string
	for _, l := range g.Maximal() {
		got = append(got, fmt.Sprint(l.Name(), " ", l.Counts(), " ", l.Placements()))
	}
	want := []string{"all-2g.32gb 1×2g.32gb []", "all-1g.16gb 2×1g.16gb []"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, err := g.LayoutOf("half", mig.Demand{"1g.16gb": 1}); err != nil {
		t.Error(err)
	}
	_, err := g.LayoutOf("mix", mig.Demand{"1g.16gb": 1, "1g.16gb-me": 1})
	wantError(t, err, "no named layout holds it")
}
