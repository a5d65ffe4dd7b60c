package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/planner"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

func TestCluster(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Cluster")
}

// nodeClassCRD takes any EC2NodeClass: what is read of it is checked by the reader.
const nodeClassCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ec2nodeclasses.karpenter.k8s.aws}
spec:
  group: karpenter.k8s.aws
  scope: Cluster
  names: {plural: ec2nodeclasses, singular: ec2nodeclass, kind: EC2NodeClass, listKind: EC2NodeClassList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

var env *testenv.Environment

func create(ctx context.Context, o client.Object) {
	GinkgoHelper()
	wanted, ok := o.DeepCopyObject().(client.Object)
	Expect(ok).To(BeTrue())
	Expect(env.Client.Create(ctx, o)).To(Succeed())
	wanted.SetResourceVersion(o.GetResourceVersion())
	wanted.SetUID(o.GetUID())
	if _, ok := o.(*unstructured.Unstructured); !ok {
		Expect(client.IgnoreNotFound(env.Client.Status().Update(ctx, wanted))).To(Succeed())
	}
}

func nodePool(name string, ready bool) *karpv1.NodePool {
	np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.PoolLabelKey: "gpu"}}}
	np.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: catalogprovider.Group, Kind: "EC2NodeClass", Name: "default"}
	np.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
	np.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
	np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: "karpenter.k8s.aws/instance-family", Operator: corev1.NodeSelectorOpIn, Values: []string{"g6"}},
		{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand}},
	}
	for _, c := range []string{karpv1.ConditionTypeValidationSucceeded, karpv1.ConditionTypeNodeClassReady} {
		if ready {
			np.StatusConditions().SetTrue(c)
		} else {
			np.StatusConditions().SetFalse(c, "NotYet", "not yet")
		}
	}
	return np
}

func pod(name string, gpus, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
		Name: "main", Image: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), v1alpha1.ResourceGPU: resource.MustParse(gpus)}}}}}}
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}
	if node != "" {
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}}
	}
	return p
}

// launch makes a node with four GPUs that is up.
func launch(ctx context.Context, name string) {
	labels := map[string]string{
		corev1.LabelHostname: name, corev1.LabelInstanceTypeStable: "g6.12xlarge", corev1.LabelTopologyZone: "us-east-1a", karpv1.NodePoolLabelKey: "gpu",
		karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand, karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true",
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", "karpenter.k8s.aws/instance-family": "g6",
	}
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("47"), corev1.ResourceMemory: resource.MustParse("170Gi"), corev1.ResourcePods: resource.MustParse("200"),
		corev1.ResourceEphemeralStorage: resource.MustParse("20Gi"), v1alpha1.ResourceGPU: resource.MustParse("4")}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	claim.Spec.NodeClassRef = nodePool("gpu", true).Spec.Template.Spec.NodeClassRef
	claim.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
	claim.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
	claim.Status = karpv1.NodeClaimStatus{ProviderID: "aws:///us-east-1a/i-1", NodeName: name, Capacity: room, Allocatable: room}
	for _, c := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		claim.StatusConditions().SetTrue(c)
	}
	providerID := claim.Status.ProviderID // what the server answers has no status
	create(ctx, claim)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{ProviderID: providerID},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	create(ctx, node)
	Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
	node.Spec.Taints = nil // the API server has tainted it as not ready
	Expect(env.Client.Update(ctx, node)).To(Succeed())
}

func plan(stdin string, args ...string) (*planner.Plan, string, int) {
	GinkgoHelper()
	var out, errs bytes.Buffer
	cmd := cli.New(cli.Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs}, clock.RealClock{})
	cmd.SetArgs(append([]string{"plan", "--from-cluster", "--kubeconfig", env.ControlPlane.Kubeconfig(), "-o", "json"}, args...))
	err := cmd.Execute()
	if code := cli.ExitCode(err); code == cli.ExitError {
		return nil, err.Error(), code
	}
	p := &planner.Plan{}
	Expect(json.Unmarshal(out.Bytes(), p)).To(Succeed())
	return p, errs.String(), cli.ExitCode(err)
}

