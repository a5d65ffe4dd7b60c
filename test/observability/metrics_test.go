package observability_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	opmetrics "github.com/awslabs/operatorpkg/metrics"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
)

const metricsReference = "docs/reference/metrics.md"

func TestMetricsReferenceIsUpToDate(t *testing.T) {
	var own strings.Builder
	own.WriteString("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n")
	labels := map[string]opmetrics.Label{}
	var names []string
	for _, m := range metrics.Declared() {
		names = names[:0]
		for _, l := range m.Labels {
			names = append(names, l.Name)
			labels[l.Name+" of "+m.Name] = l
		}
		fmt.Fprintf(&own, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, code(names), cell(m.Help))
	}
	table(t, metricsReference, "own", own.String())
	table(t, metricsReference, "labels", labelTable(labels))

	var upstream strings.Builder
	upstream.WriteString("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n")
	for _, d := range registered {
		if strings.HasPrefix(d.name, "karpenter_gpu_") || !slices.ContainsFunc(upstreamPrefixes, func(p string) bool { return strings.HasPrefix(d.name, p) }) {
			continue
		}
		fmt.Fprintf(&upstream, "| `%s` | %s | %s | %s |\n", d.name, kind(d.name), code(few(d)), cell(d.help))
	}
	table(t, metricsReference, "upstream", upstream.String())
}

// upstreamPrefixes are what begins the names of Karpenter's metrics, of those that its library
// adds for GPUPools, and of controller-runtime's that dashboards use.
var upstreamPrefixes = []string{"karpenter_", "operator_gpupool_", "controller_runtime_reconcile_"}

// summaries of Karpenter, whose names do not tell.
var summaries = []string{"karpenter_pods_startup_duration_seconds", "karpenter_nodes_termination_duration_seconds"}

// kind is the type that a name tells: of what ends in seconds, times that go on are gauges.
func kind(name string) string {
	switch {
	case slices.Contains(summaries, name):
		return "summary"
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case strings.HasSuffix(name, "duration_seconds"), strings.HasSuffix(name, "transition_seconds"), strings.HasSuffix(name, "_time_seconds") && strings.Contains(name, "reconcile"), strings.Contains(name, "_batcher_"):
		return "histogram"
	}
	return "gauge"
}

// few leaves the labels of nodes out that are the provider's, of which there are dozens.
func few(d described) []string {
	if len(d.labels) <= 12 {
		return d.labels
	}
	var kept []string
	for _, l := range d.labels {
		if slices.Contains([]string{"resource_type", "node_name", "nodepool", "instance_type", "zone", "capacity_type", "phase", "managed", "pool", "layout"}, l) {
			kept = append(kept, l)
		}
	}
	slices.Sort(kept)
	return append(kept, "")
}

func code(names []string) string {
	var quoted []string
	for _, n := range names {
		if n == "" {
			quoted = append(quoted, "and the labels of the provider")
			continue
		}
		quoted = append(quoted, "`"+n+"`")
	}
	return strings.Join(quoted, ", ")
}

func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;", ">", "&gt;").Replace(text)
}

// labelTable explains each label once for each meaning that it has.
func labelTable(labels map[string]opmetrics.Label) string {
	where := map[string][]string{}
	for use, l := range labels {
		text := fmt.Sprintf("| `%s` | %s |", l.Name, cell(meaning(l)))
		where[text] = append(where[text], use)
	}
	rows := make([]string, 0, len(where))
	for text := range where {
		rows = append(rows, text+"\n")
	}
	slices.Sort(rows)
	return "| Label | Values |\n|---|---|\n" + strings.Join(rows, "")
}

func meaning(l opmetrics.Label) string {
	if len(l.Values) == 0 {
		return l.Help
	}
	text := l.Help
	for _, v := range l.Values {
		text += fmt.Sprintf(" `%s`: %s", v.Name, v.Help)
	}
	return text
}
