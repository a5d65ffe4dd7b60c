package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/doctor"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

// policyCRD takes any ClusterPolicy.
const policyCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterpolicies.nvidia.com}
spec:
  group: nvidia.com
  scope: Cluster
  names: {plural: clusterpolicies, singular: clusterpolicy, kind: ClusterPolicy, listKind: ClusterPolicyList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// withRBAC adds roles, which the command itself does not read.
func withRBAC() *runtime.Scheme {
	s := manifest.NewScheme()
	lo.Must0(rbacv1.AddToScheme(s))
	return s
}

// at is the time by the clock of the command: late enough that nodes, which the API server
// gives its own time, are all older than their pool's deadline.
var at = time.Date(2126, 1, 5, 9, 0, 0, 0, time.UTC)

// run runs a verb against the API server.
func run(args ...string) (out, errs string, code int) {
	var o, e bytes.Buffer
	cmd := cli.New(cli.Streams{In: strings.NewReader(""), Out: &o, Err: &e}, clocktesting.NewFakeClock(at))
	if !slices.Contains(args, "--kubeconfig") {
		args = append(args, "--kubeconfig", env.ControlPlane.Kubeconfig())
	}
	cmd.SetArgs(args)
	err := cmd.Execute()
	if cli.ExitCode(err) == cli.ExitError {
		fmt.Fprint(&e, err)
	}
	return o.String(), e.String(), cli.ExitCode(err)
}

func diagnose(args ...string) (*doctor.Report, int) {
	GinkgoHelper()
	out, errs, code := run(append([]string{"doctor", "-o", "json"}, args...)...)
	Expect(errs).To(BeEmpty())
	r := &doctor.Report{}
	Expect(json.Unmarshal([]byte(out), r)).To(Succeed())
	return r, code
}

// apply creates the objects of a file as kubectl would.
func apply(ctx context.Context, file string) {
	GinkgoHelper()
	documents, err := manifest.Documents([]string{file}, nil)
	Expect(err).ToNot(HaveOccurred())
	for _, d := range documents {
		if ns := d.Object.GetNamespace(); ns != "" {
			Expect(client.IgnoreAlreadyExists(env.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))).To(Succeed())
		}
		Expect(client.IgnoreAlreadyExists(env.Client.Create(ctx, d.Object))).To(Succeed(), d.From)
	}
}

func reasonsOf(r *doctor.Report) []string {
	return lo.Uniq(lo.Map(r.Findings, func(f doctor.Finding, _ int) string { return string(f.Reason) }))
}

// available lets the controller's Deployment have a replica.
func available(ctx context.Context) {
	GinkgoHelper()
	d := &appsv1.Deployment{}
	Expect(env.Client.Get(ctx, types.NamespacedName{Namespace: "karpenter", Name: "karpenter"}, d)).To(Succeed())
	d.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	Expect(env.Client.Status().Update(ctx, d)).To(Succeed())
}

// gpuNode is a node of a NodePool; reported is when its agent reported, zero for never.
func gpuNode(ctx context.Context, name, nodePool, instanceType string, reported time.Time) {
	GinkgoHelper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{karpv1.NodePoolLabelKey: nodePool, corev1.LabelInstanceTypeStable: instanceType}}}
	if !reported.IsZero() {
		n.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeConditionGPUReady, Status: corev1.ConditionTrue, Reason: "Verified", LastHeartbeatTime: metav1.NewTime(reported)}}
	}
	create(ctx, n)
}

// command is what doctor tells to run, taken apart.
type command struct{ resource, name, namespace, kind, patch, label string }

var words = regexp.MustCompile(`'((?:[^']|'\\'')*)'|(\S+)`)

// parseCommand reads kubectl patch and kubectl label as a shell and kubectl would; ok is false
// for other commands.
func parseCommand(text string) (c command, ok bool) {
	all := lo.Map(words.FindAllStringSubmatch(text, -1), func(m []string, _ int) string {
		return lo.Ternary(m[2] != "", m[2], strings.ReplaceAll(m[1], `'\''`, "'"))
	})
	f := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	f.StringVar(&c.kind, "type", "", "")
	f.StringVarP(&c.patch, "patch", "p", "", "")
	f.StringVarP(&c.namespace, "namespace", "n", "", "")
	f.String("subresource", "", "")
	f.Bool("overwrite", false, "")
	if f.Parse(all) != nil || f.NArg() < 4 || f.Arg(0) != "kubectl" || f.Arg(1) != "patch" && f.Arg(1) != "label" {
		return c, false
	}
	c.resource, c.name, c.label = f.Arg(2), f.Arg(3), f.Arg(4)
	return c, true
}

