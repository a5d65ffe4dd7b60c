package converter_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/converter"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

func convert(t *testing.T, text string) (*converter.Result, error) {
	t.Helper()
	documents, err := manifest.Documents([]string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return converter.Convert(context.Background(), documents, catalogprovider.DefaultOptions())
}

// oldNodePool is a NodePool of v1beta1; MORE goes into its spec, INNER into
// the spec of its template.
const oldNodePool = `
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: NAME, uid: 1b4e28ba, resourceVersion: "7", annotations: {karpenter.sh/nodepool-hash: "1", team: vision}}
spec:
  template:
    spec:
      nodeClassRef: {name: gpu}
      requirements: []
INNER
MORE
status: {resources: {cpu: 4}}
---
`

func old(name, inner, more string) string {
	return strings.NewReplacer("NAME", name, "INNER", inner, "MORE", more).Replace(oldNodePool)
}

func lines(losses []converter.Loss) []string {
	var out []string
	for _, l := range losses {
		out = append(out, l.String())
	}
	return out
}

func at(t *testing.T, o converter.Object, path string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(o.Object, strings.Split(path, ".")...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestNodePoolOfV1beta1(t *testing.T) {
	for name, tc := range map[string]struct {
		inner, more string
		want        map[string]any
		losses      []string
	}{
		"what is not said keeps its default": {
			want: map[string]any{
				"apiVersion": "karpenter.sh/v1", "spec.disruption.consolidationPolicy": "WhenEmptyOrUnderutilized", "spec.disruption.consolidateAfter": "0s",
				"spec.template.spec.expireAfter": "720h", "spec.template.spec.nodeClassRef.group": "karpenter.k8s.aws", "spec.template.spec.nodeClassRef.kind": "EC2NodeClass",
				"metadata.uid": nil, "metadata.resourceVersion": nil, "status": nil, "metadata.annotations": map[string]any{"team": "vision"},
			},
			losses: []string{"NodePool gpu: spec.disruption.expireAfter: carried over to spec.template.spec.expireAfter (720h) with another meaning: since v1 budgets do not hold expiry back, and no replacement is launched first; write Never if nodes must not go so"},
		},
		"nodes that never expire lose nothing": {
			more: "  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 5m, expireAfter: Never}\n  weight: 10",
			want: map[string]any{"spec.disruption.consolidationPolicy": "WhenEmpty", "spec.disruption.consolidateAfter": "5m", "spec.template.spec.expireAfter": "Never", "spec.weight": int64(10)},
		},
		"reasons of budgets are titled": {
			more: "  disruption: {expireAfter: Never, budgets: [{nodes: \"0\", reasons: [underutilized, Empty]}]}",
			want: map[string]any{"spec.disruption.budgets": []any{map[string]any{"nodes": "0", "reasons": []any{"Underutilized", "Empty"}}}},
		},
		"another provider's class": {
			inner: "      taints: [{key: a, effect: NoSchedule}]",
			more:  "  disruption: {expireAfter: Never}",
			want:  map[string]any{"spec.template.spec.taints": []any{map[string]any{"key": "a", "effect": "NoSchedule"}}},
		},
		"what v1 does not know": {
			inner: "      resources: {requests: {cpu: 1}}",
			more:  "  disruption: {expireAfter: Never, consolidateAfter: 1m, utilizationThreshold: 50}\n  surprise: {a: 1, b: [2]}",
			losses: []string{
				"NodePool gpu: spec.template.spec.resources: has no meaning in a NodePool, and had none",
				"NodePool gpu: spec.disruption.consolidateAfter: v1beta1 allows it with WhenEmpty only; 0s is written, which is what WhenUnderutilized did",
				"NodePool gpu: spec.disruption.utilizationThreshold: has no counterpart",
				"NodePool gpu: spec.surprise.a: has no counterpart",
				"NodePool gpu: spec.surprise.b: has no counterpart",
			},
		},
		"a kubelet without its EC2NodeClass": {
			inner:  "      kubelet: {maxPods: 60}",
			more:   "  disruption: {expireAfter: Never}",
			want:   map[string]any{"spec.template.spec.kubelet": nil},
			losses: []string{`NodePool gpu: spec.template.spec.kubelet: is in the EC2NodeClass since v1, which is not among the input; run: kubectl patch ec2nodeclass gpu --type=merge --patch '{"spec":{"kubelet":{"maxPods":60}}}'`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := convert(t, old("gpu", tc.inner, tc.more))
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range tc.want {
				if d := cmp.Diff(want, at(t, r.Objects[0], path)); d != "" {
					t.Errorf("%s: %s", path, d)
				}
			}
			if d := cmp.Diff(tc.losses, lines(r.Losses)); d != "" {
				t.Error(d)
			}
		})
	}
}

const oldClass = "apiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: gpu}\nspec: {amiFamily: Bottlerocket, role: r}\n"

func TestEC2NodeClassTakesTheKubelet(t *testing.T) {
	never := "  disruption: {expireAfter: Never}"
	for name, tc := range map[string]struct {
		pools   string
		kubelet any
		losses  []string
	}{
		"where all agree": {old("a", "      kubelet: {maxPods: 60}", never) + old("b", "      kubelet: {maxPods: 60}", never), map[string]any{"maxPods": int64(60)}, nil},
		"where none asks": {old("a", "", never), nil, nil},
		"and no one's where they differ": {old("a", "      kubelet: {maxPods: 60}", never) + old("b", "", never), nil, []string{
			`NodePool a: spec.template.spec.kubelet: is in the EC2NodeClass since v1, and NodePools that refer to gpu differ in it; give each an EC2NodeClass of its own, this one with {"maxPods":60}`}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := convert(t, tc.pools+oldClass)
			if err != nil {
				t.Fatal(err)
			}
			class := r.Objects[len(r.Objects)-1]
			for path, want := range map[string]any{"spec.kubelet": tc.kubelet, "spec.amiFamily": nil, "spec.role": "r", "spec.metadataOptions.httpPutResponseHopLimit": int64(2),
				"spec.amiSelectorTerms": []any{map[string]any{"alias": "bottlerocket@latest"}}, "apiVersion": "karpenter.k8s.aws/v1"} {
				if d := cmp.Diff(want, at(t, class, path)); d != "" {
					t.Errorf("%s: %s", path, d)
				}
			}
			if d := cmp.Diff(tc.losses, lines(r.Losses)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestFamiliesWithoutAlias(t *testing.T) {
	for text, want := range map[string]string{
		"{amiFamily: Custom}": `EC2NodeClass gpu: spec.amiFamily: "Custom" has no alias in v1; write spec.amiSelectorTerms, which is required`,
		"{amiFamily: Ubuntu, amiSelectorTerms: [{id: ami-1}]}": "EC2NodeClass gpu: spec.amiFamily: Ubuntu is no family since v1; write AL2 with the user data of your image, or Custom",
		"{amiFamily: AL2, amiSelectorTerms: [{id: ami-1}]}":    "",
	} {
		r, err := convert(t, "apiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: gpu}\nspec: "+text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(lines(r.Losses), "\n"); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func tensorFusion(spec string) string {
	return "apiVersion: tensor-fusion.ai/v1\nkind: GPUPool\nmetadata: {name: tf}\nspec:\n" + spec
}

func TestTensorFusion(t *testing.T) {
	const manager = "  nodeManagerConfig:\n    provisioningMode: Karpenter\n    nodeProvisioner: "
	const class = "karpenterNodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}"
	const l40s = "gpuRequirements: [{key: tensor-fusion.ai/gpu-instance-family, values: [g6e]}]"
	for name, tc := range map[string]struct {
		spec      string
		pool      map[string]any
		nodePools int
		losses    []string
	}{
		"nodes that others launch": {
			spec: "  nodeManagerConfig: {provisioningMode: AutoSelect, nodeSelector: {a: b}}\n  capacityConfig: {maxResources: {vram: 1Ti}}\n  componentConfig: {worker: {image: w}}", pool: map[string]any{},
			losses: []string{
				"GPUPool tf: spec.nodeManagerConfig.provisioningMode: AutoSelect takes nodes that others launch; let their NodePool join: kubectl label nodepool NODEPOOL karpenter-gpu.dev/pool=tf",
				"GPUPool tf: spec.capacityConfig.maxResources: how much it is in GPUs depends on the nodes; set spec.limits.gpus",
				"GPUPool tf: spec.componentConfig: TensorFusion's components stay its own",
				"GPUPool tf: spec.nodeManagerConfig.nodeSelector: nodes join by the label of their NodePool",
			},
		},
		"warm memory is rounded up and a limit down": {
			spec: "  capacityConfig: {maxResources: {vram: 100Gi}, warmResources: {vram: 50Gi}}\n" + manager + "{" + class + ", " + l40s + "}", nodePools: 1,
			pool: map[string]any{"limits": map[string]any{"gpus": int64(2)}, "warm": []any{map[string]any{"name": "tensor-fusion", "gpus": int64(2)}}},
			losses: []string{
				"GPUPool tf: spec.capacityConfig.maxResources.vram: carried over as 2 GPUs (NVIDIA L40S, 46068 MiB each), which are counted whole",
				"GPUPool tf: spec.capacityConfig.warmResources.vram: carried over as 2 GPUs (NVIDIA L40S, 46068 MiB each), which are counted whole",
			},
		},
		"memory of GPUs of many models": {
			spec: "  capacityConfig: {maxResources: {vram: 100Gi}}\n" + manager + "{" + class + ", gpuRequirements: [{key: tensor-fusion.ai/gpu-instance-family, values: [g6e, p5]}]}", nodePools: 1, pool: map[string]any{},
			losses: []string{"GPUPool tf: spec.capacityConfig.maxResources.vram: how many GPUs 100Gi is cannot be told: its requirements leave 2 GPU models; set it in GPUs yourself"},
		},
		"a budget that alerts": {
			spec: manager + "{" + class + ", budget: {budgetPerDay: \"240\", budgetPerMonth: \"99999\", budgetPerQuarter: \"99999\"}}", nodePools: 1, pool: map[string]any{},
			losses: []string{`GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.budget: it only alerts; to hold launches to it, set spec.limits.pricePerHour: "10.00"`},
		},
		"a budget by TensorFusion's defaults": {
			spec: manager + "{" + class + ", budget: {budgetExceedStrategy: AlertAndTerminateVM}}", nodePools: 1, pool: map[string]any{"limits": map[string]any{"pricePerHour": "1.36"}},
			losses: []string{`GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.budget: carried over as spec.limits.pricePerHour: "1.36", which stops launches and ends no node`},
		},
		"no NodeClass, a forbidden label, another vendor": {
			spec: manager + "{nodeClass: gnc, gpuNodeLabels: {kubernetes.io/hostname: x, team: a}, gpuRequirements: [{key: tensor-fusion.ai/gpu-vendor, operator: In, values: [AMD]}], cpuTaints: [{key: a}]}", nodePools: 1, pool: map[string]any{},
			losses: []string{
				"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.gpuNodeLabels[kubernetes.io/hostname]: Karpenter allows no NodePool to set it",
				"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.karpenterNodeClassRef: is not given, so that EC2NodeClass default is referred to; create it, or name another",
				"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.nodeClass: a GPUNodeClass is no NodeClass of Karpenter; put what it says into the EC2NodeClass",
				"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.gpuRequirements[0]: only NVIDIA's GPUs are handled, and In [AMD] is asked for",
				"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.cpuTaints: nodes without GPUs are for a NodePool of their own",
			},
		},
		"a vendor that is excluded, and any vendor": {
			spec: manager + "{" + class + ", gpuRequirements: [{key: tensor-fusion.ai/gpu-vendor, operator: NotIn, values: [nvidia]}, {key: tensor-fusion.ai/gpu-vendor, operator: Exists}, {key: tensor-fusion.ai/gpu-vendor, values: [NVIDIA]}]}", nodePools: 1, pool: map[string]any{},
			losses: []string{
				"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.gpuRequirements[0]: only NVIDIA's GPUs are handled, and NotIn [nvidia] is asked for",
				"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.gpuRequirements[1]: only NVIDIA's GPUs are handled, and Exists is asked for",
			},
		},
		"fields of amounts and budgets that nobody knows": {
			spec: "  capacityConfig: {maxResources: {vram: 100Gi, disk: 1Ti, bandwidth: 9}, warmResources: {vram: 50Gi, slots: {a: 1}}}\n" +
				manager + "{" + class + ", " + l40s + ", budget: {budgetExceedStrategy: AlertAndTerminateVM, currency: EUR, budgetPerYear: 1}}", nodePools: 1,
			pool: map[string]any{"limits": map[string]any{"gpus": int64(2), "pricePerHour": "1.36"}, "warm": []any{map[string]any{"name": "tensor-fusion", "gpus": int64(2)}}},
			losses: []string{
				"GPUPool tf: spec.capacityConfig.maxResources.bandwidth: has no counterpart",
				"GPUPool tf: spec.capacityConfig.maxResources.disk: has no counterpart",
				"GPUPool tf: spec.capacityConfig.maxResources.vram: carried over as 2 GPUs (NVIDIA L40S, 46068 MiB each), which are counted whole",
				"GPUPool tf: spec.capacityConfig.warmResources.slots.a: has no counterpart",
				"GPUPool tf: spec.capacityConfig.warmResources.vram: carried over as 2 GPUs (NVIDIA L40S, 46068 MiB each), which are counted whole",
				"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.budget.budgetPerYear: has no counterpart",
				"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.budget.currency: has no counterpart",
				`GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.budget: carried over as spec.limits.pricePerHour: "1.36", which stops launches and ends no node`,
			},
		},
		"a budget beyond all prices": {
			spec: manager + "{" + class + ", budget: {budgetExceedStrategy: AlertAndTerminateVM, budgetPerDay: \"1e15\", budgetPerMonth: \"1e15\", budgetPerQuarter: \"1e15\"}}", nodePools: 1, pool: map[string]any{},
			losses: []string{"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.budget: is more than $999999999 an hour, the most that spec.limits.pricePerHour can say; no limit is set"},
		},
		"budgets without end": {
			spec: manager + "{" + class + ", budget: {budgetExceedStrategy: AlertAndTerminateVM, budgetPerDay: inf, budgetPerMonth: inf, budgetPerQuarter: inf}}", nodePools: 1, pool: map[string]any{},
			losses: []string{
				`GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.budget.budgetPerDay: "inf" is no amount of dollars`,
				`GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.budget.budgetPerMonth: "inf" is no amount of dollars`,
				`GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.budget.budgetPerQuarter: "inf" is no amount of dollars`,
			},
		},
		"NVIDIA at another provider": {
			spec: manager + "{karpenterNodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: gpu}, gpuRequirements: [{key: tensor-fusion.ai/gpu-vendor, values: [nvidia]}]}", nodePools: 1, pool: map[string]any{},
			losses: []string{"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.gpuRequirements[0]: tensor-fusion.ai/gpu-vendor has another name at each provider; write that of yours"},
		},
		"another provider": {
			spec: "  capacityConfig: {warmResources: {vram: 1Gi}}\n" + manager + "{karpenterNodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: gpu}, " + l40s + "}", nodePools: 1, pool: map[string]any{},
			losses: []string{
				"GPUPool tf: spec.nodeManagerConfig.nodeProvisioner.gpuRequirements[0]: tensor-fusion.ai/gpu-instance-family has another name at each provider; write that of yours",
				"GPUPool tf: spec.capacityConfig.warmResources.vram: how many GPUs 1Gi is cannot be told: instance types of karpenter.azure.com are not known",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := convert(t, tensorFusion(tc.spec))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.pool, at(t, r.Objects[0], "spec")); d != "" {
				t.Error(d)
			}
			if len(r.Objects) != 1+tc.nodePools {
				t.Errorf("%d objects", len(r.Objects))
			}
			if d := cmp.Diff(tc.losses, lines(r.Losses)); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestMetadataOfAClusterIsTold: its pools are several objects, and its labels are nobody's.
func TestMetadataOfAClusterIsTold(t *testing.T) {
	r, err := convert(t, "apiVersion: tensor-fusion.ai/v1\nkind: TensorFusionCluster\nmetadata: {name: c, labels: {team: vision, cost: \"7\"}, annotations: {kubectl.kubernetes.io/last-applied-configuration: x, owner: me}}\nspec: {}\n")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{
		"TensorFusionCluster c: metadata.labels: each pool becomes an object of its own; put cost, team on those that need it",
		"TensorFusionCluster c: metadata.annotations: each pool becomes an object of its own; put owner on those that need it",
	}, lines(r.Losses)); d != "" {
		t.Error(d)
	}
}

// TestExampleConvertsTwice: what was converted passes through unchanged.
func TestExampleConvertsTwice(t *testing.T) {
	for _, file := range []string{"v1beta1.yaml", "tensor-fusion.yaml"} {
		documents, err := manifest.Documents([]string{"../../../examples/convert/" + file}, nil)
		if err != nil {
			t.Fatal(err)
		}
		first, err := converter.Convert(context.Background(), documents, catalogprovider.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, o := range first.Objects {
			y, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, string(y))
		}
		second, err := convert(t, strings.Join(text, "---\n"))
		if err != nil || len(second.Losses) > 0 {
			t.Fatal(err, second.Losses)
		}
		if d := cmp.Diff(text, func() (out []string) {
			for _, o := range second.Objects {
				y, _ := yaml.Marshal(o.Object)
				out = append(out, string(y))
			}
			return out
		}()); d != "" {
			t.Error(file, d)
		}
	}
}

func TestWhatCannotBeConverted(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"a value of another type":        {old("gpu", "      kubelet: 5", ""), "standard input, document 1: NodePool gpu: spec.template.spec.kubelet: 5 does not fit here"},
		"a result that is refused":       {old("gpu", "      taints: [{key: a, effect: Sometimes}]", ""), `standard input, document 1: NodePool gpu: the result would be refused, spec.template.spec.taints[0].effect: Unsupported value: "Sometimes"`},
		"a name that is missing":         {strings.Replace(old("", "", ""), "name: , ", "", 1), "metadata.name: missing; objects need a name"},
		"a pool that is no object":       {"apiVersion: tensor-fusion.ai/v1\nkind: TensorFusionCluster\nmetadata: {name: c}\nspec: {gpuPools: [x]}", "standard input, document 1: TensorFusionCluster c: spec.gpuPools[0]: not an object"},
		"a requirement with a wrong key": {tensorFusion("  nodeManagerConfig: {provisioningMode: Karpenter, nodeProvisioner: {gpuRequirements: [{key: kubernetes.io/arch, operator: Near}]}}"), `spec.template.spec.requirements[0].operator: Unsupported value: "Near"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := convert(t, tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestOtherKindsAreLeftOut(t *testing.T) {
	r, err := convert(t, "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\napiVersion: karpenter.sh/v1beta1\nkind: NodeClaim\nmetadata: {name: c}\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"Service s: kind is not converted, and left out", "NodeClaim c: kind is not converted, and left out"}; len(r.Objects) != 0 || !slices.Equal(lines(r.Losses), want) {
		t.Errorf("%d objects, %q", len(r.Objects), lines(r.Losses))
	}
}
