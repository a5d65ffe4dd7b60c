package upstream_test

import (
	"encoding/base64"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awsv1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
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
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

func resolve(p *v1alpha1.Partitioning, nodePools ...string) {
	pool := lo.Must(pools.Resolve(pools.Request{
		GPUPool:   &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "inference"}, Spec: v1alpha1.GPUPoolSpec{Partitioning: p}},
		NodePools: nodePools, Catalog: catalog.Default(),
	}))
	store.Swap([]*pools.Pool{pool}, lo.SliceToMap(nodePools, func(n string) (string, string) { return n, "inference" }))
}

func nodePoolOf(class *awsv1.EC2NodeClass) *karpv1.NodePool {
	n := coretest.NodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.PoolLabelKey: "inference"}}})
	n.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: class.Name}
	return n
}

func claimOf(n *karpv1.NodePool, requests map[string]string, types ...string) *karpv1.NodeClaim {
	claim := coretest.NodeClaim(karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{karpv1.NodePoolLabelKey: n.Name}}})
	claim.Spec.NodeClassRef = n.Spec.Template.Spec.NodeClassRef
	claim.Spec.Resources.Requests = lo.MapEntries(requests, func(name, amount string) (corev1.ResourceName, resource.Quantity) {
		return corev1.ResourceName(name), resource.MustParse(amount)
	})
	claim.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: types},
		{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand}},
		{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}},
		{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}},
	}
	return claim
}

// bootstrap is the user data of the last launch template.
func bootstrap() string {
	GinkgoHelper()
	var all []string
	awsEnv.EC2API.CreateLaunchTemplateBehavior.CalledWithInput.ForEach(func(in *ec2.CreateLaunchTemplateInput) {
		all = append(all, string(lo.Must(base64.StdEncoding.DecodeString(*in.LaunchTemplateData.UserData))))
	})
	return strings.Join(all, "\n")
}

func fleetTypes() []string {
	GinkgoHelper()
	in := awsEnv.EC2API.CreateFleetBehavior.CalledWithInput.Pop()
	return lo.Uniq(lo.FlatMap(in.LaunchTemplateConfigs, func(c ec2types.FleetLaunchTemplateConfigRequest, _ int) []string {
		return lo.Map(c.Overrides, func(o ec2types.FleetLaunchTemplateOverridesRequest, _ int) string { return string(o.InstanceType) })
	}))
}

var _ = Describe("AWS", func() {
	var nodePool *karpv1.NodePool

	BeforeEach(func() {
		class := nodeClass()
		nodePool = nodePoolOf(class)
		ExpectApplied(ctx, env.Client, class, nodePool)
		awsEnv.EC2API.CreateLaunchTemplateBehavior.Reset()
		awsEnv.EC2API.CreateFleetBehavior.Reset()
		awsEnv.LaunchTemplateCache.Flush()
	})

	It("should launch partitions that the provider does not know, with labels in the bootstrap data", func() {
		resolve(&v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Layouts: []string{"all-balanced"}}}, nodePool.Name)
		claim := claimOf(nodePool, map[string]string{"cpu": "1", "nvidia.com/mig-1g.10gb": "3", "nvidia.com/mig-3g.40gb": "1"}, "p5.48xlarge", "g5.xlarge")
		created, err := outer.Create(ctx, claim)
		Expect(err).NotTo(HaveOccurred())
		Expect(fleetTypes()).To(Equal([]string{"p5.48xlarge"}))
		Expect(bootstrap()).To(And(ContainSubstring("nvidia.com/mig.config=all-balanced"), ContainSubstring("karpenter-gpu.dev/layout=all-balanced"), ContainSubstring("karpenter-gpu.dev/pool=inference")))
		Expect(created.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "p5.48xlarge"))
		for name, want := range map[corev1.ResourceName]int64{"nvidia.com/mig-1g.10gb": 16, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.40gb": 8, "nvidia.com/gpu": 0} {
			q := created.Status.Allocatable[name]
			Expect(q.Value()).To(Equal(want), string(name))
		}
		By("which the provider alone takes for a lack of capacity")
		_, err = inner.Create(ctx, claim)
		Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
	})

	It("should launch a type for which EC2 says 0 GPUs, at its price", func() {
		resolve(nil, nodePool.Name)
		_, err := outer.Create(ctx, claimOf(nodePool, map[string]string{"cpu": "1", "nvidia.com/gpu": "1"}, "p5.4xlarge", "p5.48xlarge"))
		Expect(err).NotTo(HaveOccurred())
		Expect(fleetTypes()).To(Equal([]string{"p5.4xlarge"}))
		_, err = outer.Create(ctx, claimOf(nodePool, map[string]string{"cpu": "1", "nvidia.com/gpu": "1"}, "p5.4xlarge", "g5.xlarge"))
		Expect(err).NotTo(HaveOccurred())
		Expect(fleetTypes()).To(Equal([]string{"g5.xlarge"}))
	})

	It("should launch replicas", func() {
		resolve(&v1alpha1.Partitioning{TimeSlicing: &v1alpha1.TimeSlicing{Replicas: 4}}, nodePool.Name)
		created, err := outer.Create(ctx, claimOf(nodePool, map[string]string{"cpu": "1", "nvidia.com/gpu": "4"}, "g5.xlarge"))
		Expect(err).NotTo(HaveOccurred())
		Expect(bootstrap()).To(ContainSubstring("nvidia.com/device-plugin.config=time-slicing-4"))
		q := created.Status.Allocatable["nvidia.com/gpu"]
		Expect(q.Value()).To(BeEquivalentTo(4))
		Expect(created.Labels).To(HaveKeyWithValue("nvidia.com/gpu.product", "NVIDIA-A10G-SHARED"))
	})

	It("should leave what the provider shares between calls as it is", func() {
		before := dump(lo.Must(inner.GetInstanceTypes(ctx, nodePool)))
		for _, p := range []*v1alpha1.Partitioning{nil, {MIG: &v1alpha1.MIG{Profiles: []string{"1g.10gb", "3g.40gb"}}}, {TimeSlicing: &v1alpha1.TimeSlicing{Replicas: 4, RenameByDefault: true}}} {
			resolve(p, nodePool.Name)
			lo.Must(outer.GetInstanceTypes(ctx, nodePool))
		}
		Expect(dump(lo.Must(inner.GetInstanceTypes(ctx, nodePool)))).To(Equal(before))
	})
})

// dump tells all of some types, by name.
func dump(its []*corecloudprovider.InstanceType) map[string]string {
	return lo.SliceToMap(its, func(it *corecloudprovider.InstanceType) (string, string) {
		text := []string{it.Requirements.String(), resourceText(it.Capacity), resourceText(it.Overhead.Total())}
		for _, o := range it.Offerings {
			text = append(text, o.Requirements.String(), resource.NewMilliQuantity(int64(o.Price*1e6), resource.DecimalSI).String(), lo.Ternary(o.Available, "open", "shut"), resourceText(o.CapacityOverride))
		}
		return it.Name, strings.Join(text, "\n")
	})
}

func resourceText(list corev1.ResourceList) string {
	names := lo.Map(lo.Keys(list), func(n corev1.ResourceName, _ int) string { return string(n) })
	return strings.Join(lo.Map(sorted(names), func(n string, _ int) string { q := list[corev1.ResourceName(n)]; return n + "=" + q.String() }), ",")
}
