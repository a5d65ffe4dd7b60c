package mig_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// labelValue is Kubernetes' rule for label values, without the empty one.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

func TestResourcesUnder(t *testing.T) {
	for name, tc := range map[string]struct {
		layout   string
		strategy mig.Strategy
		want     map[string]int
		wantErr  string
	}{
		"MIG off is a whole GPU":            {layout: "all-disabled", strategy: mig.Mixed, want: map[string]int{"nvidia.com/gpu": 1}},
		"MIG off is one under single too":   {layout: "all-disabled", strategy: mig.Single, want: map[string]int{"nvidia.com/gpu": 1}},
		"MIG on without partitions":         {layout: "all-enabled", strategy: mig.Mixed, want: map[string]int{}},
		"mixed names each profile":          {layout: "all-balanced", strategy: mig.Mixed, want: map[string]int{"nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-2g.20gb": 1, "nvidia.com/mig-3g.40gb": 1}},
		"single counts partitions as GPUs":  {layout: "all-1g.10gb", strategy: mig.Single, want: map[string]int{"nvidia.com/gpu": 7}},
		"media extensions under single":     {layout: "all-1g.10gb.me", strategy: mig.Single, want: map[string]int{"nvidia.com/gpu": 1}},
		"single refuses several profiles":   {layout: "all-balanced", strategy: mig.Single, wantErr: "advertising layout all-balanced under strategy single, it has 2×1g.10gb, 1×2g.20gb, 1×3g.40gb; use one profile or strategy mixed"},
		"no strategy is not taken as mixed": {layout: "all-1g.10gb", strategy: "", wantErr: `strategy "" is neither "mixed" nor "single"`},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := geometry(t, "h100-80gb").Layout(tc.layout)
			if err != nil {
				t.Fatal(err)
			}
			got, err := l.ResourcesUnder(tc.strategy)
			if wantError(t, err, tc.wantErr) {
				return
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestLayoutOf(t *testing.T) {
	for name, tc := range map[string]struct {
		name, wantName string
		demand         mig.Demand
		wantErr        string
	}{
		"a name of one's own":               {name: "inference", wantName: "inference", demand: mig.Demand{"3g.40gb": 1}},
		"no name gives the contents":        {wantName: "1x3g.40gb_1x1g.20gb_1x1g.10gb.me", demand: mig.Demand{"3g.40gb": 1, "1g.20gb": 1, "1g.10gb+me": 1}},
		"no name gives mig-parted's":        {wantName: "all-balanced", demand: mig.Demand{"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}},
		"mig-parted's name for its content": {name: "all-1g.10gb", wantName: "all-1g.10gb", demand: mig.Demand{"1g.10gb": 7}},
		"mig-parted's name for another":     {name: "all-1g.10gb", demand: mig.Demand{"1g.10gb": 6}, wantErr: `mig-parted gives that name to 7×1g.10gb; choose another`},
		"MIG off with partitions":           {name: "all-disabled", demand: mig.Demand{"1g.10gb": 6}, wantErr: "mig-parted gives that name to a GPU with MIG off"},
		"partitions that do not fit":        {name: "x", demand: mig.Demand{"7g.80gb": 1, "1g.10gb": 1}, wantErr: `making layout "x", placing 1×1g.10gb, 1×7g.80gb`},
		"a name that is no label value":     {name: "-x", demand: mig.Demand{"1g.10gb": 1}, wantErr: "the name must be a label value"},
		"a name that is too long":           {name: "x123456789012345678901234567890123456789012345678901234567890123", demand: mig.Demand{"1g.10gb": 1}, wantErr: "at most 63"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := geometry(t, "h100-80gb").LayoutOf(tc.name, tc.demand)
			if wantError(t, err, tc.wantErr) {
				return
			}
			if l.Name() != tc.wantName || !cmp.Equal(l.Counts(), tc.demand) {
				t.Errorf("got %s with %s, want %s", l.Name(), l.Counts(), tc.wantName)
			}
		})
	}
	_, err := geometry(t, "a30-24gb").Layout("all-1g.10gb")
	wantError(t, err, `looking for layout "all-1g.10gb" on a30-24gb, it has all-1g.6gb all-1g.6gb.me all-2g.12gb`)
}

func TestFits(t *testing.T) {
	g := geometry(t, "h100-80gb")
	balanced, _ := g.Layout("all-balanced")
	off, _ := g.Layout("all-disabled")
	gb200, _ := geometry(t, "gb200-186gb").Layout("all-7g.186gb")
	for name, tc := range map[string]struct {
		layout mig.Layout
		demand mig.Demand
		want   bool
	}{
		"a part of the layout":                  {balanced, mig.Demand{"1g.10gb": 1, "3g.40gb": 1}, true},
		"nothing":                               {balanced, nil, true},
		"one too many":                          {balanced, mig.Demand{"3g.40gb": 2}, false},
		"a larger profile does not stand in":    {balanced, mig.Demand{"1g.10gb": 3}, false},
		"an unknown profile":                    {balanced, mig.Demand{"1g.5gb": 1}, false},
		"no count of an unknown profile":        {balanced, mig.Demand{"1g.5gb": 0}, true},
		"less than nothing":                     {balanced, mig.Demand{"1g.10gb": -1}, false},
		"partitions never share a whole GPU":    {off, mig.Demand{"1g.10gb": 1}, false},
		"no layout":                             {mig.Layout{}, mig.Demand{"1g.10gb": 1}, false},
		"nothing on no layout":                  {mig.Layout{}, nil, true},
		"a name that the node will not show":    {gb200, mig.Demand{"7g.189gb": 1}, false},
		"the same partition as the node's name": {gb200, mig.Demand{"7g.186gb": 1}, true},
	} {
		if got := mig.Fits(tc.layout, tc.demand); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestStranded(t *testing.T) {
	for layout, want := range map[string]mig.Waste{
		"all-disabled": {}, "all-enabled": {MemoryUnits: 8, ComputeSlices: 7}, "all-1g.10gb": {MemoryUnits: 1},
		"all-3g.40gb": {ComputeSlices: 1}, "all-balanced": {}, "all-1g.20gb": {ComputeSlices: 3}, "all-7g.80gb": {},
	} {
		l, err := geometry(t, "h100-80gb").Layout(layout)
		if err != nil || l.Stranded() != want {
			t.Errorf("%s strands %v, want %v (%v)", layout, l.Stranded(), want, err)
		}
	}
}

func TestObserved(t *testing.T) {
	for name, tc := range map[string]struct {
		gpu      string
		observed []string
		wantKey  string
		want     []string
		wantErr  string
	}{
		"what the data has": {gpu: "gb200-186gb", observed: []string{"1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"},
			wantKey: "gb200-186gb", want: []string{"1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"}},
		"another board of the data": {gpu: "gb200-186gb", observed: []string{"1g.24gb", "1g.24gb+me", "1g.47gb", "2g.47gb", "3g.95gb", "4g.95gb", "7g.189gb"},
			wantKey: "gb200-189gb", want: []string{"1g.24gb", "1g.24gb+me", "1g.47gb", "2g.47gb", "3g.95gb", "4g.95gb", "7g.189gb"}},
		"a board that nobody has listed": {gpu: "b200-180gb", observed: []string{"7g.183gb", "1g.46gb", "1g.23gb"},
			wantKey: "b200-180gb-observed", want: []string{"1g.23gb", "1g.46gb", "7g.183gb"}},
		"an old driver shows fewer": {gpu: "a100-40gb", observed: []string{"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"},
			wantKey: "a100-40gb-observed", want: []string{"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}},
		"another model":            {gpu: "b200-180gb", observed: []string{"1g.10gb"}, wantErr: "looking for 1g.10gb on b200-180gb"},
		"two boards at once":       {gpu: "gb200-186gb", observed: []string{"7g.186gb", "7g.189gb"}, wantErr: "7g.186gb and 7g.189gb both stand for 7g.186gb; read the profiles of one GPU"},
		"a name that is none":      {gpu: "gb200-186gb", observed: []string{"7g"}, wantErr: `parsing MIG profile "7g"`},
		"nothing":                  {gpu: "gb200-186gb", wantErr: "none were given; read them from NVML with MIG mode on"},
		"attributes must be alike": {gpu: "b200-180gb", observed: []string{"1g.23gb+gfx"}, wantErr: "looking for 1g.23gb+gfx"},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := geometry(t, tc.gpu).Observed(tc.observed)
			if wantError(t, err, tc.wantErr) {
				return
			}
			var got []string
			for _, p := range g.Profiles() {
				got = append(got, p.Name())
			}
			if d := cmp.Diff(tc.want, got); d != "" || g.Key() != tc.wantKey {
				t.Errorf("%s (-want +got):\n%s", g.Key(), d)
			}
		})
	}
}

func TestNamingsHaveTheSamePlacements(t *testing.T) {
	g := geometry(t, "gb200-186gb")
	other := geometry(t, "gb200-189gb")
	if len(g.Namings()) != 1 || g.Namings()[0] != other {
		t.Fatalf("namings %v", g.Namings())
	}
	if a, b := len(g.Maximal()), len(other.Maximal()); a != 28 || b != 28 {
		t.Errorf("%d and %d maximal layouts", a, b)
	}
	for i, p := range other.Profiles() {
		own := g.Profiles()[i]
		a, b := p.Placements(), own.Placements()
		for j := range a {
			if a[j].Start != b[j].Start || a[j].Size != b[j].Size || p.MaxInstances() != own.MaxInstances() {
				t.Errorf("%s lies at %v, %s at %v", p.Name(), a, own.Name(), b)
			}
		}
	}
}