var kinds = map[string]schema.GroupVersionKind{
	"nodepool":                   {Group: "karpenter.sh", Version: "v1", Kind: "NodePool"},
	"clusterpolicies.nvidia.com": doctor.ClusterPolicyGVK,
	"daemonset":                  {Group: "apps", Version: "v1", Kind: "DaemonSet"},
	"deployment":                 {Group: "apps", Version: "v1", Kind: "Deployment"},
	"configmap":                  {Version: "v1", Kind: "ConfigMap"},
	"customresourcedefinition":   {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
}

// obey does what the command says.
func obey(ctx context.Context, text string, c command) {
	GinkgoHelper()
	gvk, ok := kinds[c.resource]
	Expect(ok).To(BeTrue(), text)
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetName(c.name)
	u.SetNamespace(c.namespace)
	kind, data := types.PatchType("application/"+c.kind+"-patch+json"), c.patch
	if c.label != "" {
		key, value, set := strings.Cut(c.label, "=")
		kind, data = types.MergePatchType, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, strings.TrimSuffix(key, "-"), lo.Ternary(set, fmt.Sprintf("%q", value), "null"))
	}
	patch := client.RawPatch(lo.Ternary(c.kind == "json", types.JSONPatchType, kind), []byte(data))
	if strings.Contains(text, "--subresource=status") {
		Expect(env.Client.Status().Patch(ctx, u, patch)).To(Succeed(), text)
		return
	}
	Expect(env.Client.Patch(ctx, u, patch)).To(Succeed(), text)
}

// heal runs every command that changes an object, and wants its finding gone.
func heal(ctx context.Context, args ...string) (healed []string) {
	GinkgoHelper()
	tried := map[string]bool{}
	for {
		r, _ := diagnose(args...)
		f, ok := lo.Find(r.Findings, func(f doctor.Finding) bool {
			_, runs := parseCommand(f.Command)
			return runs && !tried[f.Command]
		})
		if !ok {
			return healed
		}
		tried[f.Command] = true
		c, _ := parseCommand(f.Command)
		obey(ctx, f.Command, c)
		after, _ := diagnose(args...)
		Expect(lo.SomeBy(after.Findings, func(g doctor.Finding) bool {
			return g.Reason == f.Reason && g.Object == f.Object && g.Message == f.Message
		})).To(BeFalse(), "%s: %s\nstill there after %s", f.Reason, f.Message, f.Command)
		healed = append(healed, string(f.Reason))
	}
}

var _ = Describe("doctor in a good cluster", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		var err error
		env, err = testenv.Start(ctx, testenv.Options{Scheme: withRBAC(), CRDs: definitions(), Manifests: [][]byte{[]byte(nodeClassCRD), []byte(policyCRD)}})
		Expect(err).ToNot(HaveOccurred())
		DeferCleanup(env.Stop)
		apply(ctx, "../../../examples/doctor/good.yaml")
		available(ctx)
		gpuNode(ctx, "node-1", "shared", "g6.xlarge", at.Add(-time.Minute))
	})

	It("should find nothing", func() {
		r, code := diagnose("--fail-on", "warning")
		Expect(r.Findings).To(BeEmpty())
		Expect(r.Notes).To(BeEmpty())
		Expect(code).To(Equal(cli.ExitOK))
	})

	It("should find what a manifest would break, and nothing once it is corrected", func(ctx SpecContext) {
		text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: notebooks}\nspec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {nodeSelector: {nvidia.com/gpu.product: L4}, containers: [{name: a, image: a}]}}}\n"
		file := GinkgoT().TempDir() + "/change.yaml"
		Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
		r, code := diagnose("--from-cluster", "-f", file)
		Expect(reasonsOf(r)).To(ConsistOf("LabelNeverMatches"))
		Expect(r.Findings[0].Object).To(Equal("Deployment default/notebooks"))
		Expect(r.Findings[0].From).To(Equal(file + ", document 1"))
		Expect(code).To(Equal(cli.ExitUnmet))

		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kinds["deployment"])
		Expect(env.Client.Get(ctx, types.NamespacedName{Namespace: "default", Name: "notebooks"}, u)).To(Succeed())
		Expect(unstructured.SetNestedField(u.Object, map[string]any{"nvidia.com/gpu.prodct": "L4"}, "spec", "template", "spec", "nodeSelector")).To(Succeed())
		Expect(env.Client.Update(ctx, u)).To(Succeed())
		// A key that nothing predicts is not judged: it may be a label of somebody's own.
		r, _ = diagnose()
		Expect(r.Findings).To(BeEmpty())

		Expect(unstructured.SetNestedField(u.Object, map[string]any{"nvidia.com/gpu.product": "A10"}, "spec", "template", "spec", "nodeSelector")).To(Succeed())
		Expect(env.Client.Update(ctx, u)).To(Succeed())
		Expect(heal(ctx)).To(Equal([]string{"LabelNeverMatches"}))
		r, _ = diagnose()
		Expect(r.Findings).To(BeEmpty())
	})

	It("should count a warning only where it is asked to", func(ctx SpecContext) {
		gpuNode(ctx, "node-2", "shared", "g6.xlarge", time.Time{})
		gpuNode(ctx, "node-3", "shared", "g6.xlarge", at.Add(-time.Hour))
		r, code := diagnose()
		Expect(reasonsOf(r)).To(ConsistOf("AgentNotOnNode", "AgentSilent"))
		Expect(code).To(Equal(cli.ExitOK))
		_, code = diagnose("--fail-on", "warning")
		Expect(code).To(Equal(cli.ExitUnmet))
	})

	It("should say what it may not read", func(ctx SpecContext) {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"karpenter.sh", "karpenter-gpu.dev", "karpenter.k8s.aws", "nvidia.com", "apps", "batch"}, Resources: []string{"*"}, Verbs: []string{"list"}},
			{APIGroups: []string{""}, Resources: []string{"namespaces", "nodes", "pods"}, Verbs: []string{"list"}}}}
		Expect(env.Client.Create(ctx, role)).To(Succeed())
		Expect(env.Client.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "reader"}}})).To(Succeed())
		path := kubeconfigOf("reader")
		Eventually(func() []string { // the authorizer learns of the role a moment later
			r, _ := diagnose("--kubeconfig", path)
			return r.Notes
		}).Should(ConsistOf(HavePrefix("ConfigMap could not be read, so that what follows from them is not examined: "), HavePrefix("CustomResourceDefinition could not be read, ")))
	})

	It("should not call a cluster good of which it may read nothing", func() {
		out, errs, code := run("doctor", "--kubeconfig", kubeconfigOf("nobody"))
		Expect(out).To(BeEmpty())
		Expect(errs).To(And(HavePrefix("neither NodePools nor GPUPools can be read, so that there is nothing to examine: "),
			ContainSubstring(`User "nobody" cannot list resource "nodepools"`), ContainSubstring(`User "nobody" cannot list resource "gpupools"`)))
		Expect(code).To(Equal(cli.ExitError))
	})
})

