package cloudprovider_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coreapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

var (
	ctx   context.Context
	env   *coretest.Environment
	inner *fake.CloudProvider
	store *pools.Store
	outer corecloudprovider.CloudProvider

	cluster     *state.Cluster
	provisioner *provisioning.Provisioner
)

func TestCloudProvider(t *testing.T) {
	testenv.UseAssets(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "CloudProvider")
}

var _ = BeforeSuite(func() {
	ctx = options.ToContext(context.Background(), coretest.Options())
	env = coretest.NewEnvironment(coretest.WithCRDs(coreapis.CRDs...), coretest.WithCRDs(testv1alpha1.CRDs...), coretest.WithCRDs(apis.CRDs...))
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

var _ = BeforeEach(func() {
	inner = fake.NewCloudProvider()
	inner.InstanceTypes = types("c6i.large", "g5.xlarge", "g6e.xlarge", "p4d.24xlarge", "p5.4xlarge", "p5.48xlarge")
	store = &pools.Store{}
	start(cloudprovider.Options{})
})

var _ = AfterEach(func() {
	ExpectCleanedUp(ctx, env.Client)
	cluster.Reset()
})

// start builds what the process builds at its start.
func start(o cloudprovider.Options) {
	o.Pools, o.Reader = store, env.Client
	outer = cloudprovider.Decorate(inner, o)
	cluster = state.NewCluster(env.Clock, env.Client, outer)
	provisioner = provisioning.NewProvisioner(env.Client, coretest.NewEventRecorder(), outer, cluster, env.Clock,
		deviceallocation.NewController(env.Client), virtualpods.NewVirtualPodCache(env.Client))
}

const poolName = "inference"

// types are like the AWS provider's: what EC2's API says, in two zones on demand
// and on spot at a third of the price.
func types(names ...string) []*corecloudprovider.InstanceType {
	return lo.Map(names, func(name string, _ int) *corecloudprovider.InstanceType { return typeOf(name) })
}

func typeOf(name string) *corecloudprovider.InstanceType {
	shape, ok := catalog.Default().Shape(name)
	Expect(ok).To(BeTrue(), name)
	list := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(fmt.Sprint(shape.VCPU)),
		corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dMi", shape.MemoryMiB)),
		corev1.ResourcePods:   resource.MustParse("200"),
		v1alpha1.ResourceGPU:  resource.MustParse(fmt.Sprint(shape.EC2GPUs)),
	}
	price := lo.CoalesceOrEmpty(shape.PricePerHour, 0.1)
	var offerings []corecloudprovider.Offering
	for _, zone := range []string{"test-zone-1", "test-zone-2"} {
		offerings = append(offerings, offering("on-demand", zone, price), offering("spot", zone, price/3))
	}
	return fake.NewInstanceType(name, fake.WithResources(list), fake.WithOfferings(offerings...))
}

func offering(capacityType, zone string, price float64) corecloudprovider.Offering {
	return corecloudprovider.Offering{Available: true, Price: price, Requirements: scheduling.NewLabelRequirements(map[string]string{
		karpv1.CapacityTypeLabelKey: capacityType, corev1.LabelTopologyZone: zone})}
}

func mixed(layouts ...string) *v1alpha1.Partitioning {
	return &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Strategy: v1alpha1.MIGStrategyMixed, Layouts: layouts}}
}

func profiles(names ...string) *v1alpha1.Partitioning {
	return &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Strategy: v1alpha1.MIGStrategyMixed, Profiles: names}}
}

func slicing(replicas int32, rename bool) *v1alpha1.Partitioning {
	return &v1alpha1.Partitioning{TimeSlicing: &v1alpha1.TimeSlicing{Replicas: replicas, RenameByDefault: rename}}
}

// join applies a NodePool of a GPUPool, as the controller of GPUPools would see it.
func join(p *v1alpha1.Partitioning, change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	GinkgoHelper()
	nodePool := coretest.NodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.PoolLabelKey: poolName}}})
	nodePool.Spec.Limits = nil
	for _, c := range change {
		c(nodePool)
	}
	ExpectApplied(ctx, env.Client, nodePool)
	resolve(pools.Request{NodePools: []string{nodePool.Name}}, p)
	return nodePool
}

func resolve(r pools.Request, p *v1alpha1.Partitioning) {
	GinkgoHelper()
	r.GPUPool = &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: poolName}, Spec: v1alpha1.GPUPoolSpec{Partitioning: p}}
	r.Catalog = catalog.Default()
	r.Previous, _ = store.Get(poolName)
	pool, err := pools.Resolve(r)
	Expect(err).NotTo(HaveOccurred())
	store.Swap([]*pools.Pool{pool}, lo.SliceToMap(r.NodePools, func(n string) (string, string) { return n, poolName }))
}

func only(names ...string) func(*karpv1.NodePool) {
	return require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, names...)
}

func require(key string, op corev1.NodeSelectorOperator, values ...string) func(*karpv1.NodePool) {
	return func(n *karpv1.NodePool) {
		n.Spec.Template.Spec.Requirements = append(n.Spec.Template.Spec.Requirements,
			karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values})
	}
}

// pods ask for one unit each of a resource of NVIDIA's.
func pods(n int, resourceName string, over ...coretest.PodOptions) []*corev1.Pod {
	return asking(n, map[string]string{resourceName: "1"}, over...)
}

func asking(n int, amounts map[string]string, over ...coretest.PodOptions) []*corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	for name, amount := range amounts {
		list[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	base := coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{Requests: list, Limits: list}}
	return lo.Times(n, func(int) *corev1.Pod {
		return coretest.UnschedulablePod(append([]coretest.PodOptions{base}, over...)...)
	})
}

func selecting(key string, op corev1.NodeSelectorOperator, values ...string) coretest.PodOptions {
	return coretest.PodOptions{NodeRequirements: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

// schedule runs Karpenter's own scheduler.
func schedule(pods ...*corev1.Pod) scheduler.Results {
	GinkgoHelper()
	for _, p := range pods {
		ExpectApplied(ctx, env.Client, p)
	}
	results, err := provisioner.Schedule(ctx)
	Expect(err).NotTo(HaveOccurred())
	return results
}

// launch creates the NodeClaims of a decision and launches them.
func launch(results scheduler.Results) []*karpv1.NodeClaim {
	GinkgoHelper()
	return lo.Map(results.NewNodeClaims, func(c *scheduler.NodeClaim, _ int) *karpv1.NodeClaim {
		name, err := provisioner.Create(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		claim := &karpv1.NodeClaim{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: name}, claim)).To(Succeed())
		claim, _ = ExpectNodeClaimDeployedAndStateUpdated(ctx, env.Client, cluster, outer, claim)
		return claim
	})
}

// podsPerClaim is how many pods each new NodeClaim would get, ascending.
func podsPerClaim(results scheduler.Results) []int {
	counts := lo.Map(results.NewNodeClaims, func(c *scheduler.NodeClaim, _ int) int { return len(c.Pods) })
	slices.Sort(counts)
	return counts
}

// optionsOf are the instance types that a decision allows, sorted.
func optionsOf(results scheduler.Results) []string {
	names := lo.Uniq(lo.FlatMap(results.NewNodeClaims, func(c *scheduler.NodeClaim, _ int) []string {
		return lo.Map(c.InstanceTypeOptions, func(it *corecloudprovider.InstanceType, _ int) string { return it.Name })
	}))
	slices.Sort(names)
	return names
}

func amounts(list corev1.ResourceList) map[string]int64 {
	found := map[string]int64{}
	for name, q := range list {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourcePods {
			found[string(name)] = q.Value()
		}
	}
	return found
}
