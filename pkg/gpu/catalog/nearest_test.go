package catalog_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/quick"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

func ec2Labels() []map[string]string {
	var out []map[string]string
	for _, s := range catalog.Default().GPUShapes() {
		if s.Provider == "aws" {
			out = append(out, catalog.Labels(s, catalog.State{}))
		}
	}
	return out
}

func TestNearest(t *testing.T) {
	for name, tc := range map[string]struct {
		selector catalog.Selector
		want     string
	}{
		"a product with spaces":                  {catalog.Selector{Key: "nvidia.com/gpu.product", Operator: "In", Values: []string{"NVIDIA A10G"}}, "nearest possible is nvidia.com/gpu.product=NVIDIA-A10G"},
		"a product of another vendor's spelling": {catalog.Selector{Key: "nvidia.com/gpu.product", Operator: "In", Values: []string{"A100"}}, "nearest possible is nvidia.com/gpu.product=NVIDIA-A100-SXM4-40GB"},
		"case does not count":                    {catalog.Selector{Key: "nvidia.com/gpu.product", Operator: "In", Values: []string{"nvidia-l40s"}}, "nearest possible is nvidia.com/gpu.product=NVIDIA-L40S"},
		"memory in GB":                           {catalog.Selector{Key: "nvidia.com/gpu.memory", Operator: "In", Values: []string{"81920"}}, ""},
		"memory by the EC2 API":                  {catalog.Selector{Key: "nvidia.com/gpu.memory", Operator: "In", Values: []string{"22888"}}, "nearest possible is nvidia.com/gpu.memory=23028"},
		"more memory than any GPU has":           {catalog.Selector{Key: "nvidia.com/gpu.memory", Operator: "Gte", Values: []string{"400000"}}, "nearest possible is nvidia.com/gpu.memory=275040"},
		"less compute than any GPU has":          {catalog.Selector{Key: "nvidia.com/gpu.compute.major", Operator: "Lt", Values: []string{"7"}}, "nearest possible is nvidia.com/gpu.compute.major=7"},
		"a possible selector":                    {catalog.Selector{Key: "nvidia.com/gpu.compute.major", Operator: "Gte", Values: []string{"9"}}, ""},
		"a misspelled key":                       {catalog.Selector{Key: "nvidia.com/gpu.prodcut", Operator: "In", Values: []string{"NVIDIA-T4"}}, "nearest possible is nvidia.com/gpu.product=NVIDIA-T4G"},
		"a misspelled key that must exist":       {catalog.Selector{Key: "nvidia.com/gpu.familly", Operator: "Exists"}, "nearest possible is the label nvidia.com/gpu.family"},
		"a label that every node has":            {catalog.Selector{Key: "nvidia.com/gpu.count", Operator: "DoesNotExist"}, ""},
		"In without values":                      {catalog.Selector{Key: "nvidia.com/gpu.count", Operator: "In"}, "nearest possible is the label nvidia.com/gpu.count"},
	} {
		t.Run(name, func(t *testing.T) {
			s, ok := catalog.Nearest(tc.selector, ec2Labels())
			got := ""
			if ok {
				got = s.String()
			}
			if got != tc.want {
				t.Errorf("%s:\n got %q\nwant %q", tc.selector, got, tc.want)
			}
		})
	}
}

func TestNearestWithoutNodes(t *testing.T) {
	for _, nodes := range [][]map[string]string{nil, {}, {{}}} {
		if s, ok := catalog.Nearest(catalog.Selector{Key: "k", Operator: "In", Values: []string{"v"}}, nodes); ok {
			t.Errorf("suggested %q from nothing", s)
		}
	}
}

