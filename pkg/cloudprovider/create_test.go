package cloudprovider_test

import (
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

// claimOf is a NodeClaim as Karpenter's scheduler would make it.
func claimOf(nodePool *karpv1.NodePool, requests map[string]string, types ...string) *karpv1.NodeClaim {
	claim := coretest.NodeClaim(karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{karpv1.NodePoolLabelKey: nodePool.Name}}})
	claim.Spec.Resources.Requests = lo.MapEntries(requests, func(name, amount string) (corev1.ResourceName, resource.Quantity) {
		return corev1.ResourceName(name), resource.MustParse(amount)
	})
	claim.Spec.Requirements = nil
	if len(types) > 0 {
		claim.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: types}}
	}
	return claim
}

func create(claim *karpv1.NodeClaim) *karpv1.NodeClaim {
	GinkgoHelper()
	created, err := outer.Create(ctx, claim)
	Expect(err).NotTo(HaveOccurred())
	return created
}

// lastLaunch is what the inner provider got.
func lastLaunch() *karpv1.NodeClaim { return inner.CreateCalls[len(inner.CreateCalls)-1] }

func typesOf(claim *karpv1.NodeClaim) []string {
	for _, r := range claim.Spec.Requirements {
		if r.Key == corev1.LabelInstanceTypeStable {
			return r.Values
		}
	}
	return nil
}

