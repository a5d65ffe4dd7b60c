package mig_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

func TestParseProfile(t *testing.T) {
	for name, tc := range map[string]struct {
		in           string
		wantResource string
		wantLayout   string
		wantSlices   int
		wantMemoryGB int
		wantAttr     string
		wantErr      string
	}{
		"a plain profile":                          {in: "1g.10gb", wantResource: "nvidia.com/mig-1g.10gb", wantLayout: "all-1g.10gb", wantSlices: 1, wantMemoryGB: 10},
		"media extensions turn + into a dot":       {in: "1g.10gb+me", wantResource: "nvidia.com/mig-1g.10gb.me", wantLayout: "all-1g.10gb.me", wantSlices: 1, wantMemoryGB: 10, wantAttr: "+me"},
		"all media extensions":                     {in: "2g.48gb+me.all", wantResource: "nvidia.com/mig-2g.48gb.me.all", wantLayout: "all-2g.48gb.me.all", wantSlices: 2, wantMemoryGB: 48, wantAttr: "+me.all"},
		"graphics":                                 {in: "4g.96gb+gfx", wantResource: "nvidia.com/mig-4g.96gb.gfx", wantLayout: "all-4g.96gb.gfx", wantSlices: 4, wantMemoryGB: 96, wantAttr: "+gfx"},
		"no media engines keep the minus":          {in: "1g.24gb-me", wantResource: "nvidia.com/mig-1g.24gb-me", wantLayout: "all-1g.24gb-me", wantSlices: 1, wantMemoryGB: 24, wantAttr: "-me"},
		"a three-digit memory":                     {in: "7g.278gb", wantResource: "nvidia.com/mig-7g.278gb", wantLayout: "all-7g.278gb", wantSlices: 7, wantMemoryGB: 278},
		"a profile that reports no memory":         {in: "3g.0gb", wantResource: "nvidia.com/mig-3g.0gb", wantLayout: "all-3g.0gb", wantSlices: 3},
		"a compute instance":                       {in: "1c.3g.40gb", wantResource: "nvidia.com/mig-1c.3g.40gb", wantLayout: "all-1c.3g.40gb", wantSlices: 3, wantMemoryGB: 40},
		"a compute instance that takes all":        {in: "3c.3g.40gb", wantErr: "leave 3c. out"},
		"the resource in place of the name":        {in: "nvidia.com/mig-1g.10gb", wantErr: `parsing MIG profile "nvidia.com/mig-1g.10gb", want <slices>g.<memory>gb`},
		"the dot of a resource in place of a plus": {in: "1g.10gb.me", wantErr: "as in 1g.10gb, 1g.10gb+me"},
		"two suffixes in a list":                   {in: "1g.10gb+me,gfx", wantErr: "at most one suffix"},
		"upper case":                               {in: "1G.10GB", wantErr: "want <slices>g.<memory>gb"},
		"leading zeros":                            {in: "1g.010gb", wantErr: "want <slices>g.<memory>gb"},
		"no slices":                                {in: "0g.10gb", wantErr: "want <slices>g.<memory>gb"},
		"a trailing newline":                       {in: "1g.10gb\n", wantErr: "want <slices>g.<memory>gb"},
		"nothing":                                  {in: "", wantErr: `parsing MIG profile ""`},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := mig.ParseProfile(tc.in)
			if wantError(t, err, tc.wantErr) {
				return
			}
			got := []any{n.String(), n.ResourceName(), n.LayoutName(), n.ComputeSlices(), n.MemoryGB(), n.Attributes()}
			want := []any{tc.in, tc.wantResource, tc.wantLayout, tc.wantSlices, tc.wantMemoryGB, tc.wantAttr}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestParseResource(t *testing.T) {
	for name, tc := range map[string]struct{ in, want, wantErr string }{
		"a plain profile":            {in: "nvidia.com/mig-1g.10gb", want: "1g.10gb"},
		"a dot becomes a plus":       {in: "nvidia.com/mig-1g.10gb.me", want: "1g.10gb+me"},
		"only the first dot does":    {in: "nvidia.com/mig-1g.24gb.me.all", want: "1g.24gb+me.all"},
		"a minus stays":              {in: "nvidia.com/mig-1g.24gb-me", want: "1g.24gb-me"},
		"whole GPUs":                 {in: "nvidia.com/gpu", wantErr: "want nvidia.com/mig-<profile>"},
		"the name's own plus":        {in: "nvidia.com/mig-1g.10gb+me", wantErr: "with + written as a dot"},
		"shared replicas":            {in: "nvidia.com/mig-1g.10gb.shared", wantErr: "ask for nvidia.com/mig-1g.10gb and divide by its replicas"},
		"something that is no shape": {in: "nvidia.com/mig-large", wantErr: `parsing MIG resource "nvidia.com/mig-large"`},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := mig.ParseResource(tc.in)
			if wantError(t, err, tc.wantErr) {
				return
			}
			if n.String() != tc.want {
				t.Errorf("got %s, want %s", n, tc.want)
			}
		})
	}
}

func TestZeroNameIsNoProfile(t *testing.T) {
	if got := (mig.Name{}).String(); got != "" {
		t.Errorf("got %q", got)
	}
}

// FuzzParseProfile checks that what parses prints as it was, and survives the
// way through the resource name.
func FuzzParseProfile(f *testing.F) {
	for _, g := range mig.Geometries() {
		for _, p := range g.Profiles() {
			f.Add(p.Name())
		}
	}
	for _, s := range []string{"", "1c.3g.40gb", "3g.0gb", "1g.10gb.me", "9g.9999gb+a.b-c", "1g.1gb+shared", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := mig.ParseProfile(s)
		if err != nil {
			if n != (mig.Name{}) {
				t.Fatalf("%q: error beside %s", s, n)
			}
			return
		}
		if n.String() != s {
			t.Fatalf("%q prints as %q", s, n)
		}
		if strings.HasSuffix(n.ResourceName(), ".shared") {
			return // looks like replicas, refused
		}
		back, err := mig.ParseResource(n.ResourceName())
		if err != nil || back != n {
			t.Fatalf("%q through %q is %q, %v", s, n.ResourceName(), back, err)
		}
	})
}

// FuzzParseResource checks that what parses prints as it was.
func FuzzParseResource(f *testing.F) {
	for _, s := range []string{"nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-1g.24gb.me.all", "nvidia.com/mig-1g.24gb-me", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb.shared", "nvidia.com/mig-1c.2g.20gb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := mig.ParseResource(s); err == nil && n.ResourceName() != s {
			t.Fatalf("%q prints as %q", s, n.ResourceName())
		}
	})
}

// wantError fails the test unless err says want, or is nil where want is empty.
// It reports whether an error was wanted.
func wantError(t *testing.T, err error, want string) bool {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Fatalf("unexpected error: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Fatalf("got error %v, want one that says %q", err, want)
	}
	return want != ""
}
