package charts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

func as[T any](t *testing.T, u *unstructured.Unstructured) *T {
	t.Helper()
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, out, true); err != nil {
		t.Fatal(err)
	}
	return out
}

func environment(c corev1.Container) map[string]string {
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	return env
}

func TestControllerOptionsOfOurs(t *testing.T) {
	helm := newRunner(t, "")
	deployment := func(objects []*unstructured.Unstructured) corev1.Container {
		return as[appsv1.Deployment](t, one(t, objects, "Deployment", "karpenter")).Spec.Template.Spec.Containers[0]
	}

	plain := helm.render(t, controller, clusterName)
	got := map[string]string{}
	for _, name := range own {
		if v, ok := environment(deployment(plain))[name]; ok {
			got[name] = v
		}
	}
	if diff := cmp.Diff(map[string]string{"GPU_OPERATOR_NAMESPACE": "gpu-operator"}, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if image := deployment(plain).Image; image != "ghcr.io/karpenter-gpu/controller:0.1.0" {
		t.Errorf("image %s", image)
	}
	if find(plain, "Role", "gpu-operator", "") != nil || find(plain, "ConfigMap", "", "karpenter-gpu-catalog") != nil {
		t.Error("defaults make objects of options")
	}

	full := helm.render(t, controller, "--values="+fullValues(controller))
	container := as[appsv1.Deployment](t, one(t, full, "Deployment", "full")).Spec.Template.Spec.Containers[0]
	want := map[string]string{"PREDICT_GPU_LABELS": "true", "GPU_OPERATOR_NAMESPACE": "nvidia", "GPU_REPAIR_TOLERATION": "15m", "GPU_CATALOG_FILE": "/etc/karpenter-gpu/catalog.yaml"}
	for name, value := range want {
		if v := environment(container)[name]; v != value {
			t.Errorf("%s is %q, want %q", name, v, value)
		}
	}
	if want := "example.com/mirror/controller:9.9@sha256:723130949e4cab989461ff07d1be4cd781d63515432494641b33c235f300ae23"; container.Image != want {
		t.Errorf("image %s, want %s", container.Image, want)
	}
	if one(t, full, "Role", "full-gpu").GetNamespace() != "nvidia" || one(t, full, "RoleBinding", "full-gpu").GetNamespace() != "nvidia" {
		t.Error("the Role is not in the namespace of the GPU Operator")
	}
	// The file is one that the controller reads.
	file := as[corev1.ConfigMap](t, one(t, full, "ConfigMap", "full-gpu-catalog")).Data["catalog.yaml"]
	overrides, err := catalog.Parse([]byte(file))
	if err != nil || len(overrides.Models) != 1 || len(overrides.Shapes) != 1 {
		t.Errorf("%v in\n%s", err, file)
	}
	if find(helm.render(t, controller, clusterName, "--set=gpu.operator.writeConfigMaps=true"), "Role", "gpu-operator", "karpenter-gpu") == nil {
		t.Error("writeConfigMaps makes no Role")
	}
}

func TestNotesSayTheNextStep(t *testing.T) {
	helm := newRunner(t, "")
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"definitions":                         {[]string{definitions}, "helm upgrade --install karpenter charts/karpenter-gpu"},
		"definitions at risk":                 {[]string{definitions, "--set=keep=false"}, "CAUTION: keep=false"},
		"controller":                          {[]string{controller, clusterName}, "helm upgrade --install karpenter-crd charts/karpenter-gpu-crd"},
		"controller without the GPU Operator": {[]string{controller, clusterName}, "--set gpu.operator.writeConfigMaps=true"},
		"agent":                               {[]string{agentChart}, "There is no RuntimeClass nvidia"},
		"agent of pools":                      {[]string{agentChart, "--set=pools={a,b}"}, "the GPUPools a, b"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"install", "karpenter", tc.args[0], "--namespace=karpenter", "--dry-run=client"}, tc.args[1:]...)
			if out := helm.must(t, args...); !strings.Contains(out, tc.want) {
				t.Errorf("%q is not in\n%s", tc.want, out[max(0, strings.Index(out, "NOTES:")):])
			}
		})
	}
}

