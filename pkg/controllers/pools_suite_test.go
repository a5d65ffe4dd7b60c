package controllers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

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
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/membership"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/nodeconfig"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/status"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/node/prediction"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/pod/selector"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

const (
	poolName  = "inference"
	namespace = "gpu-operator"
	whole     = "nvidia.com/gpu"
)

var (
	ctx      context.Context
	env      *coretest.Environment
	direct   client.Client
	inner    *fake.CloudProvider
	outer    corecloudprovider.CloudProvider
	store    *pools.Store
	recorder *coretest.EventRecorder

	members     *membership.Controller
	statuses    *status.Controller
	predictions *prediction.Controller
	selectors   *selector.Controller
)

func TestPools(t *testing.T) {
	testenv.UseAssets(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Controllers of GPUPools")
}

var _ = BeforeSuite(func() {
	ctx = options.ToContext(context.Background(), coretest.Options())
	env = coretest.NewEnvironment(coretest.WithCRDs(coreapis.CRDs...), coretest.WithCRDs(testv1alpha1.CRDs...), coretest.WithCRDs(apis.CRDs...),
		coretest.WithFieldIndexers(coretest.NodeClaimProviderIDFieldIndexer(ctx), coretest.NodeProviderIDFieldIndexer(ctx)))
	direct = lo.Must(client.New(env.Config, client.Options{}))
	Expect(direct.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

var _ = BeforeEach(func() {
	inner = fake.NewCloudProvider()
	inner.InstanceTypes = types("c6i.large", "g5.xlarge", "g6e.xlarge", "p4d.24xlarge", "p5.4xlarge", "p5.48xlarge")
	store = &pools.Store{}
	recorder = coretest.NewEventRecorder()
	outer = cloudprovider.Decorate(inner, cloudprovider.Options{Pools: store, Reader: env.Client})
	build(namespace)
})

var _ = AfterEach(func() {
	ExpectCleanedUp(ctx, env.Client)
	Expect(direct.DeleteAllOf(ctx, &v1alpha1.GPUPool{})).To(Succeed())
	Expect(direct.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace))).To(Succeed())
	Eventually(func(g Gomega) {
		var list v1alpha1.GPUPoolList
		g.Expect(env.Client.List(ctx, &list)).To(Succeed())
		g.Expect(list.Items).To(BeEmpty())
	}).Should(Succeed())
})

// build makes the controllers, as at the start of the process.
func build(configNamespace string) {
	members = membership.NewController(env.Client, recorder, store, catalog.Default(), nodeconfig.NewPublisher(direct, direct, configNamespace))
	statuses = status.NewController(env.Clock, env.Client, outer, store, catalog.Default(), nil)
	predictions = prediction.NewController(env.Client, recorder)
	selectors = selector.NewController(env.Clock, env.Client, outer, recorder, store)
}

// types are what EC2's API says, in one zone on demand.
func types(names ...string) []*corecloudprovider.InstanceType {
	return lo.Map(names, func(name string, _ int) *corecloudprovider.InstanceType {
		shape, ok := catalog.Default().Shape(name)
		Expect(ok).To(BeTrue(), name)
		return fake.NewInstanceType(name, fake.WithResources(corev1.ResourceList{
			corev1.ResourceCPU:   resource.MustParse(fmt.Sprint(shape.VCPU)),
			v1alpha1.ResourceGPU: resource.MustParse(fmt.Sprint(shape.EC2GPUs)),
		}), fake.WithOfferings(corecloudprovider.Offering{Available: true, Price: lo.CoalesceOrEmpty(shape.PricePerHour, 0.1),
			Requirements: scheduling.NewLabelRequirements(map[string]string{karpv1.CapacityTypeLabelKey: "on-demand", corev1.LabelTopologyZone: "test-zone-1"})}))
	})
}

func gpuPool(p *v1alpha1.Partitioning) *v1alpha1.GPUPool {
	return &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: poolName}, Spec: v1alpha1.GPUPoolSpec{Partitioning: p}}
}

func layouts(names ...string) *v1alpha1.Partitioning {
	return &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Layouts: names}}
}

func profiles(names ...string) *v1alpha1.Partitioning {
	return &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Profiles: names}}
}

func slicing(replicas int32) *v1alpha1.Partitioning {
	return &v1alpha1.Partitioning{TimeSlicing: &v1alpha1.TimeSlicing{Replicas: replicas}}
}

// nodePool is a member of the pool that allows some types, all if none are given.
func nodePool(name string, allowed ...string) *karpv1.NodePool {
	n := coretest.NodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.PoolLabelKey: poolName}}})
	n.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
	n.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
	n.StatusConditions().SetTrue(karpv1.ConditionTypeNodeRegistrationHealthy)
	if len(allowed) > 0 {
		n.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: allowed}}
	}
	return n
}

// nodeOf is a launched NodeClaim with its node.
func nodeOf(n *karpv1.NodePool, instanceType string, labels map[string]string) (*karpv1.NodeClaim, *corev1.Node) {
	claim, node := coretest.NodeClaimAndNode(karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: lo.Assign(labels, map[string]string{
		karpv1.NodePoolLabelKey: n.Name, corev1.LabelInstanceTypeStable: instanceType, corev1.LabelTopologyZone: "test-zone-1", karpv1.CapacityTypeLabelKey: "on-demand",
	})}})
	return claim, node
}

func resolve() {
	GinkgoHelper()
	_, err := members.Reconcile(ctx, reconcileRequest)
	Expect(err).NotTo(HaveOccurred())
}

// update reconciles the status of the pool and returns the pool.
func update() *v1alpha1.GPUPool {
	GinkgoHelper()
	env.Clock.Step(2 * time.Second)
	p := &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: poolName}}
	ExpectObjectReconciled(ctx, env.Client, statuses, p)
	Expect(direct.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
	return p
}
