package cloudprovider_test

import (
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

func shown(nodePool *karpv1.NodePool, name string) *corecloudprovider.InstanceType {
	GinkgoHelper()
	its, err := outer.GetInstanceTypes(ctx, nodePool)
	Expect(err).NotTo(HaveOccurred())
	it, ok := lo.Find(its, func(it *corecloudprovider.InstanceType) bool { return it.Name == name })
	Expect(ok).To(BeTrue(), name)
	return it
}

func layoutsOf(offerings corecloudprovider.Offerings) []string {
	return lo.Uniq(lo.Map(offerings, func(o *corecloudprovider.Offering, _ int) string {
		return o.Requirements.Get(v1alpha1.LayoutLabelKey).Any()
	}))
}

var _ = Describe("GetInstanceTypes", func() {
	It("should make offerings of each layout, whole GPUs first, at equal prices", func() {
		it := shown(join(mixed("all-balanced", "all-disabled", "all-1g.10gb")), "p5.48xlarge")
		Expect(layoutsOf(it.Offerings)).To(Equal([]string{"all-disabled", "all-1g.10gb", "all-balanced"}))
		Expect(it.Offerings).To(HaveLen(12))
		price, _ := it.OfferingPrice("test-zone-1", "spot")
		for _, o := range it.Offerings.Compatible(scheduling.NewLabelRequirements(map[string]string{"topology.kubernetes.io/zone": "test-zone-1", karpv1.CapacityTypeLabelKey: "spot"})) {
			Expect(o.Price).To(Equal(price))
		}
		groups := it.AllocatableOfferingsList()
		Expect(groups).To(HaveLen(3))
		Expect(amounts(groups[0].Allocatable)).To(Equal(map[string]int64{whole: 8}))
		Expect(amounts(groups[1].Allocatable)).To(Equal(map[string]int64{whole: 0, mig1g: 56}))
		Expect(amounts(groups[2].Allocatable)).To(Equal(map[string]int64{whole: 0, mig1g: 16, mig2g: 8, mig3g: 8}))
		Expect(amounts(it.Capacity)).To(Equal(map[string]int64{whole: 8}), "limits count physical GPUs")
	})

	It("should mean other partitions by one name on other models", func() {
		nodePool := join(mixed("all-balanced"))
		balanced := shown(nodePool, "p4d.24xlarge").AllocatableOfferingsList()[1]
		Expect(amounts(balanced.Allocatable)).To(Equal(map[string]int64{whole: 0, "nvidia.com/mig-1g.5gb": 16, "nvidia.com/mig-2g.10gb": 8, "nvidia.com/mig-3g.20gb": 8}))
	})

	It("should keep a layout that nodes carry, and launch it no more", func() {
		nodePool := join(mixed("all-balanced"))
		resolve(pools.Request{NodePools: []string{nodePool.Name}, Carried: []string{"all-2g.20gb", "all-balanced"}}, mixed("all-balanced"))
		it := shown(nodePool, "p5.48xlarge")
		Expect(layoutsOf(it.Offerings)).To(Equal([]string{"all-balanced", "all-2g.20gb"}))
		Expect(layoutsOf(it.Offerings.Available())).To(Equal([]string{"all-balanced"}))
		By("finding an offering for the node, which is all that drift asks for")
		Expect(it.Offerings.HasCompatible(scheduling.NewLabelRequirements(map[string]string{
			v1alpha1.LayoutLabelKey: "all-2g.20gb", "nvidia.com/gpu.replicas": "0", "topology.kubernetes.io/zone": "test-zone-2", karpv1.CapacityTypeLabelKey: "spot",
		}))).To(BeTrue())
	})

	It("should not make a node drift whose labels are no longer predicted so", func() {
		old := map[string]string{"nvidia.com/gpu.product": "NVIDIA-A10G-SHARED", "nvidia.com/gpu.replicas": "4", "topology.kubernetes.io/zone": "test-zone-1", karpv1.CapacityTypeLabelKey: "spot"}
		Expect(shown(join(nil), "g5.xlarge").Offerings.HasCompatible(scheduling.NewLabelRequirements(old))).To(BeTrue())
	})

	It("should close the offerings of types that the pool cannot use, and keep them", func() {
		it := shown(join(mixed("all-balanced")), "g5.xlarge")
		Expect(it.Offerings).To(HaveLen(4))
		Expect(it.Offerings.Available()).To(BeEmpty())
		sharing := &v1alpha1.Partitioning{MPS: &v1alpha1.MPS{Replicas: 20}}
		Expect(shown(join(sharing), "g5.xlarge").Offerings.Available()).To(HaveLen(4))
	})

	It("should multiply capacity, and count physical GPUs where replicas are renamed", func() {
		Expect(amounts(shown(join(slicing(4, false)), "p5.48xlarge").Capacity)).To(Equal(map[string]int64{whole: 32}))
		it := shown(join(slicing(4, true)), "p5.48xlarge")
		Expect(amounts(it.Capacity)).To(Equal(map[string]int64{whole: 8}))
		Expect(amounts(it.AllocatableOfferingsList()[1].Allocatable)).To(Equal(map[string]int64{whole: 0, "nvidia.com/gpu.shared": 32}))
	})

	It("should say of every predicted label whether it will be there", func() {
		for name, exists := range map[string]bool{"g5.xlarge": true, "c6i.large": false} {
			it := shown(join(nil), name)
			for _, key := range cloudprovider.PredictedLabelKeys() {
				Expect(it.Requirements.Has(key)).To(BeTrue(), "%s of %s", key, name)
			}
			Expect(it.Requirements.Get("nvidia.com/gpu.product").Len() > 0).To(Equal(exists))
		}
	})

	It("should take the layout from a template that sets nvidia.com/mig.config", func() {
		it := shown(join(mixed("all-balanced", "all-1g.10gb"), func(n *karpv1.NodePool) {
			n.Spec.Template.Labels = map[string]string{v1alpha1.MIGConfigLabelKey: "all-balanced"}
		}), "p5.48xlarge")
		Expect(layoutsOf(it.Offerings.Available())).To(Equal([]string{"all-balanced"}))
	})

	It("should return the same objects while nothing changes, and new ones once something does", func() {
		nodePool := join(mixed("all-balanced"))
		first := shown(nodePool, "p5.48xlarge")
		Expect(shown(nodePool, "p5.48xlarge")).To(BeIdenticalTo(first))

		target, _ := lo.Find(inner.InstanceTypes, func(it *corecloudprovider.InstanceType) bool { return it.Name == "p5.48xlarge" })
		target.Offerings[0].Available = false
		second := shown(nodePool, "p5.48xlarge")
		Expect(second.Offerings.Available()).To(HaveLen(3))

		target.Offerings[0].Available, target.Offerings[1].Price = true, 7
		Expect(shown(nodePool, "p5.48xlarge").Offerings.Cheapest().Price).To(Equal(7.0))
		Expect(first.Offerings.Available()).To(HaveLen(4), "what was returned before stays as it was")

		resolve(pools.Request{NodePools: []string{nodePool.Name}}, mixed("all-1g.10gb"))
		Expect(layoutsOf(shown(nodePool, "p5.48xlarge").Offerings)).To(Equal([]string{"all-1g.10gb"}))
	})

	It("should follow NodeOverlays", func() {
		nodePool := join(slicing(2, false))
		target, _ := lo.Find(inner.InstanceTypes, func(it *corecloudprovider.InstanceType) bool { return it.Name == "g5.xlarge" })
		overlaid := &corecloudprovider.InstanceType{Name: target.Name, Requirements: target.Requirements, Capacity: target.Capacity, Overhead: target.Overhead,
			Offerings: corecloudprovider.Offerings{{Requirements: target.Offerings[0].Requirements, Price: 1, Available: true}}}
		overlaid.ApplyCapacityOverlay(corev1.ResourceList{whole: resource.MustParse("3"), "example.com/fan": resource.MustParse("1")})
		overlaid.Offerings[0].ApplyPriceOverlay("2.5")
		inner.InstanceTypes = []*corecloudprovider.InstanceType{overlaid}
		it := shown(nodePool, "g5.xlarge")
		Expect(amounts(it.Capacity)).To(Equal(map[string]int64{whole: 6, "example.com/fan": 1}))
		Expect(it.IsCapacityOverlayApplied()).To(BeTrue())
		Expect(it.IsPricingOverlayApplied()).To(BeTrue())
		renamed := shown(join(slicing(2, true)), "g5.xlarge")
		Expect(renamed.IsPricingOverlayApplied()).To(BeTrue())
		Expect(renamed.Offerings[0].Price).To(Equal(2.5))
	})

	It("should serve many callers while pools change", func() {
		nodePool := join(mixed("all-balanced"))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				defer GinkgoRecover()
				for range 50 {
					its, err := outer.GetInstanceTypes(ctx, nodePool)
					Expect(err).NotTo(HaveOccurred())
					for _, it := range its {
						it.AllocatableOfferingsList()
					}
				}
			})
		}
		for range 20 {
			resolve(pools.Request{NodePools: []string{nodePool.Name}}, mixed("all-1g.10gb"))
			resolve(pools.Request{NodePools: []string{nodePool.Name}}, mixed("all-balanced", "all-disabled"))
		}
		wg.Wait()
	})
})