// kubeconfigOf writes a kubeconfig that acts as a user.
func kubeconfigOf(user string) string {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(env.ControlPlane.Kubeconfig())
	Expect(err).ToNot(HaveOccurred())
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	path := GinkgoT().TempDir() + "/kubeconfig"
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// definitions are copies: an API server's answer is written into what is installed.
func definitions() []*apiextensionsv1.CustomResourceDefinition {
	return lo.Map(slices.Concat(karpapis.CRDs, apis.CRDs), func(c *apiextensionsv1.CustomResourceDefinition, _ int) *apiextensionsv1.CustomResourceDefinition {
		c = c.DeepCopy()
		c.ObjectMeta = metav1.ObjectMeta{Name: c.Name, Annotations: c.Annotations}
		return c
	})
}

// brokenCRDs are older and fewer than they should be.
func brokenCRDs() []*apiextensionsv1.CustomResourceDefinition {
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, c := range definitions() {
		switch c.Name {
		case "capacitybuffers.autoscaling.x-k8s.io":
			continue
		case "gpupools.karpenter-gpu.dev":
			delete(c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["selection"].Properties, "priceTolerancePercent")
		case "nodeclaims.karpenter.sh":
			old := *c.Spec.Versions[0].DeepCopy()
			old.Name, old.Storage, old.Served = "v1beta1", false, false
			c.Spec.Versions = append(c.Spec.Versions, old)
		}
		out = append(out, c)
	}
	return out
}

var _ = Describe("doctor in a broken cluster", Ordered, func() {
	found := map[string]bool{}
	remember := func(r *doctor.Report) []string {
		for _, reason := range reasonsOf(r) {
			found[reason] = true
		}
		return reasonsOf(r)
	}

	BeforeAll(func(ctx SpecContext) {
		var err error
		env, err = testenv.Start(ctx, testenv.Options{Scheme: withRBAC(), CRDs: brokenCRDs(), Manifests: [][]byte{[]byte(nodeClassCRD), []byte(policyCRD)}})
		Expect(err).ToNot(HaveOccurred())
		DeferCleanup(env.Stop)
	})

	It("should find that there is no controller", func() {
		r, code := diagnose()
		Expect(remember(r)).To(ConsistOf("CRDOutdated", "ControllerMissing"))
		Expect(code).To(Equal(cli.ExitUnmet))
	})

	It("should find each fault, with its severity and object", func(ctx SpecContext) {
		apply(ctx, "../../../examples/doctor/broken.yaml")
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(env.Client.Get(ctx, types.NamespacedName{Name: "nodeclaims.karpenter.sh"}, crd)).To(Succeed())
		crd.Status.StoredVersions = []string{"v1beta1", "v1"}
		Expect(env.Client.Status().Update(ctx, crd)).To(Succeed())
		r, code := diagnose()
		remember(r)
		Expect(lo.Map(r.Findings, func(f doctor.Finding, _ int) string {
			return fmt.Sprintf("%s %s %s", f.Severity, f.Reason, f.Object)
		})).To(Equal([]string{
			"Error CRDMissing CustomResourceDefinition capacitybuffers.autoscaling.x-k8s.io",
			"Error ControllerStock Deployment karpenter/karpenter",
			"Error ControllerNotAvailable Deployment karpenter/karpenter",
			"Error FeatureGateOff Deployment karpenter/karpenter",
			"Error ObjectInvalid GPUPool unknown-layout",
			"Error GPUPoolMissing NodePool whole",
			"Error PoolLabelMisplaced NodePool misplaced",
			"Error NodeClassMissing NodePool misplaced",
			"Error NodeClassMissing NodePool partitions",
			"Error NodeClassMissing NodePool shared",
			"Error NodeClassMissing NodePool whole",
			"Error NoInstanceTypes NodePool shared",
			"Error PartitioningUnsupported NodePool partitions",
			"Error TaintNotTolerated ClusterPolicy cluster-policy",
			"Error TaintNotTolerated DaemonSet kube-system/nvidia-device-plugin",
			"Error AgentMissing GPUPool partitions",
			"Error OperatorNamespaceDiffers Deployment karpenter/karpenter",
			"Error OperandDisabled ClusterPolicy cluster-policy",
			"Error MIGStrategyDiffers ClusterPolicy cluster-policy",
			"Error MIGStrategyDiffers DaemonSet kube-system/nvidia-device-plugin",
			"Error MIGLayoutsMissing ClusterPolicy cluster-policy",
			"Error DevicePluginConfigUnset ClusterPolicy cluster-policy",
			"Error DevicePluginConfigUnset DaemonSet kube-system/nvidia-device-plugin",
			"Error LabelNeverMatches Deployment default/misspelled",
			"Error PartitionNeverOffered Job default/partition",
			"Warning CRDOutdated CustomResourceDefinition gpupools.karpenter-gpu.dev",
			"Warning CRDStoredVersion CustomResourceDefinition nodeclaims.karpenter.sh",
			"Warning FeatureGateOff Deployment karpenter/karpenter",
			"Warning NoNodePools GPUPool unknown-layout",
			"Warning BudgetBlocks NodePool partitions",
			"Warning AgentMissing GPUPool shared",
		}))
		Expect(code).To(Equal(cli.ExitUnmet))
	})

	It("should find faults of what is repaired half", func(ctx SpecContext) {
		apply(ctx, "testdata/half.yaml")
		policy := &unstructured.Unstructured{}
		policy.SetGroupVersionKind(doctor.ClusterPolicyGVK)
		policy.SetName("cluster-policy")
		Expect(env.Client.Patch(ctx, policy, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"devicePlugin":{"config":{"name":"custom"}}}}`)))).To(Succeed())
		gpuNode(ctx, "node-1", "shared", "g6.xlarge", time.Time{})
		gpuNode(ctx, "node-2", "shared", "g6.xlarge", at.Add(-time.Hour))
		r, _ := diagnose()
		Expect(remember(r)).To(ContainElements("NodeClassNotReady", "AgentNotOnNode", "AgentSilent", "DevicePluginConfigMissing"))
		d := &appsv1.Deployment{}
		Expect(env.Client.Get(ctx, types.NamespacedName{Namespace: "karpenter", Name: "karpenter"}, d)).To(Succeed())
		gates := d.Spec.Template.Spec.Containers[0].Env[1].DeepCopy()
		d.Spec.Template.Spec.Containers[0].Env[1].Value = "NodeRepair=perhaps"
		Expect(env.Client.Update(ctx, d)).To(Succeed())
		r, _ = diagnose()
		Expect(remember(r)).To(ContainElement("FeatureGatesInvalid"))
		d.Spec.Template.Spec.Containers[0].Env[1] = *gates
		Expect(env.Client.Update(ctx, d)).To(Succeed())
	})

	It("should have found every fault that it knows", func() {
		for _, reason := range doctor.Reasons() {
			Expect(found).To(HaveKey(string(reason)))
		}
	})

	It("should name commands that mend the faults", func(ctx SpecContext) {
		Expect(lo.Uniq(heal(ctx))).To(ConsistOf("CRDStoredVersion", "GPUPoolMissing", "PoolLabelMisplaced", "NodeClassMissing", "NoInstanceTypes", "BudgetBlocks",
			"TaintNotTolerated", "OperandDisabled", "MIGStrategyDiffers", "MIGLayoutsMissing", "DevicePluginConfigMissing"))
	})
})