var _ = Describe("Create", func() {
	It("should return labels, capacity and allocatable of the layout", func() {
		nodePool := join(mixed("all-balanced"))
		created := create(claimOf(nodePool, map[string]string{"cpu": "1", mig1g: "3", mig3g: "1"}, "p5.48xlarge", "p5.4xlarge"))
		Expect(created.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "p5.48xlarge"), "one p5.4xlarge has two of 1g")
		Expect(created.Labels).To(And(
			HaveKeyWithValue(v1alpha1.PoolLabelKey, poolName),
			HaveKeyWithValue(v1alpha1.LayoutLabelKey, "all-balanced"),
			HaveKeyWithValue(v1alpha1.MIGConfigLabelKey, "all-balanced"),
			HaveKeyWithValue("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
			HaveKeyWithValue("nvidia.com/gpu.replicas", "0"),
			HaveKeyWithValue("nvidia.com/mig.strategy", "mixed"),
			HaveKeyWithValue("nvidia.com/mig-1g.10gb.count", "16"),
		))
		Expect(created.Labels).NotTo(HaveKey(v1alpha1.TensorFusionIsolationLabelKey))
		want := map[string]int64{mig1g: 16, mig2g: 8, mig3g: 8}
		Expect(amounts(created.Status.Capacity)).To(Equal(want))
		Expect(amounts(created.Status.Allocatable)).To(Equal(want))
		Expect(created.Status.Capacity).To(HaveKey(corev1.ResourceCPU))
	})

	It("should give the inner provider what it understands", func() {
		nodePool := join(mixed("all-balanced", "all-1g.10gb"))
		claim := claimOf(nodePool, map[string]string{"cpu": "1", mig1g: "40", "vpc.amazonaws.com/efa": "0"}, "p5.48xlarge", "p5.4xlarge", "p4d.24xlarge")
		claim.Spec.Requirements = append(claim.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{Key: v1alpha1.LayoutLabelKey, Operator: corev1.NodeSelectorOpExists})
		create(claim)
		Expect(lastLaunch().Spec.Resources.Requests).To(And(HaveLen(2), HaveKey(corev1.ResourceCPU), HaveKey(corev1.ResourceName("vpc.amazonaws.com/efa"))))
		Expect(typesOf(lastLaunch())).To(Equal([]string{"p5.48xlarge"}))
		Expect(lo.Map(lastLaunch().Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues, _ int) string { return r.Key })).To(ConsistOf(corev1.LabelInstanceTypeStable))
		Expect(lastLaunch().Labels).To(HaveKeyWithValue(v1alpha1.MIGConfigLabelKey, "all-1g.10gb"))
	})

	DescribeTable("should choose the cheapest, then the least waste, then the first name",
		func(want string, requests map[string]string, types ...string) {
			nodePool := join(mixed("all-1g.10gb", "all-2g.20gb", "all-3g.40gb", "all-balanced", "all-disabled"))
			Expect(create(claimOf(nodePool, requests, types...)).Labels[v1alpha1.LayoutLabelKey]).To(Equal(want))
		},
		Entry("1g alone", "all-1g.10gb", map[string]string{mig1g: "7"}, "p5.4xlarge"),
		Entry("one of each", "all-balanced", map[string]string{mig1g: "1", mig2g: "1", mig3g: "1"}, "p5.4xlarge"),
		Entry("3g alone", "all-3g.40gb", map[string]string{mig3g: "1"}, "p5.4xlarge"),
		Entry("whole GPUs", "all-disabled", map[string]string{whole: "1"}, "p5.4xlarge"),
		Entry("the smaller machine first", "all-1g.10gb", map[string]string{mig1g: "1"}, "p5.48xlarge", "p5.4xlarge"),
	)

	It("should take a type without GPUs when nothing asks for one", func() {
		nodePool := join(mixed("all-balanced"))
		created := create(claimOf(nodePool, map[string]string{"cpu": "1"}))
		Expect(typesOf(lastLaunch())).To(Equal([]string{"c6i.large"}))
		Expect(created.Labels).To(HaveKeyWithValue(v1alpha1.PoolLabelKey, poolName))
		Expect(created.Labels).NotTo(HaveKey(v1alpha1.LayoutLabelKey))
	})

	It("should tell the device plugin about sharing", func() {
		created := create(claimOf(join(slicing(4, true)), map[string]string{"nvidia.com/gpu.shared": "5"}))
		Expect(created.Labels).To(HaveKeyWithValue("nvidia.com/device-plugin.config", "time-slicing-4-renamed"))
		Expect(amounts(created.Status.Allocatable)).To(Equal(map[string]int64{"nvidia.com/gpu.shared": 32}))
		Expect(typesOf(lastLaunch())).To(Equal([]string{"p4d.24xlarge", "p5.48xlarge"}))
	})

	It("should correct the GPU count of types for which EC2 says 0", func() {
		created := create(claimOf(join(nil), map[string]string{whole: "1"}, "p5.4xlarge"))
		Expect(amounts(created.Status.Allocatable)).To(Equal(map[string]int64{whole: 1}))
	})

	It("should not mix types whose GPUs the inner provider knows with others", func() {
		nodePool := join(nil)
		create(claimOf(nodePool, map[string]string{whole: "1"}, "g6e.xlarge", "p5.4xlarge"))
		Expect(typesOf(lastLaunch())).To(Equal([]string{"g6e.xlarge"}), "it is cheaper")
		create(claimOf(nodePool, map[string]string{whole: "1"}, "p4d.24xlarge", "p5.4xlarge"))
		Expect(typesOf(lastLaunch())).To(Equal([]string{"p5.4xlarge"}))
	})

	It("should announce partitions to TensorFusion where the pool asks for it", func() {
		partitioning := mixed("all-balanced")
		partitioning.MIG.AnnounceTo = []v1alpha1.Neighbor{v1alpha1.NeighborTensorFusion}
		created := create(claimOf(join(partitioning), map[string]string{mig1g: "1"}))
		Expect(created.Labels).To(HaveKeyWithValue(v1alpha1.TensorFusionIsolationLabelKey, v1alpha1.TensorFusionIsolationPartitioned))
	})

	It("should work for static NodePools, which ask for nothing", func() {
		nodePool := join(mixed("all-balanced"), only("p5.4xlarge"))
		claim := claimOf(nodePool, nil)
		claim.Spec.Requirements = nodePool.Spec.Template.Spec.Requirements
		Expect(create(claim).Labels).To(HaveKeyWithValue(v1alpha1.LayoutLabelKey, "all-balanced"))
	})

	It("should work for NodeClaims without a NodePool", func() {
		join(mixed("all-balanced"))
		claim := claimOf(&karpv1.NodePool{}, map[string]string{whole: "1"}, "p5.48xlarge")
		delete(claim.Labels, karpv1.NodePoolLabelKey)
		Expect(create(claim).Labels).NotTo(HaveKey(v1alpha1.LayoutLabelKey))
		Expect(lastLaunch()).To(BeIdenticalTo(claim), "it is stock's")

		claim.Labels[v1alpha1.PoolLabelKey] = poolName
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceName(mig1g): resource.MustParse("1")}
		Expect(create(claim).Labels).To(HaveKeyWithValue(v1alpha1.LayoutLabelKey, "all-balanced"))
	})

	It("should keep minValues, and refuse a launch that cannot", func() {
		nodePool := join(mixed("all-balanced"))
		claim := claimOf(nodePool, map[string]string{mig1g: "1"}, "p5.48xlarge", "p5.4xlarge")
		claim.Spec.Requirements[0].MinValues = lo.ToPtr(2)
		create(claim)
		Expect(typesOf(lastLaunch())).To(HaveLen(2))
		Expect(lastLaunch().Spec.Requirements[0].MinValues).To(Equal(lo.ToPtr(2)))

		claim.Spec.Resources.Requests[corev1.ResourceName(mig1g)] = resource.MustParse("3") // more than a p5.4xlarge has
		_, err := outer.Create(ctx, claim)
		Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
		Expect(err).To(MatchError(ContainSubstring("do not meet the NodePool's minValues; lower minValues or allow more types")))
	})

	It("should say what does not fit", func() {
		_, err := outer.Create(ctx, claimOf(join(mixed("all-1g.10gb")), map[string]string{mig1g: "57"}))
		Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
		Expect(err).To(MatchError(ContainSubstring(`no instance type with a launchable offering fits {"nvidia.com/mig-1g.10gb":"57"}`)))
	})

	It("should pass the inner provider's errors on", func() {
		cause := errors.New("the cloud is out")
		inner.NextCreateErr = corecloudprovider.NewInsufficientCapacityError(cause)
		_, err := outer.Create(ctx, claimOf(join(mixed("all-1g.10gb")), map[string]string{mig1g: "1"}))
		Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
		Expect(errors.Is(err, cause)).To(BeTrue())
	})

	It("should wait for the evaluation of the GPUPool", func() {
		nodePool := join(mixed("all-1g.10gb"))
		store = &pools.Store{}
		start(cloudprovider.Options{})
		_, err := outer.Create(ctx, claimOf(nodePool, map[string]string{mig1g: "1"}))
		Expect(err).To(MatchError(ContainSubstring("gpu pool inference of nodepool " + nodePool.Name + " has not been evaluated yet")))
		Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeFalse(), "the NodeClaim stays")
	})

	It("should count physical GPUs for the NodePool's limit", func() {
		nodePool := join(mixed("all-1g.10gb"), only("p5.48xlarge"), func(n *karpv1.NodePool) {
			n.Spec.Limits = karpv1.Limits{whole: resource.MustParse("16")}
		})
		for range 2 {
			claims := launch(schedule(pods(56, mig1g)...))
			Expect(claims).To(HaveLen(1))
		}
		By("not even when Karpenter, which sees no GPU on those nodes, would")
		claim := claimOf(nodePool, map[string]string{mig1g: "1"}, "p5.48xlarge")
		ExpectApplied(ctx, env.Client, claim)
		_, err := outer.Create(ctx, claim)
		Expect(err).To(MatchError(ContainSubstring("limits[nvidia.com/gpu] of nodepool " + nodePool.Name + " allows 16 physical GPUs, of which 16 are in use or on their way")))
		By("nor are the types offered once the count is known")
		Expect(schedule(pods(1, mig1g)...).NewNodeClaims).To(HaveLen(1))
		store.SetUsedGPUs(map[string]int{nodePool.Name: 16})
		Expect(schedule().NewNodeClaims).To(BeEmpty())
	})

	It("should change nothing that it was given", func() {
		before := lo.Map(inner.InstanceTypes, func(it *corecloudprovider.InstanceType, _ int) string { return dump(it) })
		for _, p := range []*v1alpha1.Partitioning{nil, mixed("all-balanced", "all-disabled"), slicing(4, false), slicing(4, true)} {
			nodePool := join(p)
			claim := claimOf(nodePool, map[string]string{"cpu": "1"}, "p5.48xlarge")
			given := claim.DeepCopy()
			create(claim)
			Expect(claim).To(Equal(given))
			_, err := outer.GetInstanceTypes(ctx, nodePool)
			Expect(err).NotTo(HaveOccurred())
		}
		stored := lo.Values(inner.CreatedNodeClaims)
		Expect(stored).To(HaveEach(WithTransform(func(c *karpv1.NodeClaim) map[string]string { return c.Labels }, Not(HaveKey("nvidia.com/gpu.family")))))
		Expect(lo.Map(inner.InstanceTypes, func(it *corecloudprovider.InstanceType, _ int) string { return dump(it) })).To(Equal(before))
	})
})

// dump tells all of a type.
func dump(it *corecloudprovider.InstanceType) string {
	text := []string{it.Name, it.Requirements.String(), fmt.Sprint(it.Capacity), fmt.Sprint(it.Overhead.Total())}
	for _, o := range it.Offerings {
		text = append(text, fmt.Sprintf("%s %v %v %d %v", o.Requirements, o.Price, o.Available, o.ReservationCapacity, o.CapacityOverride))
	}
	return strings.Join(text, "\n")
}
