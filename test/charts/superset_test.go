package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	clusterName = "--set=settings.clusterName=test"
	monitoring  = "--api-versions=monitoring.coreos.com/v1"
)

// TestObjectsReplaceThoseOfKarpentersChart renders both charts with the same values. Every
// object of Karpenter's must be ours too, under the same name and with the same content but
// for the image and what is listed in own.
func TestObjectsReplaceThoseOfKarpentersChart(t *testing.T) {
	helm := newRunner(t, "")
	for name, args := range map[string][]string{
		"defaults":                                {clusterName},
		"every value":                             {"--values=testdata/stock-full.yaml", monitoring},
		"a release that does not speak of it":     {"autoscaler", clusterName},
		"a release that does":                     {"my-karpenter-2", clusterName},
		"another name":                            {clusterName, "--set=nameOverride=scaler"},
		"another name that the release speaks of": {"scaler-1", clusterName, "--set=nameOverride=scaler"},
		"another full name":                       {clusterName, "--set=fullnameOverride=full"},
		"a long release":                          {strings.Repeat("long", 12), clusterName},
		"a ServiceAccount of another":             {clusterName, "--set=serviceAccount.create=false"},
		"a named ServiceAccount of another":       {clusterName, "--set=serviceAccount.create=false", "--set=serviceAccount.name=irsa"},
		"all of DRA":                              {clusterName, "--set=settings.enableDRA=true"},
		"one gate of DRA":                         {clusterName, "--set=settings.awsFeatureGates.draEFA=true"},
		"DRA without a gate":                      {clusterName, "--set=settings.ignoreDRARequests=false"},
		"a gate of DRA against requests":          {clusterName, "--set=settings.awsFeatureGates.draNVIDIAGPU=true", "--set=settings.ignoreDRARequests=true"},
		"a monitor without its kind":              {clusterName, "--set=serviceMonitor.enabled=true"},
		"a monitor with defaults":                 {clusterName, "--set=serviceMonitor.enabled=true", monitoring},
	} {
		t.Run(name, func(t *testing.T) {
			ours := helm.render(t, controller, args...)
			theirs := helm.render(t, stock(t, "karpenter"), args...)
			for _, want := range theirs {
				key := want.GetKind() + " " + want.GetName()
				got := find(ours, want.GetKind(), want.GetNamespace(), want.GetName())
				if got == nil {
					t.Errorf("%s is missing", key)
					continue
				}
				if diff := cmp.Diff(normal(t, want), normal(t, got)); diff != "" {
					t.Errorf("%s (-Karpenter's +ours):\n%s", key, diff)
				}
			}
			if len(theirs) < 12 {
				t.Errorf("Karpenter's chart makes %d objects, the comparison has lost some", len(theirs))
			}
		})
	}
}

// normal is an object with what both charts may write differently in one form, and without
// what is meant to differ.
func normal(t *testing.T, u *unstructured.Unstructured) map[string]any {
	t.Helper()
	u = u.DeepCopy()
	labels := u.GetLabels()
	delete(labels, "helm.sh/chart")
	delete(labels, "app.kubernetes.io/version")
	u.SetLabels(labels)
	switch u.GetKind() {
	case "Deployment":
		normalPod(t, u)
	case "ClusterRole", "Role":
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role); err != nil {
			t.Fatal(err)
		}
		grants := grants(role.Rules)
		grants = slices.DeleteFunc(grants, func(g string) bool { return strings.Contains(g, "karpenter-gpu.dev/gpupools") })
		u.Object["rules"] = grants
	}
	return prune(u.Object).(map[string]any)
}

// own are environment variables that Karpenter's chart does not set.
var own = []string{"PREDICT_GPU_LABELS", "GPU_OPERATOR_NAMESPACE", "GPU_REPAIR_TOLERATION", "GPU_CATALOG_FILE"}

func normalPod(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	var pod corev1.PodSpec
	spec, _, err := unstructured.NestedMap(u.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, e := range pod.Containers[0].Env {
		if slices.Contains(own, e.Name) {
			continue
		}
		if _, twice := env[e.Name]; twice {
			t.Errorf("%s is set twice", e.Name)
		}
		env[e.Name] = fmt.Sprintf("%s%v", e.Value, e.ValueFrom)
	}
	pod.Containers[0].Env, pod.Containers[0].Image = nil, ""
	for _, name := range slices.Sorted(maps.Keys(env)) {
		pod.Containers[0].Env = append(pod.Containers[0].Env, corev1.EnvVar{Name: name, Value: env[name]})
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedMap(u.Object, content, "spec", "template", "spec"); err != nil {
		t.Fatal(err)
	}
}

// grants spells rules out, so that two ways to write them compare equal.
func grants(rules []rbacv1.PolicyRule) (all []string) {
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{"*"}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, name := range names {
					for _, verb := range r.Verbs {
						all = append(all, fmt.Sprintf("%s %s/%s %s", verb, group, resource, name))
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// prune drops nulls and empty objects, which mean the same as nothing.
func prune(v any) any {
	object, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for key, child := range object {
		child = prune(child)
		object[key] = child
		if m, ok := child.(map[string]any); child == nil || ok && len(m) == 0 {
			delete(object, key)
		}
	}
	return object
}
