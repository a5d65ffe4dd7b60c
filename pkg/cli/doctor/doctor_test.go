package doctor_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	awsapis "github.com/aws/karpenter-provider-aws/pkg/apis"
	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/doctor"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

var now = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

type crd = apiextensionsv1.CustomResourceDefinition

func facts(t *testing.T, text string) *doctor.Facts {
	t.Helper()
	documents, err := manifest.Documents([]string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	f := doctor.FromDocuments(documents)
	f.From = nil
	return f
}

func examine(t *testing.T, f *doctor.Facts) *doctor.Report {
	t.Helper()
	r, err := doctor.Examine(context.Background(), f, doctor.Options{Cloud: catalogprovider.DefaultOptions(), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func good(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../examples/doctor/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// finding is what a test says of one: the reason and object, the command, and a part of
// the message.
type finding struct{ what, message, command string }

// compare wants exactly these findings.
func compare(t *testing.T, r *doctor.Report, want ...finding) {
	t.Helper()
	got := lo.Map(r.Findings, func(f doctor.Finding, _ int) string {
		return string(f.Severity) + " " + string(f.Reason) + " " + f.Object
	})
	wanted := lo.Map(want, func(f finding, _ int) string { return f.what })
	if d := cmp.Diff(wanted, got); d != "" {
		t.Fatalf("%s\n%+v", d, r.Findings)
	}
	for i, w := range want {
		if f := r.Findings[i]; !strings.Contains(f.Message, w.message) || f.Command != w.command {
			t.Errorf("%s:\n message %q\n    want %q\n command %s\n    want %s", w.what, f.Message, w.message, f.Command, w.command)
		}
	}
}

const upgrade = "helm upgrade karpenter charts/karpenter-gpu --namespace karpenter --reset-then-reuse-values --set "

// TestOneFaultInGoodManifests changes one thing in manifests in which nothing is wrong.
func TestOneFaultInGoodManifests(t *testing.T) {
	const policy = "kubectl patch clusterpolicies.nvidia.com cluster-policy --type=merge --patch "
	for name, tc := range map[string]struct {
		old, new string
		want     []finding
	}{
		"nothing": {"", "", nil},
		"a feature gate that is off": {"CapacityBuffer=true", "CapacityBuffer=false", []finding{{"Error FeatureGateOff Deployment karpenter/karpenter",
			"the feature gate CapacityBuffer is off: the entries of spec.warm hold nothing ready (GPUPool shared)", upgrade + "settings.featureGates.capacityBuffer=true"}}},
		"a feature gate that is off in a Deployment without Helm": {"    meta.helm.sh/release-name: karpenter\n    meta.helm.sh/release-namespace: karpenter\nspec:\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: karpenter\n  template:\n    metadata:\n      labels:\n        app.kubernetes.io/name: karpenter\n    spec:\n      containers:\n        - name: controller\n          image: registry.example.com/karpenter-gpu/controller:0.1.0\n          env:\n            - name: KARPENTER_SERVICE\n              value: karpenter\n            - name: FEATURE_GATES\n              value: NodeRepair=true,CapacityBuffer=true",
			"    a: b\nspec:\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: karpenter\n  template:\n    metadata:\n      labels:\n        app.kubernetes.io/name: karpenter\n    spec:\n      containers:\n        - name: controller\n          image: registry.example.com/karpenter-gpu/controller:0.1.0\n          env:\n            - name: FEATURE_GATES\n              value: NodeRepair=false,CapacityBuffer=true",
			[]finding{{"Warning FeatureGateOff Deployment karpenter/karpenter", "the feature gate NodeRepair is off", "kubectl set env deployment/karpenter --namespace karpenter --containers controller FEATURE_GATES=CapacityBuffer=true,NodeRepair=true"}}},
		"feature gates that cannot be read":  {"CapacityBuffer=true", "CapacityBuffer=yes", []finding{{"Error FeatureGatesInvalid Deployment karpenter/karpenter", "FEATURE_GATES cannot be read", ""}}},
		"reserved capacity without its gate": {"  warm:\n    - {name: day, gpus: 2}", "  selection: {capacityTypes: [reserved]}", nil},
		"a static NodePool": {"  name: shared\n  labels:\n    karpenter-gpu.dev/pool: shared\nspec:", "  name: shared\n  labels:\n    karpenter-gpu.dev/pool: shared\nspec:\n  replicas: 2",
			[]finding{{"Error FeatureGateOff Deployment karpenter/karpenter", "spec.replicas of NodePools is ignored (NodePool shared)", upgrade + "settings.featureGates.staticCapacity=true"}}},
		"a layout that no GPU has": {"layouts: [all-1g.10gb, all-balanced]", "layouts: [all-1g.11gb]", []finding{
			{"Error ObjectInvalid GPUPool partitions", `spec.partitioning.mig.layouts[0]: Invalid value: "all-1g.11gb"`, "kubectl edit gpupool partitions"},
			{"Error PartitionNeverOffered Deployment default/server", "No GPUPool offers nvidia.com/mig-3g.40gb; none has MIG partitions", ""}}},
		"a manifest that the API server refuses": {"timeSlicing: {replicas: 4, renameByDefault: true}", "timeSlicing: {replicas: 1}", []finding{
			{"Error ObjectInvalid GPUPool shared", "timeSlicing.replicas must be at least 2", ""},
			{"Error LabelNeverMatches Deployment default/notebooks", "", ""},
			{"Warning GPUPoolMissing NodePool shared", "GPUPool shared, which it names, is not among the manifests", "kubectl label nodepool shared karpenter-gpu.dev/pool=partitions --overwrite"}}},
		"a v1beta1 NodePool": {"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: shared", "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata:\n  name: shared", []finding{
			{"Error ObjectInvalid NodePool shared", `apiVersion: "karpenter.sh/v1beta1" is a version that is not read`, "kubectl gpupool convert -f -"},
			{"Error LabelNeverMatches Deployment default/notebooks", "nearest possible is nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3", ""},
			{"Warning NoNodePools GPUPool shared", "no NodePool has joined it", ""}}},
		"a family without MIG": {"values: [p5]", "values: [g5]", []finding{
			{"Error PartitioningUnsupported NodePool partitions", "(NVIDIA A10G has no MIG)", "kubectl edit gpupool partitions"},
			{"Error PartitionNeverOffered Deployment default/server", "No GPUPool offers nvidia.com/mig-3g.40gb", ""}}},
		"a family without GPUs": {"values: [g6]", "values: [m7i]", []finding{
			{"Error NoInstanceTypes NodePool shared", "it is in GPUPool shared and allows no instance type with NVIDIA GPUs", "kubectl label nodepool shared karpenter-gpu.dev/pool-"},
			{"Error LabelNeverMatches Deployment default/notebooks", "No node of any NodePool can have nvidia.com/gpu.product In [NVIDIA-L4]", ""}}},
		"a family that does not exist": {"values: [g6]", "values: [g66]", []finding{
			{"Error NoInstanceTypes NodePool shared", "no instance type satisfies karpenter.k8s.aws/instance-family In [g66]", `kubectl patch nodepool shared --type=json --patch '[{"op":"replace","path":"/spec/template/spec/requirements/0/values","value":["g6"]}]'`},
			{"Error LabelNeverMatches Deployment default/notebooks", "", ""}}},
		"a budget of none": {"values: [g6]}", "values: [g6]}\n  disruption: {budgets: [{nodes: \"0\", reasons: [Empty, Drifted]}]}", []finding{{"Warning BudgetBlocks NodePool shared",
			"spec.disruption.budgets[0] lets no node go at any time: empty nodes stay, drifted nodes are not replaced", `kubectl patch nodepool shared --type=json --patch '[{"op":"replace","path":"/spec/disruption/budgets/0/nodes","value":"10%"}]'`}}},
		"a budget of none at night": {"values: [g6]}", "values: [g6]}\n  disruption: {budgets: [{nodes: \"0\", schedule: \"0 22 * * *\", duration: 8h}]}", nil},
		"a budget of none in a NodePool without a pool": {"metadata:\n  name: shared\n  labels:\n    karpenter-gpu.dev/pool: shared\nspec:",
			"metadata: {name: plain}\nspec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}, requirements: []}}, disruption: {budgets: [{nodes: \"0\"}]}}\n---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: shared\n  labels:\n    karpenter-gpu.dev/pool: shared\nspec:", nil},
		"zones and ways to buy of an account": {"{key: karpenter.k8s.aws/instance-family, operator: In, values: [g6]}",
			"{key: karpenter.k8s.aws/instance-family, operator: In, values: [g6]}\n        - {key: topology.kubernetes.io/zone, operator: In, values: [eu-central-1b]}\n        - {key: karpenter.sh/capacity-type, operator: In, values: [reserved]}", nil},
		"a strategy that differs": {"strategy: mixed", "strategy: single", []finding{{"Error MIGStrategyDiffers ClusterPolicy cluster-policy",
			"spec.mig.strategy is single and GPUPool partitions has strategy Mixed: its nodes never show nvidia.com/mig-PROFILE", policy + `'{"spec":{"mig":{"strategy":"mixed"}}}'`}}},
		"no mig-manager": {"  migManager:\n    enabled: true", "  migManager:\n    enabled: false", []finding{{"Error OperandDisabled ClusterPolicy cluster-policy", "spec.migManager.enabled is false", policy + `'{"spec":{"migManager":{"enabled":true}}}'`}}},
		"a sharing configuration that nobody reads": {"config: {name: karpenter-gpu-device-plugin, default: default}", "config: {default: default}", []finding{{"Error DevicePluginConfigUnset ClusterPolicy cluster-policy",
			`spec.devicePlugin.config.name is "", so that the device plugin does not find time-slicing-4-renamed, which nodes of GPUPool shared ask for`, policy + `'{"spec":{"devicePlugin":{"config":{"default":"default","name":"karpenter-gpu-device-plugin"}}}}'`}}},
		"a ConfigMap of the user's without the entry": {"  devicePlugin:\n    enabled: true\n    config: {name: karpenter-gpu-device-plugin", "  devicePlugin:\n    enabled: true\n    config: {name: karpenter-gpu-mig-parted",
			[]finding{{"Error DevicePluginConfigMissing ConfigMap gpu-operator/karpenter-gpu-mig-parted", "it has no entry time-slicing-4-renamed",
				`kubectl patch configmap karpenter-gpu-mig-parted --namespace gpu-operator --type=merge --patch '{"data":{"time-slicing-4-renamed":"version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n    failRequestsGreaterThanOne: false\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n"}}'`}}},
		"layouts of the user's without ours": {"    config: {name: karpenter-gpu-mig-parted, default: all-disabled}", "    config: {name: karpenter-gpu-device-plugin, default: all-disabled}", []finding{{"Error MIGLayoutsMissing ClusterPolicy cluster-policy",
			`spec.migManager.config.name is "karpenter-gpu-device-plugin", where mig-manager does not find all-1g.10gb`, policy + `'{"spec":{"migManager":{"config":{"default":"all-disabled","name":"karpenter-gpu-mig-parted"}}}}'`}}},
		"layouts that the operator generates": {"    config: {name: karpenter-gpu-mig-parted, default: all-disabled}", "    config: {name: default-mig-parted-config}", nil},
		"the operator's own tolerations": {"\n      - {key: readiness.karpenter-gpu.dev/unverified, operator: Exists, effect: NoSchedule}", "", []finding{{"Warning TaintNotTolerated ClusterPolicy cluster-policy",
			"partitions, shared does not gate, so that nodes take work before their GPUs are verified",
			`kubectl patch clusterpolicies.nvidia.com cluster-policy --type=json --patch '[{"op":"add","path":"/spec/daemonsets/tolerations/-","value":{"effect":"NoSchedule","key":"readiness.karpenter-gpu.dev/unverified","operator":"Exists"}}]'`}}},
		"an agent that does not tolerate the taint": {"      tolerations:\n        - operator: Exists\n", "      tolerations:\n        - {key: nvidia.com/gpu, operator: Exists}\n", []finding{{"Warning TaintNotTolerated DaemonSet karpenter/gpu-agent",
			"nodes need it (GPU agent)", `kubectl -n karpenter patch daemonset gpu-agent --type=json -p '[{"op":"add","path":"/spec/template/spec/tolerations/-","value":{"key":"readiness.karpenter-gpu.dev/unverified","operator":"Exists","effect":"NoSchedule"}}]'`}}},
		"a product with a typing error in an affinity": {"      nodeSelector:\n        nvidia.com/gpu.product: NVIDIA-L4\n",
			"      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}, {key: nvidia.com/gpu.product, operator: In, values: [L4]}]}]}}}\n",
			[]finding{{"Error LabelNeverMatches Deployment default/notebooks", "nearest possible is nvidia.com/gpu.product=NVIDIA-L4",
				`kubectl patch deployment notebooks --namespace default --type=json --patch '[{"op":"replace","path":"/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/1/values","value":["NVIDIA-L4"]}]'`}}},
		"a workload that wants no pod": {"  name: notebooks\n  namespace: default\nspec:\n  selector:\n    matchLabels: {app: notebooks}\n  template:\n    metadata:\n      labels: {app: notebooks}\n    spec:\n      nodeSelector:\n        nvidia.com/gpu.product: NVIDIA-L4",
			"  name: notebooks\n  namespace: default\nspec:\n  replicas: 0\n  selector:\n    matchLabels: {app: notebooks}\n  template:\n    metadata:\n      labels: {app: notebooks}\n    spec:\n      nodeSelector:\n        nvidia.com/gpu.product: L4", nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := good(t)
			if strings.Count(text, tc.old) != 1 && tc.old != "" {
				t.Fatalf("%q is %d times in the manifests", tc.old, strings.Count(text, tc.old))
			}
			compare(t, examine(t, facts(t, strings.Replace(text, tc.old, tc.new, 1))), tc.want...)
		})
	}
}

// whole is a cluster in which nothing is wrong.
func whole(t *testing.T) *doctor.Facts {
	t.Helper()
	f := facts(t, good(t))
	nodeClass := lo.Filter(awsapis.CRDs, func(c *crd, _ int) bool { return c.Name == "ec2nodeclasses.karpenter.k8s.aws" })
	f.Cluster, f.CRDs = true, lo.Map(slices.Concat(karpapis.CRDs, nodeClass, apis.CRDs), func(c *crd, _ int) *crd {
		c = c.DeepCopy()
		c.Annotations = map[string]string{"meta.helm.sh/release-name": "karpenter-crd"}
		return c
	})
	f.Deployments[0].Status.AvailableReplicas = 1
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{karpv1.NodePoolLabelKey: "shared", corev1.LabelInstanceTypeStable: "g6.xlarge"}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeConditionGPUReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(now.Add(-time.Minute))}}
	f.Nodes = []*corev1.Node{node}
	return f
}

// TestOneFaultInAGoodCluster changes what only a cluster can tell.
func TestOneFaultInAGoodCluster(t *testing.T) {
	const crds = "helm upgrade --install karpenter-crd charts/karpenter-gpu-crd --namespace karpenter"
	const show = "kubectl get pods --all-namespaces --output wide --field-selector spec.nodeName=node-1"
	drop := func(name string) func(f *doctor.Facts) {
		return func(f *doctor.Facts) { f.CRDs = slices.DeleteFunc(f.CRDs, func(c *crd) bool { return c.Name == name }) }
	}
	for name, tc := range map[string]struct {
		change func(f *doctor.Facts)
		want   []finding
	}{
		"nothing": {func(*doctor.Facts) {}, nil},
		"GPUPool is not defined": {drop("gpupools.karpenter-gpu.dev"), []finding{{"Error CRDMissing CustomResourceDefinition gpupools.karpenter-gpu.dev",
			"it is not installed: there can be no GPUPool, and the controller behaves as plain Karpenter", crds}}},
		"NodeClaim is not defined":    {drop("nodeclaims.karpenter.sh"), []finding{{"Error CRDMissing CustomResourceDefinition nodeclaims.karpenter.sh", "Karpenter cannot start", crds}}},
		"EC2NodeClass is not defined": {drop("ec2nodeclasses.karpenter.k8s.aws"), []finding{{"Error CRDMissing CustomResourceDefinition ec2nodeclasses.karpenter.k8s.aws", "Karpenter cannot start", crds}}},
		"definitions that Helm did not install": {func(f *doctor.Facts) {
			drop("nodeclaims.karpenter.sh")(f)
			f.CRDs[0].Annotations = nil
		}, []finding{{"Error CRDMissing CustomResourceDefinition nodeclaims.karpenter.sh", "Karpenter cannot start", crds + " --take-ownership"}}},
		"definitions of another release": {func(f *doctor.Facts) {
			drop("nodeclaims.karpenter.sh")(f)
			f.CRDs[0].Annotations["meta.helm.sh/release-name"] = "karpenter"
		}, []finding{{"Error CRDMissing CustomResourceDefinition nodeclaims.karpenter.sh", "Karpenter cannot start", crds + " --take-ownership"}}},
		"a definition that is none of ours": {func(f *doctor.Facts) {
			drop("nodeclaims.karpenter.sh")(f)
			f.CRDs = append(f.CRDs, &crd{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"}})
		}, []finding{{"Error CRDMissing CustomResourceDefinition nodeclaims.karpenter.sh", "Karpenter cannot start", crds}}},
		"buffers are not defined":              {drop("capacitybuffers.autoscaling.x-k8s.io"), []finding{{"Error CRDMissing CustomResourceDefinition capacitybuffers.autoscaling.x-k8s.io", "nothing is kept warm", crds}}},
		"overlays, which nobody uses, are not": {drop("nodeoverlays.karpenter.sh"), nil},
		"a definition is older": {func(f *doctor.Facts) {
			spec := f.CRDs[len(f.CRDs)-1].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			delete(spec.Properties, "reclaim")
			delete(spec.Properties["warm"].Items.Schema.Properties, "images")
		}, []finding{{"Warning CRDOutdated CustomResourceDefinition gpupools.karpenter-gpu.dev", "its v1alpha1 is older than the controller: the API server drops spec.reclaim, spec.warm[].images", crds}}},
		"a version is not served": {func(f *doctor.Facts) { f.CRDs[0].Spec.Versions[0].Served = false }, []finding{{"Error CRDOutdated CustomResourceDefinition nodepools.karpenter.sh", "it does not serve v1", crds}}},
		"objects are stored in an old version": {func(f *doctor.Facts) { f.CRDs[0].Status.StoredVersions = []string{"v1beta1", "v1"} }, []finding{{"Warning CRDStoredVersion CustomResourceDefinition nodepools.karpenter.sh", "objects may be stored as v1beta1",
			`kubectl patch customresourcedefinition nodepools.karpenter.sh --subresource=status --type=merge --patch '{"status":{"storedVersions":["v1"]}}'`}}},
		"there is no controller": {func(f *doctor.Facts) { f.Deployments = nil }, []finding{{"Error ControllerMissing Deployment karpenter/karpenter", "no Deployment of the cluster runs Karpenter",
			"helm install karpenter charts/karpenter-gpu --namespace karpenter --set settings.clusterName=CLUSTER"}}},
		"the controller is stock": {func(f *doctor.Facts) {
			f.Deployments[0].Spec.Template.Spec.Containers[0].Image = "public.ecr.aws/karpenter/controller:1.15.0@sha256:0"
		},
			[]finding{{"Error ControllerStock Deployment karpenter/karpenter", "it runs stock Karpenter (public.ecr.aws/karpenter/controller:1.15.0@sha256:0)", strings.TrimSuffix(upgrade, " --set ")}}},
		"the controller does not run": {func(f *doctor.Facts) { f.Deployments[0].Status.AvailableReplicas = 0 }, []finding{{"Error ControllerNotAvailable Deployment karpenter/karpenter",
			"none of its 1 replicas is available", "kubectl describe pods --namespace karpenter --selector app.kubernetes.io/name=karpenter"}}},
		"a flag holds the feature gates": {func(f *doctor.Facts) {
			c := &f.Deployments[0].Spec.Template.Spec.Containers[0]
			c.Env, c.Args = c.Env[:1], []string{"--feature-gates", "CapacityBuffer=true,NodeRepair=true"}
		}, nil},
		"feature gates that are given twice": {func(f *doctor.Facts) {
			c := &f.Deployments[0].Spec.Template.Spec.Containers[0]
			c.Env = append(c.Env, corev1.EnvVar{Name: "FEATURE_GATES", Value: "NodeRepair=true,CapacityBuffer=false"})
		}, []finding{{"Error FeatureGateOff Deployment karpenter/karpenter", "the feature gate CapacityBuffer is off", upgrade + "settings.featureGates.capacityBuffer=true"}}},
		"a flag that is given twice": {func(f *doctor.Facts) {
			f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{"--feature-gates=NodeRepair=false", "--feature-gates", "CapacityBuffer=true,NodeRepair=true"}
		}, nil},
		"a NodeClass is missing": {func(f *doctor.Facts) { f.NodeClasses[0].SetName("gpus") }, []finding{
			{"Error NodeClassMissing NodePool partitions", "EC2NodeClass gpu, which it refers to, does not exist", `kubectl patch nodepool partitions --type=merge --patch '{"spec":{"template":{"spec":{"nodeClassRef":{"name":"gpus"}}}}}'`},
			{"Error NodeClassMissing NodePool shared", "", `kubectl patch nodepool shared --type=merge --patch '{"spec":{"template":{"spec":{"nodeClassRef":{"name":"gpus"}}}}}'`}}},
		"a NodeClass is not ready": {func(f *doctor.Facts) {
			f.NodeClasses[0].Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "message": "no subnet"}}}
		}, []finding{{"Error NodeClassNotReady EC2NodeClass gpu", "its NodePools launch nothing: no subnet", "kubectl describe ec2nodeclass gpu"}}},
		"no agent anywhere": {func(f *doctor.Facts) { f.DaemonSets, f.Nodes = nil, nil }, []finding{
			{"Warning AgentMissing GPUPool partitions", "the pool does not gate, and broken GPUs are not noticed", "helm upgrade --install gpu-agent charts/gpu-agent --namespace karpenter"},
			{"Warning AgentMissing GPUPool shared", "", "helm upgrade --install gpu-agent charts/gpu-agent --namespace karpenter"}}},
		"no agent where nothing is gated": {func(f *doctor.Facts) {
			f.DaemonSets, f.Nodes = nil, nil
			for _, p := range f.GPUPools {
				p.Spec.Readiness.Gate = v1alpha1.GateNone
			}
		}, nil},
		"an agent of the image reports": {func(f *doctor.Facts) { f.DaemonSets = nil }, nil},
		"no agent on a node":            {func(f *doctor.Facts) { f.Nodes[0].Status.Conditions = nil }, []finding{{"Warning AgentNotOnNode GPUPool shared", "no GPU agent runs on node-1", show}}},
		"no agent on a node that is booting": {func(f *doctor.Facts) {
			f.Nodes[0].Status.Conditions, f.Nodes[0].CreationTimestamp = nil, metav1.NewTime(now.Add(-f.GPUPools[0].Spec.Readiness.GetDeadline()))
		}, nil},
		"no agent on a node whose pool waits no longer": {func(f *doctor.Facts) {
			for _, p := range f.GPUPools {
				p.Spec.Readiness.Deadline = &metav1.Duration{Duration: 2 * time.Minute}
			}
			f.Nodes[0].Status.Conditions, f.Nodes[0].CreationTimestamp = nil, metav1.NewTime(now.Add(-3*time.Minute))
		}, []finding{{"Warning AgentNotOnNode GPUPool shared", "no GPU agent runs on node-1", show}}},
		"an agent that has just started": {func(f *doctor.Facts) { f.Nodes[0].Status.Conditions, f.Pods = nil, []*corev1.Pod{agentPod("node-1")} }, nil},
		"a node without GPUs": {func(f *doctor.Facts) {
			f.Nodes[0].Status.Conditions, f.Nodes[0].Labels[corev1.LabelInstanceTypeStable] = nil, "m7i.large"
		}, nil},
		"an agent that is silent": {func(f *doctor.Facts) { silent(f, 16*time.Minute) },
			[]finding{{"Warning AgentSilent GPUPool shared", "the GPU agent has not reported for more than 15m0s from node-1", show}}},
		"an agent that is told to report seldom": {func(f *doctor.Facts) {
			silent(f, 16*time.Minute)
			f.DaemonSets[0].Spec.Template.Spec.Containers[0].Args = []string{"--interval=1m", "--heartbeat=10m"}
		}, nil},
		"the operator's namespace is missing": {func(f *doctor.Facts) { f.Namespaces, f.ConfigMaps = nil, nil }, []finding{
			{"Error OperatorNamespaceDiffers Deployment karpenter/karpenter", "into the namespace gpu-operator, which does not exist: nodes of the GPUPools partitions, shared do not find it", upgrade + "gpu.operator.namespace=NAMESPACE"}}},
		"the operator is elsewhere": {func(f *doctor.Facts) { f.DaemonSets = append(f.DaemonSets, operand("nvidia")) }, []finding{
			{"Error OperatorNamespaceDiffers Deployment karpenter/karpenter", "into the namespace gpu-operator, and the GPU Operator runs in nvidia", upgrade + "gpu.operator.namespace=nvidia"}}},
		"nothing is published": {func(f *doctor.Facts) { f.ConfigMaps = nil }, []finding{
			{"Error MIGLayoutsMissing ConfigMap gpu-operator/karpenter-gpu-mig-parted", "the controller has not written all-1g.10gb, all-balanced of GPUPool partitions into it", upgrade + "gpu.operator.writeConfigMaps=true"},
			{"Error DevicePluginConfigMissing ConfigMap gpu-operator/karpenter-gpu-device-plugin", "the controller has not written time-slicing-4-renamed of GPUPool shared into it", upgrade + "gpu.operator.writeConfigMaps=true"}}},
		"a device plugin without the operator": {func(f *doctor.Facts) {
			f.ClusterPolicies, f.ConfigMaps, f.DaemonSets = nil, nil, append(f.DaemonSets, plugin())
		}, []finding{
			{"Error MIGStrategyDiffers DaemonSet kube-system/nvidia-device-plugin", "MIG_STRATEGY is single and GPUPool partitions has strategy Mixed", "kubectl set env daemonset/nvidia-device-plugin --namespace kube-system --containers plugin MIG_STRATEGY=mixed"},
			{"Error DevicePluginConfigUnset DaemonSet kube-system/nvidia-device-plugin", "it mounts no ConfigMap with time-slicing-4-renamed", ""}}},
		"a device plugin that mounts ours": {func(f *doctor.Facts) {
			ds := plugin()
			ds.Spec.Template.Spec.Containers[0].Env[0].Value = "mixed"
			ds.Spec.Template.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "karpenter-gpu-device-plugin"}}}}}
			f.ClusterPolicies, f.DaemonSets = nil, append(f.DaemonSets, ds)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := whole(t)
			tc.change(f)
			compare(t, examine(t, f), tc.want...)
		})
	}
}