var _ = Describe("plan --from-cluster", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		var err error
		env, err = testenv.Start(ctx, testenv.Options{Scheme: manifest.NewScheme(), CRDs: definitions(), Manifests: [][]byte{[]byte(nodeClassCRD)}})
		Expect(err).ToNot(HaveOccurred())
		DeferCleanup(env.Stop)
	})

	It("should say what to give when there is nothing to launch with", func() {
		_, errs, code := plan("")
		Expect(code).To(Equal(cli.ExitError))
		Expect(errs).To(Equal("there is no NodePool among the input; give the file that has it, or use --from-cluster"))
	})

	It("should plan for the pods that wait, on nodes that are there first", func(ctx SpecContext) {
		create(ctx, &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
		create(ctx, nodePool("gpu", true))
		create(ctx, nodePool("broken", false))
		class := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"amiFamily": "AL2023"}, "status": map[string]any{"subnets": []any{map[string]any{"zone": "us-east-1c", "zoneID": "use1-az6"}}}}}
		class.SetGroupVersionKind(catalogprovider.NodeClassGVK)
		class.SetName("default")
		create(ctx, class)
		launch(ctx, "node-1")
		create(ctx, pod("runs", "3", "node-1"))
		create(ctx, pod("orphan", "1", "node-gone"))
		create(ctx, pod("waits-1", "1", ""))
		create(ctx, pod("waits-2", "1", ""))
		gated := pod("gated", "1", "")
		gated.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
		create(ctx, gated)

		p, errs, code := plan("")
		Expect(errs).To(BeEmpty())
		Expect(code).To(Equal(cli.ExitOK))
		Expect(p.Decision.Existing).To(HaveLen(1))
		Expect(p.Decision.Existing[0].Node).To(Equal("node-1"))
		Expect(p.Decision.Nodes).To(HaveLen(1))
		Expect(p.Decision.Nodes[0].InstanceType).To(Equal("g6.xlarge"))
		Expect(p.Decision.Nodes[0].GPUPool).To(Equal("gpu"))
		Expect(p.Ignored).To(ConsistOf(manifest.Ignored{Kind: "NodePool.karpenter.sh", Name: "broken", Reason: "it is not Ready, so that Karpenter passes it over"},
			manifest.Ignored{Kind: "Pod", Name: "default/orphan", Reason: "Karpenter does not know its node node-gone"}))
	})

	It("should count DaemonSets, and let files replace what the cluster has", func(ctx SpecContext) {
		labels := map[string]string{"app": "heavy"}
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "heavy"}, Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m")}}}}}}}}
		create(ctx, ds)
		p, _, _ := plan("")
		Expect(p.Decision.Nodes).To(HaveLen(1))
		Expect(p.Decision.Nodes[0].InstanceType).To(Equal("g6.2xlarge"))

		p, _, code := plan("apiVersion: karpenter-gpu.dev/v1alpha1\nkind: GPUPool\nmetadata: {name: gpu}\nspec: {limits: {gpus: 4}}", "-f", "-")
		Expect(code).To(Equal(cli.ExitUnmet))
		Expect(p.Unplaced).To(HaveLen(1))
		Expect(p.Unplaced[0].Reason).To(ContainSubstring("spec.limits.gpus"))
	})

	It("should name an EC2NodeClass that it cannot read", func(ctx SpecContext) {
		class := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"amiFamily": "Windows2022"}}}
		class.SetGroupVersionKind(catalogprovider.NodeClassGVK)
		class.SetName("windows")
		create(ctx, class)
		_, errs, code := plan("")
		Expect(code).To(Equal(cli.ExitError))
		Expect(errs).To(Equal(`EC2NodeClass windows: spec.amiFamily: "Windows2022" is not planned for; use AL2023, AL2, Bottlerocket or Custom`))
	})
})
