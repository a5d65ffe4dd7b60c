package provisioning_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

var _ = Describe("Right-sizing", func() {
	BeforeEach(func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 1), gpuType("gpu8", 8, 16)}
	})

	It("should give ten 1-GPU pods ten 1-GPU nodes where stock takes two 8-GPU nodes", func() {
		pods := gpuPods(10, 1)
		apply(pods, gpuPool(nil), nodePool())
		before := lo.Must(inner.Schedule(ctx))
		Expect(shapes(before.NewNodeClaims)).To(Equal([]string{"gpu8=2", "gpu8=8"}))
		results := decide()
		Expect(shapes(results.NewNodeClaims)).To(HaveLen(10))
		Expect(shapes(results.NewNodeClaims)).To(HaveEach("gpu1=1"))
		Expect(placed(results.NewNodeClaims)).To(Equal(names(pods)))
		nodes := launch(results)
		Expect(nodes).To(HaveLen(10))
		for _, n := range nodes {
			Expect(n.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "gpu1"))
		}
		ExpectPodsScheduled(ctx, env.Client, pods...)
	})

	It("should form NodeClaims as stock forms them", func() {
		pods := gpuPods(1, 1)
		np := nodePool(karpv1.NodePool{Spec: karpv1.NodePoolSpec{Template: karpv1.NodeClaimTemplate{
			ObjectMeta: karpv1.ObjectMeta{Labels: map[string]string{"team": "vision"}, Annotations: map[string]string{"note": "kept"}}}}})
		apply(pods, gpuPool(nil), np)
		before := lo.Must(inner.Schedule(ctx)).NewNodeClaims[0].ToNodeClaim()
		more := gpuPods(1, 1)
		apply(more)
		for _, c := range decide().NewNodeClaims {
			claim := c.ToNodeClaim()
			Expect(claim.Labels).To(Equal(before.Labels))
			Expect(claim.Annotations).To(Equal(before.Annotations))
			Expect(claim.OwnerReferences).To(Equal(before.OwnerReferences))
			Expect(claim.GenerateName).To(Equal(before.GenerateName))
			Expect(claim.Spec.Resources).To(Equal(before.Spec.Resources))
			keys := func(n *karpv1.NodeClaim) []string {
				return lo.Map(n.Spec.Requirements, func(q karpv1.NodeSelectorRequirementWithMinValues, _ int) string { return q.Key })
			}
			Expect(keys(claim)).To(ConsistOf(keys(before)))
		}
	})

	It("should leave NodePools without a pool to stock", func() {
		apply(gpuPods(10, 1), gpuPool(nil), coretest.NodePool(karpv1.NodePool{Spec: karpv1.NodePoolSpec{Limits: karpv1.Limits{}}}))
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"gpu8=2", "gpu8=8"}))
	})

	It("should leave a pool with objective Stock to stock", func() {
		apply(gpuPods(10, 1), gpuPool(func(s *v1alpha1.GPUPoolSpec) { s.Selection.Objective = v1alpha1.ObjectiveStock }), nodePool())
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"gpu8=2", "gpu8=8"}))
	})

	It("should leave NodePools of a missing pool to stock", func() {
		apply(gpuPods(10, 1), nodePool())
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"gpu8=2", "gpu8=8"}))
	})

	It("should keep the stock decision where it is as cheap", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 1), gpuType("gpu8", 8, 8)}
		apply(gpuPods(8, 1), gpuPool(nil), nodePool())
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"gpu8=8"}))
	})

	It("should offer every type within the tolerance, and none beyond", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("a", 1, 1), gpuType("b", 1, 1.05), gpuType("c", 1, 1.2), gpuType("gpu8", 8, 16)}
		apply(gpuPods(2, 1), gpuPool(nil), nodePool())
		for _, c := range decide().NewNodeClaims {
			Expect(lo.Map(c.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) string { return it.Name })).To(ConsistOf("a", "b"))
		}
	})

	It("should keep as many types as minValues asks for", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("a", 1, 1), gpuType("b", 1, 2), gpuType("c", 1, 3), gpuType("d", 1, 9),
			gpuType("gpu8a", 8, 32), gpuType("gpu8b", 8, 33), gpuType("gpu8c", 8, 34)}
		np := nodePool()
		np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpExists, MinValues: lo.ToPtr(3)}}
		apply(gpuPods(2, 1), gpuPool(nil), np)
		results := decide()
		Expect(results.NewNodeClaims).To(HaveLen(2))
		for _, c := range results.NewNodeClaims {
			Expect(lo.Map(c.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) string { return it.Name })).To(ConsistOf("a", "b", "c"))
		}
	})

	It("should pack by what daemons leave", func() {
		ds := coretest.DaemonSet(coretest.DaemonSetOptions{PodOptions: coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}})
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 1), machine("roomy1", 1, 8, 32, 1.5), gpuType("gpu8", 8, 16)}
		apply(gpuPods(3, 1), gpuPool(nil), nodePool(), ds)
		// 4 CPUs less 100m of the system and 2 of the daemon do not hold a pod of 2
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"roomy1=1", "roomy1=1", "roomy1=1"}))
	})

	It("should cross NodePools of equal weight and respect different ones", func() {
		cloud.InstanceTypesForNodePool = map[string][]*cloudprovider.InstanceType{
			"a-large": {gpuType("gpu8", 8, 16)}, "b-small": {gpuType("gpu1", 1, 1)}}
		large := nodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a-large"}})
		small := nodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "b-small"}})
		large.Spec.Weight = lo.ToPtr[int32](10)
		apply(gpuPods(4, 1), gpuPool(nil), large, small)
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"gpu8=4"}))
		large.Spec.Weight = lo.ToPtr[int32](1)
		small.Spec.Weight = lo.ToPtr[int32](1)
		ExpectApplied(ctx, env.Client, large, small)
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"gpu1=1", "gpu1=1", "gpu1=1", "gpu1=1"}))
	})

	It("should hold the limits of NodePools", func() {
		np := nodePool()
		np.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: resource.MustParse("12")}
		apply(gpuPods(3, 1), gpuPool(nil), np)
		results := decide()
		Expect(price(results.NewNodeClaims)).To(BeNumerically("<=", 3))
		Expect(lo.SumBy(results.NewNodeClaims, func(c *scheduler.NodeClaim) int {
			return int(lo.Max(lo.Map(c.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) int64 { return it.Capacity.Cpu().Value() })))
		})).To(BeNumerically("<=", 12))
	})

	It("should keep stock's decision when the search fails", func() {
		apply(gpuPods(10, 1), gpuPool(nil), nodePool())
		cloud.InstanceTypes = append(cloud.InstanceTypes, gpuType("broken", 1, -0.5))
		cloud.InstanceTypes[2].Offerings = nil // no price, no place
		Expect(shapes(decide().NewNodeClaims)).To(HaveLen(10))
		cloud.InstanceTypes[2] = gpuType("nan", 1, math.NaN()) // a price that nothing can be compared with
		Expect(shapes(decide().NewNodeClaims)).To(HaveLen(2))
	})

	It("should leave nothing behind when it dies between decision and launch", func() {
		pods := gpuPods(10, 1)
		apply(pods, gpuPool(nil), nodePool())
		first := shapes(decide().NewNodeClaims)
		start() // another process
		Expect(ExpectNodeClaims(ctx, env.Client)).To(BeEmpty())
		results := decide()
		Expect(shapes(results.NewNodeClaims)).To(Equal(first))
		launch(results)
		Expect(ExpectNodeClaims(ctx, env.Client)).To(HaveLen(10))
		Expect(decide().NewNodeClaims).To(BeEmpty())
	})

	It("should never cost more than stock, and place as many pods", func() {
		apply(nil, gpuPool(nil), nodePool())
		for seed := range uint64(12) {
			rng := rand.New(rand.NewPCG(seed, 7))
			cloud.InstanceTypes = lo.Times(2+rng.IntN(6), func(i int) *cloudprovider.InstanceType {
				gpus := 1 << rng.IntN(4)
				return machine(fmt.Sprintf("m%d", i), gpus, gpus*(2+rng.IntN(8)), gpus*(8+rng.IntN(40)), float64(gpus)*(0.5+rng.Float64()*2))
			})
			var pods []*corev1.Pod
			for range 5 + rng.IntN(25) {
				o := coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(fmt.Sprintf("%dm", 100+rng.IntN(4000)))},
					Limits:   corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse(fmt.Sprint(1 << rng.IntN(3)))}}}
				if rng.IntN(4) == 0 {
					o.NodeSelector = map[string]string{corev1.LabelTopologyZone: zones[rng.IntN(3)]}
				}
				pods = append(pods, coretest.UnschedulablePod(o))
			}
			apply(pods)
			before := lo.Must(inner.Schedule(ctx)).NewNodeClaims
			after := decide().NewNodeClaims
			Expect(placed(after)).To(Equal(placed(before)), "seed %d", seed)
			Expect(price(after)).To(BeNumerically("<=", price(before)+1e-9), "seed %d", seed)
			for _, p := range pods {
				ExpectDeleted(ctx, env.Client, p)
			}
		}
	})
})
