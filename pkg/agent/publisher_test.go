package agent_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
)

func TestPublisher(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Publisher")
}

var env *testenv.Environment

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).ToNot(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) { Expect(env.Stop(ctx)).To(Succeed()) })
})

// theNode returns the Node and its condition of a type; nil when it has none.
func theNode(ctx context.Context, name string, kind corev1.NodeConditionType) (*corev1.Node, *corev1.NodeCondition) {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(env.Client.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return node, &node.Status.Conditions[i]
		}
	}
	return node, nil
}

var _ = Describe("NodePublisher", func() {
	var (
		clk     *clocktesting.FakeClock
		lib     *nvml.Library
		gpu     *agent.Agent
		machine nvml.Machine
		name    string
	)
	newAgent := func() *agent.Agent {
		publisher, err := agent.NewNodePublisher(env.Config, name)
		Expect(err).ToNot(HaveOccurred())
		return agent.New(agent.NewSampler(lib, lib, clk, agent.SamplerOptions{}), publisher, clk, agent.Options{NodeName: name})
	}
	BeforeEach(func(ctx SpecContext) {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "gpu-", Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "b"}},
			Spec:       corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}}},
		}
		Expect(env.Client.Create(ctx, node)).To(Succeed())
		name = node.Name
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
		Expect(env.Client.Status().Update(ctx, node)).To(Succeed())
		clk = clocktesting.NewFakeClock(start)
		machine = nvml.H100(8)
		lib = nvml.NewLibrary(clk, machine)
		gpu = newAgent()
	})

	It("should write the condition and the report, and touch nothing else", func(ctx SpecContext) {
		before, _ := theNode(ctx, name, corev1.NodeReady)
		gpu.Round(ctx)
		node, ready := theNode(ctx, name, agent.ConditionType)
		Expect(ready).ToNot(BeNil())
		Expect(ready.Status).To(Equal(corev1.ConditionTrue))
		Expect(ready.Reason).To(Equal("Verified"))
		Expect(ready.Message).To(Equal("8 GPUs verified"))
		Expect(ready.LastTransitionTime.Time).To(BeTemporally("==", start))
		report, err := health.Decode([]byte(node.Annotations[agent.ReportAnnotation]))
		Expect(err).ToNot(HaveOccurred())
		Expect(health.Compare(report, health.Expectation{BootID: machine.BootID, GPUs: 8, Products: []string{"NVIDIA-H100-80GB-HBM3"}, MemoryMiB: 81559})).To(BeEmpty())

		delete(node.Annotations, agent.ReportAnnotation)
		Expect(node.Annotations).To(Equal(before.Annotations))
		Expect(node.Labels).To(Equal(before.Labels))
		Expect(node.Spec).To(Equal(before.Spec))
		_, kubelet := theNode(ctx, name, corev1.NodeReady)
		Expect(kubelet.Reason).To(Equal("KubeletReady"))
	})

	It("should write nothing while nothing changes but heartbeats", func(ctx SpecContext) {
		gpu.Round(ctx)
		first, _ := theNode(ctx, name, agent.ConditionType)
		for range 3 {
			clk.Step(time.Minute)
			gpu.Round(ctx)
		}
		same, _ := theNode(ctx, name, agent.ConditionType)
		Expect(same.ResourceVersion).To(Equal(first.ResourceVersion))
		clk.Step(5 * time.Minute)
		gpu.Round(ctx)
		_, beat := theNode(ctx, name, agent.ConditionType)
		Expect(beat.LastHeartbeatTime.Time).To(BeTemporally("==", start.Add(8*time.Minute)))
		Expect(beat.LastTransitionTime.Time).To(BeTemporally("==", start))
	})

	It("should keep the transition's time while reasons change, and after a restart of the agent", func(ctx SpecContext) {
		gpu.Round(ctx)
		clk.Step(time.Minute)
		lib.Update(func(m *nvml.Machine) { m.GPUs[3].Recovery = ptr(1) })
		gpu.Round(ctx)
		_, c := theNode(ctx, name, agent.ConditionType)
		Expect(c.Status).To(Equal(corev1.ConditionFalse))
		Expect(c.Reason).To(Equal("RecoveryNeedsReset"))
		clk.Step(time.Minute)
		lib.Update(func(m *nvml.Machine) { m.GPUs[5].Lost = true })
		gpu = newAgent()
		gpu.Round(ctx)
		_, c = theNode(ctx, name, agent.ConditionType)
		Expect(c.Reason).To(Equal("GPULost"))
		Expect(c.Message).To(Equal("GPU 5: lost, the GPU does not answer; GPU 3: the driver asks for a GPU reset (action 1)"))
		Expect(c.LastTransitionTime.Time).To(BeTemporally("==", start.Add(time.Minute)))
	})

	It("should start afresh where somebody else wrote the report", func(ctx SpecContext) {
		node, _ := theNode(ctx, name, agent.ConditionType)
		node.Annotations[agent.ReportAnnotation] = `{"v":1,"v":1}`
		Expect(env.Client.Update(ctx, node)).To(Succeed())
		gpu.Round(ctx)
		_, c := theNode(ctx, name, agent.ConditionType)
		Expect(c.Reason).To(Equal("Verified"))
	})

	It("should try again when the Node is not registered yet", func(ctx SpecContext) {
		node, _ := theNode(ctx, name, agent.ConditionType)
		Expect(env.Client.Delete(ctx, node)).To(Succeed())
		Expect(gpu.Round(ctx)).To(Equal(agent.DefaultStartInterval))
		Expect(env.Client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		clk.Step(agent.DefaultStartInterval)
		Expect(gpu.Round(ctx)).To(Equal(agent.DefaultInterval))
		_, c := theNode(ctx, name, agent.ConditionType)
		Expect(c.Reason).To(Equal("Verified"))
	})
})

func ptr[T any](v T) *T { return &v }
