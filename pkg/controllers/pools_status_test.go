package controllers_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/node/prediction"
)

// condition matches a condition of the pool.
func condition(p *v1alpha1.GPUPool, name string, status metav1.ConditionStatus, reason string, message gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	c := p.StatusConditions().Get(name)
	Expect(c).NotTo(BeNil())
	Expect(c.Status).To(Equal(status), c.Message)
	Expect(c.Reason).To(Equal(reason))
	Expect(c.Message).To(message)
}

// expectGauge looks at a gauge of the pool.
func expectGauge(name string, value float64) {
	GinkgoHelper()
	metric, found := FindMetricWithLabelValues(name, map[string]string{"gpupool": poolName})
	Expect(found).To(BeTrue(), name)
	Expect(metric.GetGauge().GetValue()).To(Equal(value), name)
}

var _ = Describe("Status", func() {
	It("should say that nobody has joined", func() {
		ExpectApplied(ctx, env.Client, gpuPool(nil))
		resolve()
		p := update()
		condition(p, v1alpha1.ConditionTypeNodePoolsResolved, "False", "NoNodePools", Equal("No NodePool has the label karpenter-gpu.dev/pool with the name of this pool; set it in metadata.labels of a NodePool"))
		condition(p, v1alpha1.ConditionTypeValidationSucceeded, "True", "ValidationSucceeded", BeEmpty())
	})

	It("should say what is wrong with the spec", func() {
		ExpectApplied(ctx, env.Client, gpuPool(layouts("all-9g.1gb")), nodePool("member"))
		resolve()
		p := update()
		condition(p, v1alpha1.ConditionTypeValidationSucceeded, "False", "InvalidSpec", And(HavePrefix("The NodePools of this pool behave as plain Karpenter until the spec is corrected: "), ContainSubstring(`"all-9g.1gb"`)))
		condition(p, v1alpha1.ConditionTypePartitioningSupported, "Unknown", "NotResolved", ContainSubstring("ValidationSucceeded"))
	})

	It("should say which NodePools cannot be used, and why", func() {
		unready := nodePool("unready")
		unready.StatusConditions().SetFalse(karpv1.ConditionTypeNodeClassReady, "NodeClassNotReady", "the NodeClass has no subnets")
		ExpectApplied(ctx, env.Client, gpuPool(nil), nodePool("cpu", "c6i.large"), unready)
		resolve()
		condition(update(), v1alpha1.ConditionTypeNodePoolsResolved, "False", "NodePoolsNotReady", Equal(
			"NodePools cannot be used: cpu allows no instance type with NVIDIA GPUs; widen its requirements, or take it out of the pool; unready is not ready: the NodeClass has no subnets"))
	})

	It("should say which types are left out, and which layouts nobody has", func() {
		ExpectApplied(ctx, env.Client, gpuPool(layouts("all-balanced", "all-1g.24gb")), nodePool("member", "g5.xlarge", "p5.48xlarge"))
		resolve()
		condition(update(), v1alpha1.ConditionTypePartitioningSupported, "True", "TypesExcluded", Equal(
			"left out: g5.xlarge (NVIDIA A10G has no MIG). on no allowed type: all-1g.24gb"))
	})

	It("should say that no type will do", func() {
		ExpectApplied(ctx, env.Client, gpuPool(layouts("all-balanced")), nodePool("member", "g5.xlarge"))
		resolve()
		condition(update(), v1alpha1.ConditionTypePartitioningSupported, "False", "NoSupportedTypes", Equal(
			"No instance type that the NodePools allow can be divided so: g5.xlarge (NVIDIA A10G has no MIG); allow other types, or change spec.partitioning"))
	})

	It("should be content with whole GPUs", func() {
		ExpectApplied(ctx, env.Client, gpuPool(nil), nodePool("member"))
		resolve()
		p := update()
		condition(p, v1alpha1.ConditionTypeNodePoolsResolved, "True", "NodePoolsResolved", BeEmpty())
		condition(p, v1alpha1.ConditionTypePartitioningSupported, "True", "PartitioningSupported", BeEmpty())
	})

	It("should count nodes, GPUs by state, layouts and the price", func() {
		member := nodePool("member")
		launched, _ := nodeOf(member, "p5.48xlarge", map[string]string{v1alpha1.LayoutLabelKey: "all-balanced"})
		ready, readyNode := nodeOf(member, "p5.4xlarge", map[string]string{v1alpha1.LayoutLabelKey: "all-balanced"})
		readyNode.Labels[karpv1.NodeInitializedLabelKey] = "true"
		fenced, fencedNode := nodeOf(member, "p5.4xlarge", map[string]string{v1alpha1.LayoutLabelKey: "all-1g.10gb"})
		fencedNode.Labels[karpv1.NodeInitializedLabelKey] = "true"
		fencedNode.Spec.Taints = append(fencedNode.Spec.Taints, v1alpha1.UnverifiedTaint())
		unlaunched, _ := nodeOf(member, "p5.48xlarge", nil)
		unlaunched.Status.ProviderID = ""
		cpu, cpuNode := nodeOf(member, "c6i.large", nil)
		ExpectApplied(ctx, env.Client, gpuPool(layouts("all-balanced", "all-1g.10gb")), member, launched, ready, readyNode, fenced, fencedNode, unlaunched, cpu, cpuNode)
		resolve()
		p := update()
		Expect(p.Status.NodePools).To(BeEquivalentTo(1))
		Expect(p.Status.Nodes).To(BeEquivalentTo(4))
		Expect(p.Status.GPUs).To(Equal(v1alpha1.GPUCounts{Ready: 1, Provisioning: 8, Unhealthy: 1, Total: 10}))
		Expect(p.Status.PricePerHour).To(Equal("68.885"), "55.04 + 2 × 6.88 + 0.085")
		price, found := FindMetricWithLabelValues("karpenter_gpu_pool_price_dollars_per_hour", map[string]string{"gpupool": p.Name})
		Expect(found).To(BeTrue())
		Expect(price.GetGauge().GetValue()).To(Equal(68.885))
		available, found := FindMetricWithLabelValues("karpenter_gpu_pool_gpus", map[string]string{"gpupool": p.Name, "state": "ready"})
		Expect(found).To(BeTrue())
		Expect(available.GetGauge().GetValue()).To(BeEquivalentTo(p.Status.GPUs.Ready))
		Expect(p.Status.Layouts).To(Equal([]v1alpha1.LayoutStatus{{Name: "all-1g.10gb", Nodes: 1}, {Name: "all-balanced", Nodes: 2}}))
		Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))
	})

	It("should have the limits as metrics while there are limits", func() {
		p := gpuPool(nil)
		p.Spec.Limits = v1alpha1.Limits{GPUs: lo.ToPtr(int32(16)), PricePerHour: lo.ToPtr("120.5")}
		ExpectApplied(ctx, env.Client, p, nodePool("member"))
		resolve()
		update()
		expectGauge("karpenter_gpu_pool_gpus_limit", 16)
		expectGauge("karpenter_gpu_pool_price_limit_dollars_per_hour", 120.5)

		p.Spec.Limits = v1alpha1.Limits{}
		ExpectApplied(ctx, env.Client, p)
		update()
		for _, name := range []string{"karpenter_gpu_pool_gpus_limit", "karpenter_gpu_pool_price_limit_dollars_per_hour"} {
			_, found := FindMetricWithLabelValues(name, map[string]string{"gpupool": poolName})
			Expect(found).To(BeFalse(), name)
		}
		expectGauge("karpenter_gpu_pool_nodes", 0)
	})

	It("should take the metrics of a pool that is gone away", func() {
		p := gpuPool(nil)
		ExpectApplied(ctx, env.Client, p, nodePool("member"))
		resolve()
		update()
		expectGauge("karpenter_gpu_pool_price_dollars_per_hour", 0)
		ExpectDeleted(ctx, env.Client, p)
		_, err := statuses.LookUp(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"karpenter_gpu_pool_gpus", "karpenter_gpu_pool_nodes", "karpenter_gpu_pool_price_dollars_per_hour"} {
			_, found := FindMetricWithLabelValues(name, map[string]string{"gpupool": poolName})
			Expect(found).To(BeFalse(), name)
		}
	})

	It("should write only what has changed", func() {
		ExpectApplied(ctx, env.Client, gpuPool(nil), nodePool("member"))
		resolve()
		before := update().ResourceVersion
		Expect(update().ResourceVersion).To(Equal(before))
	})

	It("should look at a pool once a second at most, but at an edit at once", func() {
		p := gpuPool(nil)
		ExpectApplied(ctx, env.Client, p, nodePool("member"))
		resolve()
		update()
		Expect(ExpectObjectReconciled(ctx, env.Client, statuses, p).RequeueAfter).To(BeNumerically("<=", 1e9))
		p.Spec.Partitioning = slicing(2)
		ExpectApplied(ctx, env.Client, p)
		Expect(ExpectObjectReconciled(ctx, env.Client, statuses, p).RequeueAfter).To(BeNumerically(">", 1e9))
	})

	It("should leave the conditions of others alone", func() {
		p := gpuPool(nil)
		ExpectApplied(ctx, env.Client, p, nodePool("member"))
		resolve()
		update()
		Expect(direct.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		p.StatusConditions().SetFalse(v1alpha1.ConditionTypeGateSafe, v1alpha1.ReasonAgentMissing, "no agent")
		ExpectApplied(ctx, env.Client, p)
		condition(update(), v1alpha1.ConditionTypeGateSafe, "False", "AgentMissing", Equal("no agent"))
	})
})