func TestAgentPod(t *testing.T) {
	helm := newRunner(t, "")
	agent := func(args ...string) *appsv1.DaemonSet {
		for _, u := range helm.render(t, agentChart, append([]string{"gpu-agent"}, args...)...) {
			if u.GetKind() == "DaemonSet" {
				return as[appsv1.DaemonSet](t, u)
			}
		}
		t.Fatal("there is no DaemonSet")
		return nil
	}

	t.Run("should be unprivileged and see nothing of the host", func(t *testing.T) {
		for _, access := range []string{"Runtime", "RuntimeMounts"} {
			pod := agent("--set=driver.access=" + access).Spec.Template.Spec
			sc := pod.Containers[0].SecurityContext
			if *sc.Privileged || *sc.AllowPrivilegeEscalation || !*sc.RunAsNonRoot || !*sc.ReadOnlyRootFilesystem || len(sc.Capabilities.Add) > 0 || sc.Capabilities.Drop[0] != "ALL" {
				t.Errorf("%s: %v", access, sc)
			}
			if *pod.RuntimeClassName != "nvidia" || pod.HostNetwork || pod.HostPID || pod.HostIPC {
				t.Errorf("%s: %v", access, pod)
			}
			for _, v := range pod.Volumes {
				if v.HostPath != nil && v.HostPath.Path != "/dev/null" {
					t.Errorf("%s mounts %s", access, v.HostPath.Path)
				}
			}
			if environment(pod.Containers[0])["NVIDIA_DRIVER_CAPABILITIES"] != "utility" {
				t.Errorf("%s asks for more than NVML", access)
			}
		}
		if agent("--set=driver.runtimeClassName=").Spec.Template.Spec.RuntimeClassName != nil {
			t.Error("an empty runtimeClassName names one")
		}
	})

	t.Run("should be privileged only with the host's driver", func(t *testing.T) {
		pod := agent("--values=" + fullValues(agentChart)).Spec.Template.Spec
		if !*pod.Containers[0].SecurityContext.Privileged || pod.RuntimeClassName != nil {
			t.Error("Host needs privileges and no runtime")
		}
		if _, asks := environment(pod.Containers[0])["NVIDIA_VISIBLE_DEVICES"]; asks {
			t.Error("Host asks NVIDIA's runtime")
		}
		want := []string{"--interval=90s", "--start-interval=3s", "--heartbeat=10m", "--probe-timeout=1500ms",
			"--nvml-library=/host/usr/lib64/libnvidia-ml.so.1", "--policy-file=/etc/gpu-agent/policy.yaml"}
		if diff := cmp.Diff(want, pod.Containers[0].Args); diff != "" {
			t.Errorf("arguments (-want +got):\n%s", diff)
		}
	})

	t.Run("should be given a policy that it reads", func(t *testing.T) {
		file := one(t, helm.render(t, agentChart, "--values="+fullValues(agentChart)), "ConfigMap", "full-policy")
		text := as[corev1.ConfigMap](t, file).Data["policy.yaml"]
		policy, err := health.ParsePolicy([]byte(text))
		if err != nil || policy.GPUs != 8 || policy.MinDriver != "550" || !policy.Checks["persistence"].Disabled || policy.Checks["inforom"].Timeout != 10*time.Second || len(policy.XIDs) != 1 {
			t.Errorf("%v: %+v from\n%s", err, policy, text)
		}
	})

	t.Run("should run on gated nodes of its pools", func(t *testing.T) {
		for gate, pool := range map[string]*v1alpha1.GPUPool{
			"StartupTaint": {}, "Registration": {Spec: v1alpha1.GPUPoolSpec{Readiness: v1alpha1.Readiness{Gate: v1alpha1.GateRegistration}}},
		} {
			for _, args := range [][]string{nil, {"--set=pools={inference}"}, {"--set=nameOverride=probe"}} {
				ds := agent(args...)
				if role, ok := readiness.RoleOf(ds); !ok || role != readiness.RoleAgent {
					t.Errorf("%v: the controller takes it for %q", args, role)
				}
				nodePool := &karpv1.NodePool{}
				nodePool.Spec.Template.Labels = map[string]string{v1alpha1.PoolLabelKey: "inference"}
				nodePool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
				blockers, runs := readiness.Blockers(pool, []*karpv1.NodePool{nodePool}, []appsv1.DaemonSet{*ds})
				if len(blockers) > 0 || !runs {
					t.Errorf("%s %v: runs %t, %v", gate, args, runs, blockers)
				}
			}
			other := &karpv1.NodePool{}
			other.Spec.Template.Labels = map[string]string{v1alpha1.PoolLabelKey: "training"}
			if _, runs := readiness.Blockers(pool, []*karpv1.NodePool{other}, []appsv1.DaemonSet{*agent("--set=pools={inference}")}); runs {
				t.Error("it runs on nodes of another pool")
			}
		}
	})
}