func TestSelectorMatches(t *testing.T) {
	labels := map[string]string{"memory": "100", "product": "A"}
	for name, tc := range map[string]struct {
		selector catalog.Selector
		want     bool
	}{
		"In a listed value":               {catalog.Selector{Key: "product", Operator: "In", Values: []string{"B", "A"}}, true},
		"In with no label":                {catalog.Selector{Key: "none", Operator: "In", Values: []string{""}}, false},
		"NotIn a listed value":            {catalog.Selector{Key: "product", Operator: "NotIn", Values: []string{"A"}}, false},
		"NotIn with no label":             {catalog.Selector{Key: "none", Operator: "NotIn", Values: []string{"A"}}, true},
		"Exists":                          {catalog.Selector{Key: "product", Operator: "Exists"}, true},
		"DoesNotExist":                    {catalog.Selector{Key: "none", Operator: "DoesNotExist"}, true},
		"Gt the same":                     {catalog.Selector{Key: "memory", Operator: "Gt", Values: []string{"100"}}, false},
		"Gte the same":                    {catalog.Selector{Key: "memory", Operator: "Gte", Values: []string{"100"}}, true},
		"Lt the same":                     {catalog.Selector{Key: "memory", Operator: "Lt", Values: []string{"100"}}, false},
		"Lte the same":                    {catalog.Selector{Key: "memory", Operator: "Lte", Values: []string{"100"}}, true},
		"Gt with two values":              {catalog.Selector{Key: "memory", Operator: "Gt", Values: []string{"1", "2"}}, false},
		"Gt on a text":                    {catalog.Selector{Key: "product", Operator: "Gt", Values: []string{"1"}}, false},
		"an operator that does not exist": {catalog.Selector{Key: "memory", Operator: "Near", Values: []string{"100"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.selector.Matches(labels); got != tc.want {
				t.Errorf("%s = %t, want %t", tc.selector, got, tc.want)
			}
		})
	}
}

// The obvious way: walk outwards from the wanted number until a value is met.
func TestNearestNumberAgreesWithWalkingOutwards(t *testing.T) {
	check := func(possible []uint8, wanted uint8) bool {
		nodes := make([]map[string]string, 0, len(possible))
		have := map[int]bool{}
		for _, p := range possible {
			nodes = append(nodes, map[string]string{"n": strconv.Itoa(int(p))})
			have[int(p)] = true
		}
		want := ""
		for d := 0; d < 256 && want == "" && !have[int(wanted)]; d++ {
			switch {
			case have[int(wanted)-d]:
				want = strconv.Itoa(int(wanted) - d)
			case have[int(wanted)+d]:
				want = strconv.Itoa(int(wanted) + d)
			}
		}
		got, _ := catalog.Nearest(catalog.Selector{Key: "n", Operator: "In", Values: []string{strconv.Itoa(int(wanted))}}, nodes)
		return got.Value == want
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func TestNearestSurvivesExtremes(t *testing.T) {
	nodes := []map[string]string{{"n": strconv.Itoa(math.MinInt64)}, {"n": strconv.Itoa(math.MaxInt64 - 1)}}
	got, ok := catalog.Nearest(catalog.Selector{Key: "n", Operator: "In", Values: []string{strconv.Itoa(math.MaxInt64)}}, nodes)
	if !ok || got.Value != strconv.Itoa(math.MaxInt64-1) {
		t.Errorf("got %q, want the neighbor of the largest number", got.Value)
	}
}

func FuzzNearest(f *testing.F) {
	f.Add("nvidia.com/gpu.product", "In", "NVIDIA-A10", "NVIDIA-A10G")
	f.Add("nvidia.com/gpu.memory", "Gte", "9223372036854775807", "-9223372036854775808")
	f.Add("", "", "", "")
	f.Add("k", "In", strings.Repeat("x", 5000), "日本")
	f.Fuzz(func(t *testing.T, key, operator, wanted, possible string) {
		sel := catalog.Selector{Key: key, Operator: operator, Values: []string{wanted}}
		nodes := []map[string]string{{"nvidia.com/gpu.product": possible}, {key: possible}}
		got, ok := catalog.Nearest(sel, nodes)
		if ok && got.Value != "" && got.Value != possible {
			if a, err := strconv.ParseInt(possible, 10, 64); err != nil || strconv.FormatInt(a, 10) != got.Value {
				t.Errorf("suggested %q, which no node has", got.Value)
			}
		}
		if ok && sel.Matches(nodes[1]) {
			t.Errorf("%s is possible, yet %q was suggested", sel, got)
		}
	})
}
