// Package observability_test holds docs/reference/metrics.md to the registry of the controller. The
// queries of alerts and dashboards are held to the same list by tools/prometheus.
package observability_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	operatorstatus "github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	metricsnode "sigs.k8s.io/karpenter/pkg/controllers/metrics/node"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
	_ "github.com/karpenter-gpu/karpenter-gpu/pkg/operator" // what the controller links
)

var update = flag.Bool("update", false, "rewrite the tables of docs/reference")

const (
	root    = "../.."
	rewrite = "run `go test ./test/observability -update`"
)

// described is a metric as the registry knows it.
type described struct {
	name, help string
	labels     []string
}

// registered are the metrics of the registry of a controller. Some of Karpenter's are registered
// when their controller is made, so that two are made here, with nothing to control.
var registered = func() []described {
	metricsnode.NewController(nil)
	operatorstatus.NewController[*v1alpha1.GPUPool](nil, nil)
	operatorstatus.NewController[*karpv1.NodePool](nil, nil)
	pattern := regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)"(?:, unit: "[^"]*")?, constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)
	descs := make(chan *prometheus.Desc)
	go func() {
		crmetrics.Registry.(prometheus.Collector).Describe(descs)
		close(descs)
	}()
	var all []described
	for d := range descs {
		m := pattern.FindStringSubmatch(d.String())
		if m == nil {
			panic("the text of a description has changed: " + d.String())
		}
		one := described{name: m[1], help: strings.ReplaceAll(m[2], `\"`, `"`)}
		for label := range strings.SplitSeq(m[3], ",") {
			if label != "" {
				one.labels = append(one.labels, label)
			}
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b described) int { return strings.Compare(a.name, b.name) })
	return all
}()

// ours are the prefixes of names that are not Karpenter's.
const ours = metrics.Namespace + "_"

func TestEveryMetricOfOursIsDeclared(t *testing.T) {
	var want, got []string
	for _, d := range registered {
		if strings.HasPrefix(d.name, ours) {
			want = append(want, d.name)
		}
	}
	for _, m := range metrics.Declared() {
		got = append(got, m.Name)
		if !regexp.MustCompile(`^[A-Z].*\.$`).MatchString(m.Help) {
			t.Errorf("the help of %s is no sentence: %q", m.Name, m.Help)
		}
		if m.Kind == metrics.Counter != strings.HasSuffix(m.Name, "_total") {
			t.Errorf("%s is a %s: counters, and only they, end in _total", m.Name, m.Kind)
		}
		if m.Kind == metrics.Histogram && (!strings.HasSuffix(m.Name, "_seconds") || len(m.Buckets) == 0 || !slices.IsSorted(m.Buckets)) {
			t.Errorf("%s has no unit or no buckets of its own", m.Name)
		}
		for _, l := range m.Labels {
			if l.Help == "" {
				t.Errorf("label %s of %s is not explained", l.Name, m.Name)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-registered +declared by pkg/metrics):\n%s", diff)
	}
}

// table replaces what stands between two marks of a file by text, or compares.
func table(t *testing.T, file, mark, text string) {
	t.Helper()
	path := filepath.Join(root, file)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	start, end := "<!-- "+mark+" -->\n", "<!-- end "+mark+" -->"
	before, rest, ok := strings.Cut(string(data), start)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s lacks the lines %q and %q", file, start, end)
	}
	want := before + start + text + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("%s is not up to date, %s (-want +got):\n%s", file, rewrite, diff)
	}
}
