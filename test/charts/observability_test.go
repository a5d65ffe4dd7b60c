package charts_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// alerts are the alerts of rule groups by name.
func alerts(t *testing.T, groups []any) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for _, group := range groups {
		for _, rule := range group.(map[string]any)["rules"].([]any) {
			rule := rule.(map[string]any)
			found[rule["alert"].(string)] = rule
		}
	}
	return found
}

func TestAlertsAreRenderedAsTheyAre(t *testing.T) {
	helm := newRunner(t, "")
	want := alerts(t, load(t, filepath.Join(controller, "files", "alerts.yaml"))["groups"].([]any))
	rule := func(args ...string) (*unstructured.Unstructured, map[string]map[string]any) {
		objects := helm.render(t, controller, append(args, "--set=gpu.prometheusRule.enabled=true", monitoring)...)
		u := one(t, objects, "PrometheusRule", "karpenter-gpu")
		groups, _, err := unstructured.NestedSlice(u.Object, "spec", "groups")
		if err != nil {
			t.Fatal(err)
		}
		return u, alerts(t, groups)
	}
	_, got := rule(clusterName)
	if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
		t.Errorf("(-file +rendered):\n%s", diff)
	}

	u, got := rule(clusterName, "--set=gpu.prometheusRule.additionalLabels.prometheus=main", "--set=gpu.prometheusRule.alertLabels.team=gpus",
		"--set=gpu.prometheusRule.alertLabels.severity=page", "--set=gpu.prometheusRule.disabled={GPUPoolNotReady}")
	if u.GetLabels()["prometheus"] != "main" {
		t.Errorf("labels of the PrometheusRule: %v", u.GetLabels())
	}
	if _, there := got["GPUPoolNotReady"]; there || len(got) != len(want)-1 {
		t.Errorf("one of %d alerts is disabled, %d are left: %v", len(want), len(got), slices.Sorted(maps.Keys(got)))
	}
	for name, rule := range got {
		if diff := cmp.Diff(map[string]any{"severity": "page", "team": "gpus"}, rule["labels"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	for name, args := range map[string][]string{
		"without the kind": {clusterName, "--set=gpu.prometheusRule.enabled=true"},
		"by default":       {clusterName, monitoring},
	} {
		if find(helm.render(t, controller, args...), "PrometheusRule", "", "karpenter-gpu") != nil {
			t.Errorf("there is a PrometheusRule %s", name)
		}
	}
}

func TestDashboardsAreRenderedAsTheyAre(t *testing.T) {
	helm := newRunner(t, "")
	dir := filepath.Join(controller, "files", "dashboards")
	files, err := os.ReadDir(dir)
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboard, %v", err)
	}
	plain := helm.render(t, controller, clusterName)
	enabled := helm.render(t, controller, clusterName, "--set=gpu.dashboards.enabled=true", "--set=gpu.dashboards.namespace=monitoring", "--set=gpu.dashboards.annotations.grafana_folder=GPUs")
	for _, file := range files {
		name := "karpenter-gpu-dashboard-" + strings.TrimSuffix(file.Name(), ".json")
		if find(plain, "ConfigMap", "", name) != nil {
			t.Errorf("%s is there by default", name)
		}
		u := one(t, enabled, "ConfigMap", name)
		if u.GetNamespace() != "monitoring" || u.GetLabels()["grafana_dashboard"] != "1" || u.GetAnnotations()["grafana_folder"] != "GPUs" {
			t.Errorf("%s: %v", name, u.Object["metadata"])
		}
		var want, got any
		if err := json.Unmarshal([]byte(readFile(t, filepath.Join(dir, file.Name()))), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(as[corev1.ConfigMap](t, u).Data["karpenter-gpu-"+file.Name()]), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-file +rendered):\n%s", name, diff)
		}
	}
}