// TestWhatCannotBeReadIsNotMissing: whoever may read little is told little, and told so.
func TestWhatCannotBeReadIsNotMissing(t *testing.T) {
	kinds := map[string]func(f *doctor.Facts){
		"CustomResourceDefinition": func(f *doctor.Facts) { f.CRDs = nil },
		"Deployment":               func(f *doctor.Facts) { f.Deployments = nil },
		"EC2NodeClass":             func(f *doctor.Facts) { f.NodeClasses = nil },
		"DaemonSet":                func(f *doctor.Facts) { f.DaemonSets = nil },
		"Node":                     func(f *doctor.Facts) { f.Nodes = nil },
		"ConfigMap":                func(f *doctor.Facts) { f.ConfigMaps = nil },
		"Namespace":                func(f *doctor.Facts) { f.Namespaces = nil },
		"ClusterPolicy":            func(f *doctor.Facts) { f.ClusterPolicies = nil },
	}
	for kind, remove := range kinds {
		f := whole(t)
		remove(f)
		f.Unread = map[string]string{kind: "forbidden"}
		r := examine(t, f)
		if want := kind + " could not be read, so that what follows from them is not examined: forbidden"; len(r.Findings) > 0 || !slices.Equal(r.Notes, []string{want}) {
			t.Errorf("%s: %+v, notes %q", kind, r.Findings, r.Notes)
		}
	}
}

