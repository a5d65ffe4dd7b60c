package cloudprovider_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

const (
	mig1g = "nvidia.com/mig-1g.10gb"
	mig2g = "nvidia.com/mig-2g.20gb"
	mig3g = "nvidia.com/mig-3g.40gb"
	mig4g = "nvidia.com/mig-4g.40gb"
	whole = "nvidia.com/gpu"
)

var _ = Describe("Scheduling with Karpenter's own scheduler", func() {
	Describe("MIG", func() {
		It("should put a 1g and a 2g pod on one node", func() {
			join(mixed("all-balanced", "all-1g.10gb"), only("p5.48xlarge"))
			Expect(podsPerClaim(schedule(append(pods(1, mig1g), pods(1, mig2g)...)...))).To(Equal([]int{2}))
		})
		It("should open a second node for what no layout holds together", func() {
			// 17 of 1g are more than all-balanced has on 8 GPUs, and all-1g.10gb has no 2g.
			join(mixed("all-balanced", "all-1g.10gb"), only("p5.48xlarge"))
			Expect(podsPerClaim(schedule(append(pods(17, mig1g), pods(1, mig2g)...)...))).To(HaveLen(2))
		})
		It("should keep whole GPUs and partitions on different nodes", func() {
			join(mixed("all-disabled", "all-balanced"), only("p5.48xlarge"))
			results := schedule(append(pods(2, whole), pods(2, mig1g)...)...)
			Expect(podsPerClaim(results)).To(Equal([]int{2, 2}))
		})
		It("should hand out no whole GPU without all-disabled among the layouts", func() {
			join(mixed("all-balanced"), only("p5.48xlarge"))
			Expect(schedule(pods(1, whole)...).NewNodeClaims).To(BeEmpty())
		})
		It("should leave out types without MIG", func() {
			join(mixed("all-disabled"))
			Expect(optionsOf(schedule(pods(1, whole)...))).To(Equal([]string{"p4d.24xlarge", "p5.48xlarge", "p5.4xlarge"}))
		})
		It("should give seven 1g one GPU and the eighth exactly one more", func() {
			join(profiles("1g.10gb", "3g.40gb"), only("p5.4xlarge"))
			Expect(podsPerClaim(schedule(pods(7, mig1g)...))).To(Equal([]int{7}))
			ExpectCleanedUp(ctx, env.Client)
			join(profiles("1g.10gb", "3g.40gb"), only("p5.4xlarge"))
			Expect(podsPerClaim(schedule(pods(8, mig1g)...))).To(Equal([]int{1, 7}))
		})
		It("should give two 3g and one 1g two GPUs, and 4g with 3g one", func() {
			join(profiles("1g.10gb", "3g.40gb", "4g.40gb"), only("p5.4xlarge"))
			Expect(podsPerClaim(schedule(append(pods(2, mig3g), pods(1, mig1g)...)...))).To(HaveLen(2))
			ExpectCleanedUp(ctx, env.Client)
			join(profiles("1g.10gb", "3g.40gb", "4g.40gb"), only("p5.4xlarge"))
			Expect(podsPerClaim(schedule(append(pods(1, mig4g), pods(1, mig3g)...)...))).To(Equal([]int{2}))
		})
		It("should plan a layout of mixed contents where that saves a node", func() {
			nodePool := join(profiles("1g.10gb", "3g.40gb"), only("p5.48xlarge"))
			work := append(pods(14, mig3g), pods(7, mig1g)...)
			Expect(podsPerClaim(schedule(work...))).To(HaveLen(2))
			resolve(pools.Request{NodePools: []string{nodePool.Name}, Demand: map[string]int{"3g.40gb": 14, "1g.10gb": 7}}, profiles("1g.10gb", "3g.40gb"))
			Expect(podsPerClaim(schedule())).To(Equal([]int{21}))
		})
		It("should name every partition nvidia.com/gpu with strategy Single", func() {
			partitioning := mixed("all-1g.10gb")
			partitioning.MIG.Strategy = v1alpha1.MIGStrategySingle
			join(partitioning, only("p5.48xlarge"))
			Expect(podsPerClaim(schedule(pods(56, whole)...))).To(Equal([]int{56}))
			Expect(podsPerClaim(schedule(pods(1, whole)...))).To(Equal([]int{1, 56}))
		})
		It("should let pods select a layout", func() {
			join(mixed("all-1g.10gb", "all-2g.20gb"), only("p5.48xlarge"))
			select2g := coretest.PodOptions{NodeSelector: map[string]string{v1alpha1.LayoutLabelKey: "all-2g.20gb"}}
			Expect(schedule(pods(1, mig1g, select2g)...).NewNodeClaims).To(BeEmpty())
			claims := launch(schedule(pods(1, mig2g, select2g)...))
			Expect(claims).To(HaveLen(1))
			Expect(claims[0].Labels).To(HaveKeyWithValue(v1alpha1.MIGConfigLabelKey, "all-2g.20gb"))
		})
		It("should place later pods on the partitions that a node has left", func() {
			join(mixed("all-balanced"), only("p5.48xlarge"))
			launch(schedule(pods(1, mig1g)...))
			Expect(schedule(append(pods(14, mig1g), pods(8, mig3g)...)...).NewNodeClaims).To(BeEmpty())
			Expect(podsPerClaim(schedule(pods(2, mig1g)...))).To(Equal([]int{1}))
		})
	})

	Describe("sharing", func() {
		It("should put four pods on one GPU of four replicas", func() {
			join(slicing(4, false), only("g5.xlarge"))
			Expect(podsPerClaim(schedule(pods(4, whole)...))).To(Equal([]int{4}))
			Expect(podsPerClaim(schedule(pods(1, whole)...))).To(Equal([]int{1, 4}))
		})
		It("should multiply each GPU, not the node", func() {
			join(slicing(4, false), only("p5.48xlarge"))
			Expect(podsPerClaim(schedule(pods(32, whole)...))).To(Equal([]int{32}))
		})
		It("should offer renamed replicas and no whole GPU", func() {
			join(slicing(4, true), only("g5.xlarge"))
			Expect(podsPerClaim(schedule(pods(4, string(v1alpha1.ResourceGPUShared))...))).To(Equal([]int{4}))
			Expect(podsPerClaim(schedule(pods(1, whole)...))).To(Equal([]int{4}))
		})
	})

	Describe("labels of GPU feature discovery", func() {
		DescribeTable("should find the types that will have them",
			func(want []string, key string, op corev1.NodeSelectorOperator, values ...string) {
				join(nil)
				Expect(optionsOf(schedule(pods(1, whole, selecting(key, op, values...))...))).To(Equal(want))
			},
			Entry("product In", []string{"g5.xlarge"}, "nvidia.com/gpu.product", corev1.NodeSelectorOpIn, "NVIDIA-A10G"),
			Entry("product NotIn", []string{"g5.xlarge", "g6e.xlarge", "p4d.24xlarge"}, "nvidia.com/gpu.product", corev1.NodeSelectorOpNotIn, "NVIDIA-H100-80GB-HBM3"),
			Entry("memory Gt", []string{"g6e.xlarge", "p4d.24xlarge", "p5.48xlarge", "p5.4xlarge"}, "nvidia.com/gpu.memory", corev1.NodeSelectorOpGt, "39999"),
			Entry("compute capability Gt", []string{"p5.48xlarge", "p5.4xlarge"}, "nvidia.com/gpu.compute.major", corev1.NodeSelectorOpGt, "8"),
			Entry("count Lt, with a type for which EC2 says 0", []string{"g5.xlarge", "g6e.xlarge", "p5.4xlarge"}, "nvidia.com/gpu.count", corev1.NodeSelectorOpLt, "2"),
			Entry("Exists", []string{"g5.xlarge", "g6e.xlarge", "p4d.24xlarge", "p5.48xlarge", "p5.4xlarge"}, "nvidia.com/gpu.family", corev1.NodeSelectorOpExists),
			Entry("an impossible product", []string{}, "nvidia.com/gpu.product", corev1.NodeSelectorOpIn, "NVIDIA-A10"),
			Entry("an impossible memory", []string{}, "nvidia.com/gpu.memory", corev1.NodeSelectorOpGt, "200000"),
		)
		DescribeTable("should hold for requirements of NodePools",
			func(want []string, op corev1.NodeSelectorOperator, value string) {
				join(nil, require("nvidia.com/gpu.memory", op, value))
				Expect(optionsOf(schedule(pods(1, whole)...))).To(Equal(want))
			},
			Entry("Gte", []string{"p5.48xlarge", "p5.4xlarge"}, karpv1.NodeSelectorOpGte, "80000"),
			Entry("Lte", []string{"g5.xlarge"}, karpv1.NodeSelectorOpLte, "24000"),
		)
		It("should open no CPU node for a pod that asks for a label only", func() {
			join(nil)
			only := asking(1, nil, selecting("nvidia.com/gpu.product", corev1.NodeSelectorOpExists))
			Expect(optionsOf(schedule(only...))).NotTo(ContainElement("c6i.large"))
		})
		It("should see the labels on nodes that are not there yet", func() {
			join(nil, only("g5.xlarge", "p4d.24xlarge"))
			a100 := coretest.PodOptions{NodeSelector: map[string]string{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}}
			claims := launch(schedule(pods(1, whole, a100)...))
			Expect(claims).To(HaveLen(1))
			Expect(schedule(pods(7, whole, a100)...).NewNodeClaims).To(BeEmpty())
		})
		It("should know the suffix of shared GPUs", func() {
			join(slicing(2, false))
			shared := coretest.PodOptions{NodeSelector: map[string]string{"nvidia.com/gpu.product": "NVIDIA-A10G-SHARED"}}
			Expect(optionsOf(schedule(pods(1, whole, shared)...))).To(Equal([]string{"g5.xlarge"}))
		})
	})

	Describe("NodePools outside of GPUPools", func() {
		product := coretest.PodOptions{NodeSelector: map[string]string{"nvidia.com/gpu.product": "NVIDIA-A10G"}}

		It("should open nothing for labels that stock Karpenter cannot promise", func() {
			ExpectApplied(ctx, env.Client, coretest.NodePool())
			Expect(schedule(append(pods(1, whole, product), asking(1, nil, product)...)...).NewNodeClaims).To(BeEmpty())
		})
		It("should treat a label that the NodePool defines as the user's own", func() {
			nodePool := coretest.NodePool()
			nodePool.Spec.Template.Labels = product.NodeSelector
			ExpectApplied(ctx, env.Client, nodePool)
			claims := launch(schedule(pods(1, whole, product)...))
			Expect(claims).To(HaveLen(1))
			Expect(claims[0].Labels).To(HaveKeyWithValue("nvidia.com/gpu.product", "NVIDIA-A10G"))
		})
		It("should put a label on nodes that the NodePool requires", func() {
			nodePool := coretest.NodePool()
			require("nvidia.com/gpu.product", corev1.NodeSelectorOpIn, "NVIDIA-A10G")(nodePool)
			ExpectApplied(ctx, env.Client, nodePool)
			claims := launch(schedule(pods(1, whole, product)...))
			Expect(claims).To(HaveLen(1))
			Expect(claims[0].Labels).To(HaveKeyWithValue("nvidia.com/gpu.product", "NVIDIA-A10G"))
		})
		It("should predict labels for all of them when asked to", func() {
			start(cloudprovider.Options{PredictAll: true})
			ExpectApplied(ctx, env.Client, coretest.NodePool())
			claims := launch(schedule(pods(1, whole, product)...))
			Expect(claims).To(HaveLen(1))
			Expect(claims[0].Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "g5.xlarge"))
			Expect(claims[0].Labels).To(HaveKeyWithValue("nvidia.com/gpu.product", "NVIDIA-A10G"))
		})
	})

	It("should open nothing in a NodePool whose GPUPool has not been evaluated", func() {
		join(nil)
		store = &pools.Store{}
		start(cloudprovider.Options{})
		for _, p := range pods(1, whole) {
			ExpectApplied(ctx, env.Client, p)
		}
		results, err := provisioner.Schedule(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(results.NewNodeClaims).To(BeEmpty())
	})
})
