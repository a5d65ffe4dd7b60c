package provisioning_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// corrected is the catalogue of a user who knows that a node of type twin has two GPUs, of
// which the provider tells one, and that silent, of which it tells none, has one.
func corrected() *catalog.Catalog {
	GinkgoHelper()
	overrides, err := catalog.Parse([]byte(`
models:
- {name: rtx-4090, product: NVIDIA GeForce RTX 4090, memoryMiB: 24564, architecture: Ada, computeCapability: "8.9", mode: graphics}
shapes:
- {name: twin, provider: local, vcpu: 4, memoryMiB: 32768, arch: amd64, gpus: 2, model: rtx-4090, link: pcie, pricePerHour: 1, priceRegion: home}
- {name: silent, provider: local, vcpu: 4, memoryMiB: 32768, arch: amd64, gpus: 1, model: rtx-4090, link: pcie, pricePerHour: 1, priceRegion: home}
`))
	Expect(err).NotTo(HaveOccurred())
	return lo.Must(catalog.Default().With(overrides))
}

var _ = Describe("The user's catalogue", func() {
	limited := func() *v1alpha1.GPUPool {
		return gpuPool(func(s *v1alpha1.GPUPoolSpec) { s.Limits.GPUs = lo.ToPtr(int32(3)) })
	}
	It("should count the GPUs of a decision against the limits", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("twin", 1, 1)}
		apply(gpuPods(3, 1), limited(), nodePool())
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"twin=1", "twin=1", "twin=1"}))
		startWith(provisioning.GPUs{Catalog: corrected()})
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"twin=1"}))
		Expect(messages(provisioning.RefusedGPULimit)).To(ContainSubstring("has or is launching 2 of spec.limits.gpus=3 GPUs, and the cheapest launch for the pod, twin (on-demand), has 2 GPUs at $1.00 per hour"))
	})
	It("should count launches that did not come by the scheduler, and nodes whose type is sold no more", func() {
		startWith(provisioning.GPUs{Catalog: corrected()})
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 1)}
		np := nodePool()
		there := coretest.NodeClaim(karpv1.NodeClaim{ObjectMeta: metaOf("there", np.Name)})
		there.Labels[corev1.LabelInstanceTypeStable] = "twin"
		apply(nil, limited(), np, there)
		usage, err := ledger.Usage(ctx, limited(), map[string][]*cloudprovider.InstanceType{np.Name: cloud.InstanceTypes})
		Expect(err).NotTo(HaveOccurred())
		Expect(usage).To(Equal(provisioning.Usage{Nodes: 1, GPUs: 2, Price: v1alpha1.PriceFromFloat(1)}))

		two := []*karpv1.NodeClaim{coretest.NodeClaim(karpv1.NodeClaim{ObjectMeta: metaOf("one", np.Name)}), coretest.NodeClaim(karpv1.NodeClaim{ObjectMeta: metaOf("two", np.Name)})}
		_, err = guarded.Create(ctx, two[0])
		Expect(err).NotTo(HaveOccurred())
		ledger.Created(two[0])
		_, err = guarded.Create(ctx, two[1])
		Expect(cloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
		Expect(err).To(MatchError(ContainSubstring("launching would bring GPUPool inference to 4 GPUs")))
	})
	It("should keep pods that ask for no GPU off a type whose GPUs the provider does not tell", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{machine("silent", 0, 4, 32, 1), machine("plain", 0, 4, 32, 2)}
		apply([]*corev1.Pod{coretest.UnschedulablePod()}, gpuPool(nil), nodePool())
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"silent=1"}))
		startWith(provisioning.GPUs{Catalog: corrected()})
		Expect(shapes(decide().NewNodeClaims)).To(Equal([]string{"plain=1"}))
	})
})