// TestOtherClouds: types of other NodeClasses are not known, and so nothing is said of what
// their nodes may have.
func TestOtherClouds(t *testing.T) {
	text := strings.Replace(good(t), "kind: EC2NodeClass, name: gpu}\n      requirements:\n        - {key: karpenter.k8s.aws/instance-family, operator: In, values: [g6]}",
		"kind: AKSNodeClass, name: gpu}\n      requirements: []", 1)
	r := examine(t, facts(t, strings.Replace(text, "NVIDIA-L4", "NVIDIA-T4", 1)))
	compare(t, r)
	if want := []string{"NodePool shared: its instance types are not examined, because its nodeClassRef names no EC2NodeClass"}; !slices.Equal(r.Notes, want) {
		t.Errorf("notes %q", r.Notes)
	}
	r = examine(t, facts(t, strings.Replace(good(t), "    - alias: al2023@latest", "    - alias: windows2022@latest", 1)))
	compare(t, r)
	if len(r.Notes) != 2 || !strings.Contains(r.Notes[0], `because EC2NodeClass gpu is not understood offline: spec.amiSelectorTerms[0].alias: "windows2022@latest" is not planned for`) {
		t.Errorf("notes %q", r.Notes)
	}
}

func silent(f *doctor.Facts, since time.Duration) {
	f.Nodes[0].Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(now.Add(-since))
}

