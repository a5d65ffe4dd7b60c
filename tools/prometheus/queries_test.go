package prometheus_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	root       = "../.."
	alertsFile = root + "/charts/karpenter-gpu/files/alerts.yaml"
	runbooks   = "https://github.com/karpenter-gpu/karpenter-gpu/blob/main/docs/runbooks.md#"
)

var promQL = parser.NewParser(parser.Options{})

// metrics are the labels of the metrics that docs/reference/metrics.md lists, with those that a
// histogram adds.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (counter|gauge|histogram|summary) \\| ([^|]*) \\|")
	known := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(read(t, root+"/docs/reference/metrics.md"), -1) {
		var labels []string
		for _, l := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}
		known[m[1]] = labels
		if m[2] == "histogram" || m[2] == "summary" {
			known[m[1]+"_sum"], known[m[1]+"_count"] = labels, labels
			known[m[1]+"_bucket"] = append(slices.Clone(labels), "le")
		}
	}
	if len(known) < 50 {
		t.Fatalf("docs/reference/metrics.md lists %d metrics, the test has lost some", len(known))
	}
	return known
}

// check parses a query and holds the metrics and labels that it names to those that exist.
func check(t *testing.T, where, query string, known map[string][]string) {
	t.Helper()
	expr, err := promQL.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v in\n%s", where, err, query)
		return
	}
	var labels []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		selector, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		own, exists := known[selector.Name]
		if !exists {
			t.Errorf("%s asks for %q, which docs/reference/metrics.md does not list", where, selector.Name)
			return nil
		}
		labels = append(labels, own...)
		for _, m := range selector.LabelMatchers {
			if m.Name != "__name__" && !slices.Contains(own, m.Name) {
				t.Errorf("%s selects by %s, a label that %s does not have", where, m.Name, selector.Name)
			}
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !slices.Contains(labels, l) {
					t.Errorf("%s groups by %s, a label of none of its metrics", where, l)
				}
			}
		}
		return nil
	})
}

func TestQueriesOfAlertsNameWhatExists(t *testing.T) {
	known := metrics(t)
	groups, errs := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, promQL, promslog.NewNopLogger())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	text := read(t, root+"/docs/runbooks.md")
	var names []string
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
			check(t, "alert "+rule.Alert, rule.Expr, known)
			if want := runbooks + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
				t.Errorf("alert %s has the runbook %q, want %s", rule.Alert, rule.Annotations["runbook_url"], want)
			}
			if !slices.Contains([]string{"info", "warning", "critical"}, rule.Labels["severity"]) {
				t.Errorf("alert %s has the severity %q", rule.Alert, rule.Labels["severity"])
			}
		}
	}
	var sections []string
	for _, m := range regexp.MustCompile("(?m)^### (\\S+)$").FindAllStringSubmatch(text, -1) {
		sections = append(sections, m[1])
	}
	slices.Sort(names)
	slices.Sort(sections)
	if !slices.Equal(names, sections) {
		t.Errorf("docs/runbooks.md has sections for %v, and the alerts are %v", sections, names)
	}
}

// dashboard is as much of Grafana's model as holds queries.
type dashboard struct {
	Title  string
	UID    string
	Panels []struct {
		Title       string
		Type        string
		Description string
		Targets     []struct{ Expr string }
	}
	Templating struct {
		List []struct {
			Name  string
			Type  string
			Query json.RawMessage
		}
	}
}

func TestQueriesOfDashboardsNameWhatExists(t *testing.T) {
	known := metrics(t)
	paths, err := filepath.Glob(root + "/charts/karpenter-gpu/files/dashboards/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no dashboards, %v", err)
	}
	uids := map[string]string{}
	for _, path := range paths {
		var d dashboard
		if err := json.Unmarshal([]byte(read(t, path)), &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if other, twice := uids[d.UID]; twice || d.UID == "" {
			t.Errorf("%s has the uid %q of %s", path, d.UID, other)
		}
		uids[d.UID] = path
		queries := 0
		for _, p := range d.Panels {
			where := d.Title + ": " + p.Title
			if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
				t.Errorf("%s has no query or no description", where)
			}
			for _, target := range p.Targets {
				queries++
				check(t, where, substitute(target.Expr), known)
			}
		}
		if queries < 10 {
			t.Errorf("%s has %d queries, the test has lost some", path, queries)
		}
		for _, v := range d.Templating.List {
			if v.Type == "query" {
				checkVariable(t, d.Title+": variable "+v.Name, string(v.Query), known)
			}
		}
	}
}

// checkVariable looks at label_values(metric, label), the one form that is used.
func checkVariable(t *testing.T, where, query string, known map[string][]string) {
	t.Helper()
	m := regexp.MustCompile(`label_values\(([a-z0-9_]+), ([a-z0-9_]+)\)`).FindStringSubmatch(query)
	if m == nil || !slices.Contains(known[m[1]], m[2]) {
		t.Errorf("%s: %s names no label of a metric", where, query)
	}
}

// substitute gives Grafana's variables a value.
func substitute(query string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$gpupool", ".*").Replace(query)
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
