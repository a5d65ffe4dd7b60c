package prometheus_test

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v2"
)

// suite is a file of unit tests in the format of `promtool test rules`, as far as it is used.
type suite struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []group        `yaml:"tests"`
}

type group struct {
	Name     string         `yaml:"name"`
	Interval model.Duration `yaml:"interval"`
	Series   []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	Alerts []expectation `yaml:"alert_rule_test"`
}

// expectation is which alerts of a name fire at a time; none, where the list is empty.
type expectation struct {
	EvalTime model.Duration `yaml:"eval_time"`
	Name     string         `yaml:"alertname"`
	Expected []struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	var s suite
	if err := yaml.UnmarshalStrict([]byte(read(t, "testdata/alerts.yaml")), &s); err != nil {
		t.Fatal(err)
	}
	fired, quiet := map[string]bool{}, map[string]bool{}
	for _, g := range s.Tests {
		t.Run(g.Name, func(t *testing.T) { g.run(t, time.Duration(s.EvaluationInterval)) })
		for _, a := range g.Alerts {
			if len(a.Expected) > 0 {
				fired[a.Name] = true
			} else {
				quiet[a.Name] = true
			}
		}
	}
	groups, errs := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, promQL, promslog.NewNopLogger())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, name := range names(groups) {
		if !fired[name] || !quiet[name] {
			t.Errorf("%s has to be seen to fire and to keep quiet; seen: fires %t, quiet %t", name, fired[name], quiet[name])
		}
	}
}

func names(groups *rulefmt.RuleGroups) (all []string) {
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			all = append(all, r.Alert)
		}
	}
	return all
}

// run evaluates all rules from the start to the last time that is asked about.
func (g group) run(t *testing.T, interval time.Duration) {
	loader, err := promqltest.NewLazyLoader(g.load(), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true, Parser: promQL})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := loader.Close(); err != nil {
			t.Error(err)
		}
	}()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(loader.QueryEngine(), loader.Storage()), AppendableV2: loader.Storage(), Context: context.Background(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: promslog.NewNopLogger(), Parser: promQL, ExternalURL: &url.URL{},
	})
	loaded, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, alertsFile)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var last time.Duration
	for _, a := range g.Alerts {
		last = max(last, time.Duration(a.EvalTime))
	}
	for at := time.Duration(0); at <= last; at += interval {
		loader.WithSamplesTill(time.Unix(0, 0).Add(at), func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range slices.Sorted(maps.Keys(loaded)) {
				loaded[key].Eval(loader.Context(), time.Unix(0, 0).Add(at).UTC())
			}
		})
		for _, a := range g.Alerts {
			if time.Duration(a.EvalTime) == at {
				a.compare(t, loaded)
			}
		}
	}
}

// load is the samples in the notation of promqltest.
func (g group) load() string {
	text := fmt.Sprintf("load %v\n", g.Interval)
	for _, s := range g.Series {
		text += fmt.Sprintf("  %s %s\n", s.Series, s.Values)
	}
	return text
}

func (a expectation) compare(t *testing.T, loaded map[string]*rules.Group) {
	t.Helper()
	var got, want []string
	for _, g := range loaded {
		for _, r := range g.Rules() {
			rule, ok := r.(*rules.AlertingRule)
			if !ok || rule.Name() != a.Name {
				continue
			}
			if rule.LastError() != nil {
				t.Errorf("%s: %v", a.Name, rule.LastError())
			}
			for _, alert := range rule.ActiveAlerts() {
				if alert.State == rules.StateFiring {
					got = append(got, describe(alert.Labels.Map(), alert.Annotations.Map()["summary"]))
				}
			}
		}
	}
	for _, e := range a.Expected {
		e.Labels["alertname"] = a.Name
		want = append(want, describe(e.Labels, e.Annotations["summary"]))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s at %v\nwant %s\n got %s", a.Name, a.EvalTime, strings.Join(want, "\n     "), strings.Join(got, "\n     "))
	}
}

// describe leaves out what every series of a target has.
func describe(labels map[string]string, summary string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !slices.Contains([]string{"instance", "job", "pod"}, name) {
			parts = append(parts, fmt.Sprintf("%s=%q", name, labels[name]))
		}
	}
	return "{" + strings.Join(parts, ", ") + "} " + summary
}