func agentPod(node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "karpenter", Name: "gpu-agent-x", OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "gpu-agent", Controller: lo.ToPtr(true)}}},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
}

// plugin is a device plugin that tolerates all and has the strategy single.
func plugin() *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "nvidia-device-plugin", Labels: map[string]string{"app": "nvidia-device-plugin"}}}
	ds.Spec.Template.Spec = corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: "plugin", Image: "nvcr.io/nvidia/k8s-device-plugin", Env: []corev1.EnvVar{{Name: "MIG_STRATEGY", Value: "single"}}}}}
	return ds
}

// operand is a device plugin that the GPU Operator has made.
func operand(namespace string) *appsv1.DaemonSet {
	ds := plugin()
	ds.Namespace, ds.OwnerReferences = namespace, []metav1.OwnerReference{{Kind: "ClusterPolicy", Name: "cluster-policy"}}
	return ds
}

// TestReportsAreDeterministic: equal facts in another order make an equal report.
func TestReportsAreDeterministic(t *testing.T) {
	documents, err := manifest.Documents([]string{"../../../examples/doctor/broken.yaml"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	clone := lo.Map(documents, func(d manifest.Document, _ int) manifest.Document {
		return manifest.Document{Object: &unstructured.Unstructured{Object: d.Object.DeepCopy().Object}, From: d.From}
	})
	slices.Reverse(clone)
	if d := cmp.Diff(examine(t, doctor.FromDocuments(documents)), examine(t, doctor.FromDocuments(clone))); d != "" {
		t.Error(d)
	}
}