var _ = Describe("Predicted labels", func() {
	var claim *karpv1.NodeClaim
	var node *corev1.Node

	BeforeEach(func() {
		claim, node = nodeOf(nodePool("member"), "g5.xlarge", map[string]string{"nvidia.com/gpu.product": "NVIDIA-A10G", "nvidia.com/gpu.memory": "23028"})
		node.Labels[karpv1.NodeInitializedLabelKey] = "true"
	})

	It("should tell of a label that differs, once", func() {
		node.Labels["nvidia.com/gpu.memory"] = "24576"
		ExpectApplied(ctx, env.Client, claim, node)
		for range 3 {
			ExpectObjectReconciled(ctx, env.Client, predictions, node)
		}
		Expect(recorder.Calls("GPULabelDiffers")).To(Equal(1))
		Expect(recorder.DetectedEvent(`Label nvidia.com/gpu.memory is "24576" and was predicted to be "23028" for instance type g5.xlarge; pods that select it will not find such nodes. Correct the catalogue with --gpu-catalog-file`)).To(BeTrue())
		ExpectMetricCounterValue(prediction.MismatchesTotal, 1, map[string]string{"label": "nvidia.com/gpu.memory", "predicted": "23028", "actual": "24576", "instance_type": "g5.xlarge"})
	})

	It("should not tell of labels that agree, are not there, or are on their way", func() {
		ExpectApplied(ctx, env.Client, claim, node)
		ExpectObjectReconciled(ctx, env.Client, predictions, node)
		node.Labels["nvidia.com/gpu.memory"] = "1"
		node.Labels[v1alpha1.MIGConfigStateLabelKey] = "pending"
		ExpectApplied(ctx, env.Client, node)
		ExpectObjectReconciled(ctx, env.Client, predictions, node)
		Expect(recorder.Calls("GPULabelDiffers")).To(Equal(0))
	})
})

