package provisioning_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

func typesOf(c *scheduler.NodeClaim) []string {
	return lo.Map(c.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) string { return it.Name })
}

func capacityTypesOf(c *scheduler.NodeClaim) []string {
	q, _ := lo.Find(c.ToNodeClaim().Spec.Requirements, func(q karpv1.NodeSelectorRequirementWithMinValues) bool { return q.Key == karpv1.CapacityTypeLabelKey })
	return q.Values
}

var _ = Describe("Oversize cap", func() {
	capped := func(n int32) *v1alpha1.GPUPool {
		return gpuPool(func(s *v1alpha1.GPUPoolSpec) { s.Selection.MaxUnusedGPUs = lo.ToPtr(n) })
	}

	It("should keep a pod waiting and name the cheapest launch refused", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu8", 8, 16), gpuType("big8", 8, 20)}
		pods := gpuPods(1, 1)
		apply(pods, capped(1), nodePool())
		Expect(decide().NewNodeClaims).To(BeEmpty())
		Expect(messages(provisioning.RefusedOversize)).To(Equal("waiting: the cheapest launch, gpu8 (on-demand) at $16.00 per hour, leaves 7 of 8 GPUs unused and spec.selection.maxUnusedGPUs of GPUPool inference is 1; raise it, or let more pods share the node"))
	})

	It("should place as many as fill nodes, and let the others wait", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu4", 4, 4)}
		apply(gpuPods(9, 1), capped(0), nodePool())
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"gpu4=4", "gpu4=4"}))
		Expect(messages(provisioning.RefusedOversize)).To(Equal("waiting: the cheapest launch, gpu4 (on-demand) at $4.00 per hour, leaves 3 of 4 GPUs unused and spec.selection.maxUnusedGPUs of GPUPool inference is 0; raise it, or let more pods share the node"))
	})

	It("should spread pods over nodes where all then meet the cap", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu4", 4, 4)}
		apply(gpuPods(9, 1), capped(1), nodePool())
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"gpu4=3", "gpu4=3", "gpu4=3"}))
		Expect(messages(provisioning.RefusedOversize)).To(BeEmpty())
	})

	It("should use a smaller node that stock would not", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 4), gpuType("gpu8", 8, 16)}
		apply(gpuPods(5, 1), capped(0), nodePool())
		Expect(shapes(decide().NewNodeClaims)).To(HaveEach("gpu1=1"))
		Expect(messages(provisioning.RefusedOversize)).To(BeEmpty())
	})

	It("should take out of stock's claims the types that are too large", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu2", 2, 2), gpuType("gpu8", 8, 16)}
		pool := capped(1)
		pool.Spec.Selection.Objective = v1alpha1.ObjectiveStock
		apply(gpuPods(1, 1), pool, nodePool())
		results := decide()
		Expect(results.NewNodeClaims).To(HaveLen(1))
		Expect(typesOf(results.NewNodeClaims[0])).To(ConsistOf("gpu2"))
	})
})

var _ = Describe("Limits", func() {
	limited := func(gpus *int32, price *string) *v1alpha1.GPUPool {
		return gpuPool(func(s *v1alpha1.GPUPoolSpec) { s.Limits = v1alpha1.Limits{GPUs: gpus, PricePerHour: price} })
	}
	BeforeEach(func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 1), gpuType("gpu8", 8, 16)}
	})

	It("should hold limits.gpus over all NodePools of the pool and say so", func() {
		pods := gpuPods(5, 1)
		a, b := nodePool(), nodePool()
		apply(pods, limited(lo.ToPtr[int32](3), nil), a, b)
		results := decide()
		Expect(results.NewNodeClaims).To(HaveLen(3))
		Expect(messages(provisioning.RefusedGPULimit)).To(ContainSubstring("of spec.limits.gpus=3 GPUs, and the cheapest launch for the pod, "))
		launch(results)
		Expect(decide().NewNodeClaims).To(BeEmpty())
		Expect(messages(provisioning.RefusedGPULimit)).To(ContainSubstring("waiting: GPUPool inference has or is launching 3 of spec.limits.gpus=3 GPUs, and the cheapest launch for the pod, gpu1 (on-demand), has 1 GPUs at $1.00 per hour; raise the limit, or wait for nodes to go"))
	})

	It("should hold limits.pricePerHour to the last cent", func() {
		apply(gpuPods(5, 1), limited(nil, lo.ToPtr("2.99")), nodePool())
		results := decide()
		Expect(price(results.NewNodeClaims)).To(BeNumerically("~", 2, 1e-9))
		launch(results)
		Expect(decide().NewNodeClaims).To(BeEmpty())
		Expect(messages(provisioning.RefusedPriceLimit)).To(ContainSubstring("GPUPool inference spends or is about to spend $2.00 of spec.limits.pricePerHour=2.99 per hour, and the cheapest launch for the pod, gpu1 (on-demand), has 1 GPUs at $1.00 per hour"))
	})

	It("should count a NodeClaim that was created and is not seen yet", func() {
		np := nodePool()
		apply(gpuPods(1, 1), limited(lo.ToPtr[int32](1), nil), np)
		claim := decide().NewNodeClaims[0].ToNodeClaim()
		claim.Name = "on-its-way"
		ledger.Created(claim)
		Expect(decide().NewNodeClaims).To(BeEmpty())
	})

	It("should charge the worst of what a claim allows, and so allow little", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 1), gpuType("gpu2", 2, 1.01)}
		apply(gpuPods(4, 1), limited(lo.ToPtr[int32](4), nil), nodePool())
		results := decide()
		Expect(lo.SumBy(results.NewNodeClaims, func(c *scheduler.NodeClaim) int { return len(c.Pods) })).To(Equal(4))
		Expect(lo.SumBy(results.NewNodeClaims, func(c *scheduler.NodeClaim) int {
			return lo.Max(lo.Map(c.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) int { return provisioning.GPUs{}.Physical(it, nil) }))
		})).To(BeNumerically("<=", 4))
	})

	It("should refuse any launch that passes a limit, whoever asks for it", func() {
		np := nodePool()
		apply(nil, limited(lo.ToPtr[int32](8), nil), np)
		claim := func(name string) *karpv1.NodeClaim {
			return coretest.NodeClaim(karpv1.NodeClaim{ObjectMeta: metaOf(name, np.Name), Spec: karpv1.NodeClaimSpec{
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"gpu8"}}}}})
		}
		first, second := claim("a"), claim("b")
		ExpectApplied(ctx, env.Client, first, second)
		_, err := guarded.Create(ctx, first)
		Expect(err).NotTo(HaveOccurred())
		_, err = guarded.Create(ctx, second)
		Expect(cloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
		Expect(err).To(MatchError(ContainSubstring("launching would bring GPUPool inference to 16 GPUs and $32.00 per hour, over its limits (GPULimitReached)")))
	})
})

