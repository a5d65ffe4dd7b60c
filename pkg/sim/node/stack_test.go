package node_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
)

// visits counts how often it was started and how many of its runs go on.
type visits struct{ started, running atomic.Int32 }

func (v *visits) Run(ctx context.Context, _ *node.Machine) {
	v.started.Add(1)
	v.running.Add(1)
	<-ctx.Done()
	v.running.Add(-1)
}

var serial atomic.Int32

var _ = Describe("Stack", func() {
	var (
		clk     *clocktesting.FakeClock
		stack   *node.Stack
		operand *visits
		name    string
	)

	BeforeEach(func() {
		name = fmt.Sprintf("node-%d", serial.Add(1))
		operand = &visits{}
		clk = clocktesting.NewFakeClock(time.Now())
		kube, err := kubernetes.NewForConfig(env.Config)
		Expect(err).NotTo(HaveOccurred())
		stack, err = node.New(node.Options{
			Client: kube, Hardware: node.Catalogue(), Operands: []node.Operand{operand}, Clock: clk, Log: logr.Discard(),
			Settings: node.Settings{Driver: node.Fixed(time.Minute), Plugin: node.Fixed(time.Minute), MIG: node.Fixed(time.Minute), Strategy: "mixed"},
		})
		Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- stack.Run(ctx) }()
		DeferCleanup(func() {
			cancel()
			Eventually(ended).Should(Receive(BeNil()))
			Expect(operand.running.Load()).To(BeZero(), "operands end with the stack")
			Expect(env.Client.DeleteAllOf(context.Background(), &corev1.Node{})).To(Succeed())
		})
	})

	create := func(instanceType string, change ...func(*corev1.Node)) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{node.AnnotationKWOK: "fake"}, Labels: map[string]string{corev1.LabelInstanceTypeStable: instanceType},
		}}
		for _, c := range change {
			c(n)
		}
		Expect(env.Client.Create(context.Background(), n)).To(Succeed())
	}
	get := func() *corev1.Node {
		n := &corev1.Node{}
		Expect(env.Client.Get(context.Background(), client.ObjectKey{Name: name}, n)).To(Succeed())
		return n
	}
	label := func(key, value string) {
		n := get()
		base := n.DeepCopy()
		n.Labels[key] = value
		Expect(env.Client.Patch(context.Background(), n, client.MergeFrom(base))).To(Succeed())
	}
	allocatable := func(resourceName string) int64 {
		q := get().Status.Allocatable[corev1.ResourceName(resourceName)]
		return q.Value()
	}
	// passing lets time go by at every look: a wait that begins late is late by what has passed.
	passing := func(resourceName string) func() int64 {
		return func() int64 { clk.Step(time.Minute); return allocatable(resourceName) }
	}

	It("should label a node and register its GPUs when the driver has loaded", func() {
		create("p5.48xlarge")
		Eventually(func() map[string]string { return get().Labels }).Should(HaveKeyWithValue("nvidia.com/gpu.present", "true"))
		Expect(get().Labels).NotTo(HaveKey("nvidia.com/gpu.product"))
		Eventually(passing("nvidia.com/gpu")).Should(BeEquivalentTo(8))
		n := get()
		Expect(n.Labels).To(HaveKeyWithValue("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"))
		capacity := n.Status.Capacity["nvidia.com/gpu"]
		Expect(capacity.Value()).To(BeEquivalentTo(8))
	})

	It("should take the hardware from the annotation where the type is none of EC2's", func() {
		create("our-own", func(n *corev1.Node) { n.Annotations[node.AnnotationHardware] = "p4d.24xlarge" })
		Eventually(passing("nvidia.com/gpu")).Should(BeEquivalentTo(8))
	})

	It("should leave alone nodes without GPUs and nodes that KWOK does not play", func() {
		create("m5.large")
		other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name + "-real", Labels: map[string]string{corev1.LabelInstanceTypeStable: "g5.xlarge"}}}
		Expect(env.Client.Create(context.Background(), other)).To(Succeed())
		before, beforeOther := get().ResourceVersion, other.ResourceVersion
		Consistently(func() []string {
			clk.Step(time.Minute)
			Expect(env.Client.Get(context.Background(), client.ObjectKeyFromObject(other), other)).To(Succeed())
			return []string{get().ResourceVersion, other.ResourceVersion}
		}, "500ms").Should(Equal([]string{before, beforeOther}))
	})

	It("should follow the MIG layout and take the former resources back", func() {
		create("p4d.24xlarge")
		Eventually(passing("nvidia.com/gpu")).Should(BeEquivalentTo(8))
		label(node.LabelMIGConfig, "all-1g.5gb")
		Eventually(func() string { return get().Labels[node.LabelMIGState] }).Should(Equal("pending"))
		Eventually(func() int64 { return allocatable("nvidia.com/gpu") }).Should(BeZero())
		Eventually(passing("nvidia.com/mig-1g.5gb")).Should(BeEquivalentTo(56))
		Expect(get().Labels).To(HaveKeyWithValue(node.LabelMIGState, "success"))
		Expect(get().Status.Capacity).To(HaveKeyWithValue(corev1.ResourceName("nvidia.com/gpu"), resource.MustParse("0")), "the kubelet keeps a resource at zero")
		Expect(get().Labels).To(HaveKeyWithValue("nvidia.com/mig-1g.5gb.count", "56"))
	})

	It("should take back its own labels and no others", func() {
		create("g5.xlarge", func(n *corev1.Node) { n.Labels["nvidia.com/mine"] = "kept" })
		Eventually(passing("nvidia.com/gpu")).Should(BeEquivalentTo(1))
		Expect(get().Labels).To(HaveKey("nvidia.com/gpu.product"))
		Expect(stack.Inject(node.Fault{Kind: node.LabelsNever})).To(Succeed())
		Eventually(func() map[string]string { return get().Labels }).ShouldNot(HaveKey("nvidia.com/gpu.product"))
		Expect(get().Labels).To(HaveKeyWithValue("nvidia.com/mine", "kept"))
	})

	It("should share GPUs as the config that the node selects says, and follow its change", func() {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: node.PluginConfigNamespace}}
		Expect(client.IgnoreAlreadyExists(env.Client.Create(context.Background(), ns))).To(Succeed())
		config := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: node.PluginConfigNamespace, Name: node.PluginConfigName},
			Data:       map[string]string{"four": "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"},
		}
		Expect(env.Client.Create(context.Background(), config)).To(Succeed())
		DeferCleanup(func() { Expect(env.Client.Delete(context.Background(), config)).To(Succeed()) })
		create("g5.xlarge", func(n *corev1.Node) { n.Labels[node.LabelPluginConfig] = "four" })
		Eventually(passing("nvidia.com/gpu")).Should(BeEquivalentTo(4))
		config.Data["four"] = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 6}]}}"
		Expect(env.Client.Update(context.Background(), config)).To(Succeed())
		Eventually(passing("nvidia.com/gpu")).Should(BeEquivalentTo(6))
	})

	It("should begin and end faults at run time", func() {
		create("p5.48xlarge")
		Eventually(passing("nvidia.com/gpu")).Should(BeEquivalentTo(8))
		Expect(stack.Inject(node.Fault{Name: "bus", Kind: node.GPULost, GPUs: 3, Match: node.Match{Node: name}})).To(Succeed())
		Eventually(func() int64 { return allocatable("nvidia.com/gpu") }).Should(BeEquivalentTo(5))
		Expect(stack.Heal("bus")).To(Succeed())
		Eventually(func() int64 { return allocatable("nvidia.com/gpu") }).Should(BeEquivalentTo(8))
		Expect(stack.Heal("bus")).To(MatchError(`healing node fault "bus", no fault of that name is in force`))
		Expect(stack.Inject(node.Fault{Kind: "fire"})).To(MatchError(ContainSubstring(`kind "fire" is no node fault`)))
	})

	It("should boot a machine again, in its place among its type", func() {
		create("g5.xlarge", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "first" })
		Eventually(passing("nvidia.com/gpu")).Should(BeEquivalentTo(1))
		Expect(stack.Inject(node.Fault{Kind: node.DriverNever, Match: node.Match{Nth: 2}})).To(Succeed())
		n := get()
		n.Status.NodeInfo.BootID = "second"
		Expect(env.Client.Status().Update(context.Background(), n)).To(Succeed())
		Eventually(func() int64 { return allocatable("nvidia.com/gpu") }).Should(BeZero(), "its driver has to load again")
		Eventually(operand.started.Load).Should(BeEquivalentTo(2))
		Eventually(passing("nvidia.com/gpu")).Should(BeEquivalentTo(1), "it is not the second of its type")
	})

	It("should run operands once for each machine, and anew for a node that comes back", func() {
		create("g5.xlarge")
		Eventually(passing("nvidia.com/gpu")).Should(BeEquivalentTo(1))
		Expect(operand.started.Load()).To(BeEquivalentTo(1))
		Expect(env.Client.Delete(context.Background(), get())).To(Succeed())
		Eventually(operand.running.Load).Should(BeZero())
		create("g5.xlarge")
		Eventually(operand.started.Load).Should(BeEquivalentTo(2))
		Expect(allocatable("nvidia.com/gpu")).To(BeZero(), "its driver has not loaded yet")
	})
})
