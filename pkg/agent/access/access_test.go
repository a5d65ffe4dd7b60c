package access_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent/access"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
)

const (
	namespace = "gpu-agent"
	account   = "gpu-agent"
	// requireAssets turns a missing control plane from a skip into a failure.
	requireAssets = "KPGPU_REQUIRE_ASSETS"
)

var (
	env   *testenv.Environment
	admin kubernetes.Interface
	mine  kubernetes.Interface // with the token of an agent on node "mine"
	token *rest.Config
)

func TestAccess(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Access")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	var missing *controlplane.MissingBinaryError
	if errors.As(err, &missing) && os.Getenv(requireAssets) == "" {
		Skip(err.Error())
	}
	Expect(err).ToNot(HaveOccurred())
	admin = kubernetes.NewForConfigOrDie(env.Config)
	_, err = admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	Expect(err).ToNot(HaveOccurred())
	manifests, err := access.Manifests(namespace, account)
	Expect(err).ToNot(HaveOccurred())
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4<<10); ; {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			break
		} else {
			Expect(err).ToNot(HaveOccurred())
		}
		Expect(env.Client.Create(ctx, u)).To(Succeed())
	}
	for _, name := range []string{"mine", "other"} {
		node, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "b", "karpenter-gpu.dev/verified-boot": "x"},
		}}, metav1.CreateOptions{})
		Expect(err).ToNot(HaveOccurred())
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
		node.Status.NodeInfo.BootID = "boot"
		_, err = admin.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		Expect(err).ToNot(HaveOccurred())
	}
	token = tokenOf(ctx, "mine")
	mine = kubernetes.NewForConfigOrDie(token)
	// The policy holds some time after it was created.
	Eventually(func() error {
		return patch(ctx, mine, "other", types.MergePatchType, `{"metadata":{"annotations":{"probe":"1"}}}`, metav1.DryRunAll)
	}).
		WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(MatchError(ContainSubstring("may change its own node only")))
}, NodeTimeout(3*time.Minute))

var _ = AfterSuite(func() {
	Expect(env.Stop(context.Background())).To(Succeed())
})

// tokenOf runs a pod of the agent on a node and returns what its token is good for. An empty
// node makes a token that is bound to nothing.
func tokenOf(ctx context.Context, node string) *rest.Config {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		pod, err := admin.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "gpu-agent-"},
			Spec: corev1.PodSpec{
				ServiceAccountName: account, NodeName: node, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{Name: "agent", Image: "example.com/agent:1"}},
			},
		}, metav1.CreateOptions{})
		Expect(err).ToNot(HaveOccurred())
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	answer, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	Expect(err).ToNot(HaveOccurred())
	config := rest.AnonymousClientConfig(env.Config)
	config.BearerToken = answer.Status.Token
	return config
}

func patch(ctx context.Context, c kubernetes.Interface, node string, kind types.PatchType, body string, dryRun ...string) error {
	resource, subresources := node, []string{}
	if name, status := strings.CutSuffix(node, "/status"); status {
		resource, subresources = name, []string{"status"}
	}
	_, err := c.CoreV1().Nodes().Patch(ctx, resource, kind, []byte(body), metav1.PatchOptions{DryRun: dryRun}, subresources...)
	return err
}