var _ = Describe("Impossible pods", func() {
	DescribeTable("should be told what comes nearest",
		func(want string, p *v1alpha1.Partitioning, pod func() *corev1.Pod) {
			ExpectApplied(ctx, env.Client, gpuPool(p), nodePool("member"))
			resolve()
			asked := pod()
			ExpectApplied(ctx, env.Client, asked)
			ExpectObjectReconciled(ctx, env.Client, selectors, asked)
			if want == "" {
				Expect(recorder.Events()).To(BeEmpty())
				return
			}
			Expect(recorder.Events()).To(ConsistOf(HaveField("Message", want)))
		},
		Entry("a misspelled product", "No node of any NodePool can have nvidia.com/gpu.product In [NVIDIA-A10]; nearest possible is nvidia.com/gpu.product=NVIDIA-A10G", nil, selectingPod("nvidia.com/gpu.product", corev1.NodeSelectorOpIn, "NVIDIA-A10")),
		Entry("too much memory", "No node of any NodePool can have nvidia.com/gpu.memory Gt [200000]; nearest possible is nvidia.com/gpu.memory=81559", nil, selectingPod("nvidia.com/gpu.memory", corev1.NodeSelectorOpGt, "200000")),
		Entry("nothing that is possible", "", nil, selectingPod("nvidia.com/gpu.product", corev1.NodeSelectorOpIn, "NVIDIA-A10G")),
		Entry("nothing for a NotIn", "", nil, selectingPod("nvidia.com/gpu.product", corev1.NodeSelectorOpNotIn, "NVIDIA-A10G")),
		Entry("a profile that the pool does not offer", "No GPUPool offers nvidia.com/mig-7g.80gb; offered are nvidia.com/mig-1g.10gb, nvidia.com/mig-1g.5gb, nvidia.com/mig-2g.10gb, nvidia.com/mig-2g.20gb, nvidia.com/mig-3g.20gb, nvidia.com/mig-3g.40gb", layouts("all-balanced"), func() *corev1.Pod { return pending("nvidia.com/mig-7g.80gb") }),
		Entry("a profile where nobody has MIG", "No GPUPool offers nvidia.com/mig-1g.10gb; none has MIG partitions: set spec.partitioning.mig on one", nil, func() *corev1.Pod { return pending("nvidia.com/mig-1g.10gb") }),
	)

	It("should not be told so while a node has the label", func() {
		_, node := nodeOf(nodePool("local"), "on-premises", map[string]string{"nvidia.com/gpu.product": "NVIDIA-A10"})
		node.Labels["nvidia.com/gpu.product"] = "NVIDIA-A10"
		ExpectApplied(ctx, env.Client, gpuPool(nil), nodePool("member"), node)
		resolve()
		asked := selectingPod("nvidia.com/gpu.product", corev1.NodeSelectorOpIn, "NVIDIA-A10")()
		ExpectApplied(ctx, env.Client, asked)
		ExpectObjectReconciled(ctx, env.Client, selectors, asked)
		Expect(recorder.Events()).To(BeEmpty())
	})
})
