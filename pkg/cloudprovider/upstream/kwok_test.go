package upstream_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kwokv1alpha1 "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
)

var _ = Describe("KWOK", func() {
	It("should launch partitions and replicas, and leave the types alone that KWOK returns each time", func() {
		types := lo.Map([]string{"g5.xlarge", "p5.48xlarge"}, func(name string, _ int) *corecloudprovider.InstanceType {
			return fake.NewInstanceType(name, fake.WithResources(corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), v1alpha1.ResourceGPU: resource.MustParse(lo.Ternary(name == "g5.xlarge", "1", "8")),
			}))
		})
		before := dump(types)
		outer := cloudprovider.Decorate(kwok.NewCloudProvider(ctx, env.Client, types), cloudprovider.Options{Pools: store, Reader: env.Client})
		class := &kwokv1alpha1.KWOKNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		nodePool := nodePoolOf(nodeClass())
		nodePool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: class.Name}
		ExpectApplied(ctx, env.Client, class, nodePool)

		resolve(&v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Layouts: []string{"all-1g.10gb"}}}, nodePool.Name)
		claim := claimOf(nodePool, map[string]string{"cpu": "1", "nvidia.com/mig-1g.10gb": "3"}, "g5.xlarge", "p5.48xlarge")
		claim.Spec.Requirements = claim.Spec.Requirements[:1]
		created, err := outer.Create(ctx, claim)
		Expect(err).NotTo(HaveOccurred())
		Expect(created.Labels).To(And(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "p5.48xlarge"), HaveKeyWithValue(v1alpha1.LayoutLabelKey, "all-1g.10gb")))
		partitions := created.Status.Allocatable["nvidia.com/mig-1g.10gb"]
		Expect(partitions.Value()).To(BeEquivalentTo(56))
		Expect(created.Status.Allocatable).NotTo(HaveKey(v1alpha1.ResourceGPU))

		resolve(&v1alpha1.Partitioning{TimeSlicing: &v1alpha1.TimeSlicing{Replicas: 4}}, nodePool.Name)
		claim = claimOf(nodePool, map[string]string{"cpu": "1", "nvidia.com/gpu": "3"}, "g5.xlarge")
		claim.Spec.Requirements = claim.Spec.Requirements[:1]
		created, err = outer.Create(ctx, claim)
		Expect(err).NotTo(HaveOccurred())
		replicas := created.Status.Allocatable[v1alpha1.ResourceGPU]
		Expect(replicas.Value()).To(BeEquivalentTo(4))
		Expect(dump(types)).To(Equal(before))
	})
})