var _ = Describe("The agent", func() {
	It("should do its work", func(ctx SpecContext) {
		clk := clocktesting.NewFakeClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
		lib := nvml.NewLibrary(clk, nvml.H100(8))
		publisher, err := agent.NewNodePublisher(token, "mine")
		Expect(err).ToNot(HaveOccurred())
		a := agent.New(agent.NewSampler(lib, lib, clk, agent.SamplerOptions{}), publisher, clk, agent.Options{NodeName: "mine"})
		a.Round(ctx)
		read := func() corev1.NodeCondition {
			node, err := admin.CoreV1().Nodes().Get(ctx, "mine", metav1.GetOptions{})
			Expect(err).ToNot(HaveOccurred())
			Expect(node.Annotations).To(HaveKey(agent.ReportAnnotation))
			for _, c := range node.Status.Conditions {
				if c.Type == agent.ConditionType {
					return c
				}
			}
			return corev1.NodeCondition{}
		}
		Expect(read().Status).To(Equal(corev1.ConditionTrue))
		clk.Step(time.Minute)
		lib.Update(func(m *nvml.Machine) { m.GPUs[3].Lost = true })
		a.Round(ctx)
		Expect(read().Reason).To(Equal("GPULost"))
	})

	DescribeTable("should be refused",
		func(ctx SpecContext, node string, kind types.PatchType, body, message string) {
			before, err := admin.CoreV1().Nodes().Get(ctx, strings.TrimSuffix(node, "/status"), metav1.GetOptions{})
			Expect(err).ToNot(HaveOccurred())
			err = patch(ctx, mine, node, kind, body)
			Expect(err).To(MatchError(ContainSubstring(message)))
			Expect(apierrors.IsInvalid(err) || apierrors.IsForbidden(err)).To(BeTrue())
			after, err := admin.CoreV1().Nodes().Get(ctx, before.Name, metav1.GetOptions{})
			Expect(err).ToNot(HaveOccurred())
			Expect(after.ResourceVersion).To(Equal(before.ResourceVersion))
		},
		Entry("another node's report", "other", types.MergePatchType, `{"metadata":{"annotations":{"karpenter-gpu.dev/report":"x"}}}`,
			"the GPU agent of node mine may change its own node only, not other"),
		Entry("another node's condition", "other/status", types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"karpenter-gpu.dev/GPUReady","status":"True"}]}}`,
			"the GPU agent of node mine may change its own node only, not other"),
		Entry("a taint", "mine", types.MergePatchType, `{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`,
			"the GPU agent may not change the spec of a node, taints and cordons included"),
		Entry("a cordon", "mine", types.MergePatchType, `{"spec":{"unschedulable":true}}`,
			"the GPU agent may not change the spec of a node, taints and cordons included"),
		Entry("a label", "mine", types.MergePatchType, `{"metadata":{"labels":{"team":"b"}}}`,
			"the GPU agent may not change labels, finalizers or other metadata of a node"),
		Entry("a new label through the status", "mine/status", types.MergePatchType, `{"metadata":{"labels":{"new":"b"}}}`,
			"the GPU agent may not change labels, finalizers or other metadata of a node"),
		Entry("the loss of a label", "mine", types.MergePatchType, `{"metadata":{"labels":null}}`,
			"the GPU agent may not change labels, finalizers or other metadata of a node"),
		Entry("a finalizer", "mine", types.MergePatchType, `{"metadata":{"finalizers":["example.com/x"]}}`,
			"the GPU agent may not change labels, finalizers or other metadata of a node"),
		Entry("the mark of verification", "mine", types.MergePatchType, `{"metadata":{"annotations":{"karpenter-gpu.dev/verified-boot":"boot"}}}`,
			"the GPU agent may change no annotation of a node but karpenter-gpu.dev/report"),
		Entry("a new annotation", "mine", types.MergePatchType, `{"metadata":{"annotations":{"karpenter.sh/do-not-repair":"true"}}}`,
			"the GPU agent may change no annotation of a node but karpenter-gpu.dev/report"),
		Entry("the loss of an annotation", "mine", types.MergePatchType, `{"metadata":{"annotations":{"note":null}}}`,
			"the GPU agent may change no annotation of a node but karpenter-gpu.dev/report"),
		Entry("the loss of all annotations", "mine", types.MergePatchType, `{"metadata":{"annotations":null}}`,
			"the GPU agent may change no annotation of a node but karpenter-gpu.dev/report"),
		Entry("a report that is too long", "mine", types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{"karpenter-gpu.dev/report":%q}}}`, strings.Repeat("x", 16385)),
			"the report of the GPU agent is longer than 16384 bytes"),
		Entry("another condition", "mine/status", types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
			"the GPU agent may change no condition of a node but karpenter-gpu.dev/GPUReady"),
		Entry("a new condition", "mine/status", types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"AcceleratedHardwareReady","status":"False"}]}}`,
			"the GPU agent may change no condition of a node but karpenter-gpu.dev/GPUReady"),
		Entry("the loss of a condition", "mine/status", types.MergePatchType, `{"status":{"conditions":[]}}`,
			"the GPU agent may change no condition of a node but karpenter-gpu.dev/GPUReady"),
		Entry("resources", "mine/status", types.MergePatchType, `{"status":{"allocatable":{"nvidia.com/gpu":"8"}}}`,
			"the GPU agent may change nothing in the status of a node but its condition"),
		Entry("the boot ID", "mine/status", types.MergePatchType, `{"status":{"nodeInfo":{"bootID":"other"}}}`,
			"the GPU agent may change nothing in the status of a node but its condition"),
	)

	It("should be refused everything else by RBAC", func(ctx SpecContext) {
		forbidden := func(err error) { GinkgoHelper(); Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err) }
		_, err := mine.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		forbidden(err)
		node, err := mine.CoreV1().Nodes().Get(ctx, "mine", metav1.GetOptions{})
		Expect(err).ToNot(HaveOccurred())
		_, err = mine.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		forbidden(err)
		forbidden(mine.CoreV1().Nodes().Delete(ctx, "mine", metav1.DeleteOptions{}))
		_, err = mine.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		forbidden(err)
		_, err = mine.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
		forbidden(err)
	})

	It("should be refused with a token that is bound to no pod", func(ctx SpecContext) {
		loose := kubernetes.NewForConfigOrDie(tokenOf(ctx, ""))
		Expect(patch(ctx, loose, "mine", types.MergePatchType, `{"metadata":{"annotations":{"karpenter-gpu.dev/report":"x"}}}`)).
			To(MatchError(ContainSubstring("needs a token that is bound to its pod; this one names no node")))
	})

	It("should not bind others by its policy", func(ctx SpecContext) {
		Expect(patch(ctx, admin, "mine", types.MergePatchType, `{"metadata":{"labels":{"team":"c"}}}`)).To(Succeed())
	})
})