var _ = Describe("Order of capacity types", func() {
	ordered := func(types ...v1alpha1.CapacityType) *v1alpha1.GPUPool {
		return gpuPool(func(s *v1alpha1.GPUPoolSpec) { s.Selection.CapacityTypes = types })
	}
	BeforeEach(func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{
			gpuType("gpu1", 1, 1, offer("on-demand", zones[0], 1), offer("spot", zones[0], 0.4)),
			gpuType("gpu8", 8, 16, offer("on-demand", zones[0], 16), offer("spot", zones[0], 5)),
		}
	})

	It("should launch the first type of the order and none that is not listed", func() {
		apply(gpuPods(3, 1), ordered(v1alpha1.CapacityTypeOnDemand), nodePool())
		for _, c := range decide().NewNodeClaims {
			Expect(capacityTypesOf(c)).To(ConsistOf("on-demand"))
		}
	})

	It("should hold claims to one type at a time", func() {
		apply(gpuPods(3, 1), ordered(v1alpha1.CapacityTypeSpot, v1alpha1.CapacityTypeOnDemand), nodePool())
		results := decide()
		Expect(results.NewNodeClaims).To(HaveLen(3))
		for _, c := range results.NewNodeClaims {
			Expect(capacityTypesOf(c)).To(ConsistOf("spot"))
		}
	})

	It("should take the next type at once when the first is out, and come back when the pause ends", func() {
		np := nodePool()
		apply(gpuPods(1, 1), ordered(v1alpha1.CapacityTypeSpot, v1alpha1.CapacityTypeOnDemand), np)
		claim := decide().NewNodeClaims[0].ToNodeClaim()
		claim.Name = "spot-1"
		ExpectApplied(ctx, env.Client, claim)
		cloud.NextCreateErr = cloudprovider.NewInsufficientCapacityError(errors.New("none left"))
		_, err := guarded.Create(ctx, claim)
		Expect(cloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
		ExpectDeleted(ctx, env.Client, claim)
		cluster.DeleteNodeClaim(claim.Name)
		Expect(capacityTypesOf(decide().NewNodeClaims[0])).To(ConsistOf("on-demand"))
		env.Clock.Step(3 * minute)
		Expect(capacityTypesOf(decide().NewNodeClaims[0])).To(ConsistOf("spot"))
	})

	It("should not change what the provider returned", func() {
		apply(nil, ordered(v1alpha1.CapacityTypeOnDemand), nodePool())
		np := ExpectExists(ctx, env.Client, lo.Must(firstNodePool()))
		types := lo.Must(guarded.GetInstanceTypes(ctx, np))
		Expect(types[0].Offerings.Available()).To(HaveLen(1))
		Expect(cloud.InstanceTypes[0].Offerings.Available()).To(HaveLen(2))
	})
})

var _ = Describe("Pods without GPUs", func() {
	cpuPods := func(n int) []*corev1.Pod {
		return lo.Times(n, func(int) *corev1.Pod {
			return coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}})
		})
	}

	It("should not open a GPU node while another type can launch", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 0.1), machine("plain", 0, 4, 16, 0.2)}
		apply(cpuPods(3), gpuPool(nil), nodePool())
		for _, c := range decide().NewNodeClaims {
			Expect(typesOf(c)).To(ConsistOf("plain"))
		}
	})

	It("should not with minValues either", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 0.1), machine("plain", 0, 4, 16, 0.2)}
		np := nodePool()
		np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpExists, MinValues: lo.ToPtr(2)}}
		apply(cpuPods(1), gpuPool(nil), np)
		results := decide()
		Expect(results.NewNodeClaims).To(HaveLen(1))
		Expect(typesOf(results.NewNodeClaims[0])).To(ConsistOf("plain"))
		claim := results.NewNodeClaims[0].ToNodeClaim()
		Expect(claim.Annotations).To(HaveKeyWithValue(karpv1.NodeClaimMinValuesRelaxedAnnotationKey, "true"))
		for _, q := range claim.Spec.Requirements {
			if q.Key == corev1.LabelInstanceTypeStable {
				Expect(*q.MinValues).To(Equal(1))
			}
		}
	})

	It("should open one where nothing else can", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 1)}
		apply(cpuPods(1), gpuPool(nil), nodePool())
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"gpu1=1"}))
	})
})
