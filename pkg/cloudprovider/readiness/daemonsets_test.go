package readiness_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
)

// daemonSet is one of gpu-operator's namespace; what makes it known is set by the caller.
func daemonSet(name string, tolerations ...corev1.Toleration) appsv1.DaemonSet {
	return appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: name},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Tolerations: tolerations, Containers: []corev1.Container{{Name: "main", Image: "example.com/image:1"}},
		}}},
	}
}

func app(ds appsv1.DaemonSet, value string) appsv1.DaemonSet {
	ds.Spec.Template.Labels = map[string]string{"app": value}
	return ds
}

func image(ds appsv1.DaemonSet, value string) appsv1.DaemonSet {
	ds.Spec.Template.Spec.Containers[0].Image = value
	return ds
}

var (
	toleratesGPU  = corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	toleratesGate = corev1.Toleration{Key: v1alpha1.UnverifiedTaintKey, Operator: corev1.TolerationOpExists}
	toleratesAll  = corev1.Toleration{Operator: corev1.TolerationOpExists}
)

func TestRoleOf(t *testing.T) {
	for name, tc := range map[string]struct {
		ds   appsv1.DaemonSet
		want readiness.Role
	}{
		"gpu-operator's driver, one for each kernel": {app(daemonSet("nvidia-driver-daemonset-6.8"), "nvidia-driver-daemonset-6.8.0-generic"), readiness.RoleDriver},
		"gpu-operator's toolkit":                     {app(daemonSet("x"), "nvidia-container-toolkit-daemonset"), readiness.RoleToolkit},
		"gpu-operator's validator":                   {app(daemonSet("x"), "nvidia-operator-validator"), readiness.RoleValidator},
		"gpu-operator's plugin":                      {app(daemonSet("x"), "nvidia-device-plugin-daemonset"), readiness.RolePlugin},
		"gpu-operator's MIG manager":                 {app(daemonSet("x"), "nvidia-mig-manager"), readiness.RoleMIGManager},
		"a plugin known by its image alone":          {image(daemonSet("gpus"), "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"), readiness.RolePlugin},
		"GKE's driver installer":                     {image(daemonSet("x"), "gcr.io/gke/nvidia-driver-installer@sha256:0"), readiness.RoleDriver},
		"NFD":                                        {daemonSet("gpu-operator-node-feature-discovery-worker"), readiness.RoleNFD},
		"our agent":                                  {app(daemonSet("x"), "gpu-agent"), readiness.RoleAgent},
		"GFD, which has the plugin's image":          {image(daemonSet("nvdp-gpu-feature-discovery"), "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"), ""},
		"the MPS daemon, which has it too":           {image(daemonSet("nvdp-mps-control-daemon"), "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"), readiness.RoleMPS},
		"DCGM":                                       {app(daemonSet("x"), "nvidia-dcgm-exporter"), ""},
		"a log shipper":                              {daemonSet("fluent-bit"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := readiness.RoleOf(&tc.ds); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestBlockers(t *testing.T) {
	agent := app(daemonSet("gpu-agent", toleratesAll), "gpu-agent")
	plugin := func(t ...corev1.Toleration) appsv1.DaemonSet {
		return app(daemonSet("plugin", t...), "nvidia-device-plugin-daemonset")
	}
	manager := app(daemonSet("manager", toleratesGPU), "nvidia-mig-manager")
	operand := plugin(toleratesGate)
	operand.Spec.Template.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.deploy.device-plugin": "true"}
	elsewhere := plugin()
	elsewhere.Spec.Template.Spec.NodeSelector = map[string]string{"team": "vision"}
	pool := func(change func(*v1alpha1.GPUPoolSpec)) *v1alpha1.GPUPool {
		p := &v1alpha1.GPUPool{}
		if change != nil {
			change(&p.Spec)
		}
		return p
	}
	mig := func(s *v1alpha1.GPUPoolSpec) { s.Partitioning = &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{}} }
	strict := func(s *v1alpha1.GPUPoolSpec) { s.Readiness.Gate = v1alpha1.GateRegistration }
	for name, tc := range map[string]struct {
		pool  *v1alpha1.GPUPool
		sets  []appsv1.DaemonSet
		want  []string
		agent bool
	}{
		"all tolerate":                       {pool(nil), []appsv1.DaemonSet{agent, plugin(toleratesGate)}, nil, true},
		"the plugin tolerates its own only":  {pool(nil), []appsv1.DaemonSet{agent, plugin(toleratesGPU)}, []string{"plugin"}, true},
		"no agent":                           {pool(nil), []appsv1.DaemonSet{plugin(toleratesGate)}, nil, false},
		"a MIG manager without need":         {pool(nil), []appsv1.DaemonSet{agent, manager}, nil, true},
		"a MIG manager that MIG waits for":   {pool(mig), []appsv1.DaemonSet{agent, manager}, []string{"manager"}, true},
		"a plugin that runs on other nodes":  {pool(nil), []appsv1.DaemonSet{agent, elsewhere}, nil, true},
		"NFD beside a plugin of its own":     {pool(nil), []appsv1.DaemonSet{agent, plugin(toleratesGate), daemonSet("nfd-worker")}, nil, true},
		"NFD that the operator waits for":    {pool(nil), []appsv1.DaemonSet{agent, operand, daemonSet("nfd-worker")}, []string{"nfd-worker"}, true},
		"registration asks more of a driver": {pool(strict), []appsv1.DaemonSet{agent, app(daemonSet("driver", toleratesGate), "nvidia-driver-daemonset")}, []string{"driver"}, true},
		"and not of the plugin":              {pool(strict), []appsv1.DaemonSet{agent, plugin(toleratesGate)}, nil, true},
		"several, by name": {pool(mig), []appsv1.DaemonSet{plugin(), manager, app(daemonSet("driver"), "nvidia-driver-daemonset")},
			[]string{"driver", "manager", "plugin"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			nodePool := &karpv1.NodePool{}
			nodePool.Spec.Template.Labels = map[string]string{"team": "language"}
			blockers, agent := readiness.Blockers(tc.pool, []*karpv1.NodePool{nodePool}, tc.sets)
			var got []string
			for _, b := range blockers {
				got = append(got, b.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || agent != tc.agent {
				t.Errorf("agent %t, blockers (-want +got)\n%s", agent, diff)
			}
		})
	}
}

func TestBlockersOfATaintedNodePool(t *testing.T) {
	nodePool := &karpv1.NodePool{}
	nodePool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}
	sets := []appsv1.DaemonSet{app(daemonSet("plugin"), "nvidia-device-plugin-daemonset")}
	if blockers, _ := readiness.Blockers(&v1alpha1.GPUPool{}, []*karpv1.NodePool{nodePool}, sets); len(blockers) > 0 {
		t.Errorf("a DaemonSet that never runs on the pool's nodes blocks: %v", blockers)
	}
}

// TestFix plays the command on the DaemonSet: with it the DaemonSet no longer blocks.
func TestFix(t *testing.T) {
	for name, tolerations := range map[string][]corev1.Toleration{"with tolerations": {toleratesGPU}, "with none": nil} {
		t.Run(name, func(t *testing.T) {
			ds := app(daemonSet("plugin", tolerations...), "nvidia-device-plugin-daemonset")
			nodePools := []*karpv1.NodePool{{}}
			blockers, _ := readiness.Blockers(&v1alpha1.GPUPool{}, nodePools, []appsv1.DaemonSet{ds})
			if len(blockers) != 1 {
				t.Fatalf("%d blockers", len(blockers))
			}
			command := blockers[0].Fix
			if !strings.HasPrefix(command, "kubectl -n gpu-operator patch daemonset plugin --type=json -p '") {
				t.Fatal(command)
			}
			var ops []struct {
				Op, Path string
				Value    json.RawMessage
			}
			_, patch, _ := strings.Cut(strings.TrimSuffix(command, "'"), "'")
			if err := json.Unmarshal([]byte(patch), &ops); err != nil {
				t.Fatal(err)
			}
			var added []corev1.Toleration
			value := string(ops[0].Value)
			if strings.HasSuffix(ops[0].Path, "/-") {
				value = "[" + value + "]"
			}
			if err := json.Unmarshal([]byte(value), &added); err != nil {
				t.Fatal(err)
			}
			if (len(tolerations) == 0) != (ops[0].Path == "/spec/template/spec/tolerations") || ops[0].Op != "add" {
				t.Errorf("%s %s", ops[0].Op, ops[0].Path)
			}
			ds.Spec.Template.Spec.Tolerations = append(ds.Spec.Template.Spec.Tolerations, added...)
			if left, _ := readiness.Blockers(&v1alpha1.GPUPool{}, nodePools, []appsv1.DaemonSet{ds}); len(left) > 0 {
				t.Errorf("still blocked: %v", left)
			}
		})
	}
}

func TestFixOfTheOperatorsOwn(t *testing.T) {
	ds := app(daemonSet("plugin", toleratesGPU), "nvidia-device-plugin-daemonset")
	ds.OwnerReferences = []metav1.OwnerReference{{Kind: "ClusterPolicy", Name: "cluster-policy"}}
	blockers, _ := readiness.Blockers(&v1alpha1.GPUPool{}, []*karpv1.NodePool{{}}, []appsv1.DaemonSet{ds})
	want := `DaemonSet gpu-operator/plugin (device plugin) does not tolerate readiness.karpenter-gpu.dev/unverified:NoSchedule; run: ` +
		`kubectl patch clusterpolicies.nvidia.com cluster-policy --type=json -p '[{"op":"add","path":"/spec/daemonsets/tolerations/-","value":{"key":"readiness.karpenter-gpu.dev/unverified","operator":"Exists","effect":"NoSchedule"}}]'`
	if diff := cmp.Diff(want, blockers[0].String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
