package readiness_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coreapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/state/nodepoolhealth"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

var (
	ctx   context.Context
	env   *coretest.Environment
	inner *fake.CloudProvider
	store *pools.Store
	book  *trials.Book
	outer *readiness.Provider
)

func TestReadiness(t *testing.T) {
	testenv.UseAssets(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Readiness")
}

var _ = BeforeSuite(func() {
	ctx = options.ToContext(context.Background(), coretest.Options())
	env = coretest.NewEnvironment(coretest.WithCRDs(coreapis.CRDs...), coretest.WithCRDs(testv1alpha1.CRDs...),
		coretest.WithFieldIndexers(coretest.NodeProviderIDFieldIndexer(ctx), coretest.NodeClaimProviderIDFieldIndexer(ctx)))
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

var _ = BeforeEach(func() {
	env.Clock.SetTime(t0)
	inner = fake.NewCloudProvider()
	inner.InstanceTypes = []*corecloudprovider.InstanceType{gpuType("g5.xlarge", 1), gpuType("g5.12xlarge", 4)}
	store, book = &pools.Store{}, trials.NewBook(env.Clock)
	outer = readiness.Decorate(inner, env.Client, store, book, readiness.Options{})
})

var _ = AfterEach(func() {
	ExpectCleanedUp(ctx, env.Client)
	Expect(env.Client.DeleteAllOf(ctx, &appsv1.DaemonSet{}, client.InNamespace("default"))).To(Succeed())
})

// gpuType is sold on demand in zones a and b.
func gpuType(name string, gpus int) *corecloudprovider.InstanceType {
	var offerings []corecloudprovider.Offering
	for _, zone := range []string{"a", "b"} {
		offerings = append(offerings, corecloudprovider.Offering{
			Available: true, Price: float64(gpus),
			Requirements: scheduling.NewLabelRequirements(map[string]string{
				corev1.LabelTopologyZone: zone, karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand,
			}),
		})
	}
	return fake.NewInstanceType(name, fake.WithResources(resources(gpus)), fake.WithOfferings(offerings...))
}

// join puts a NodePool into a pool with this readiness, as the pools' controller does.
func join(r v1alpha1.Readiness) (*karpv1.NodePool, *pools.Pool) {
	nodePool := coretest.NodePool()
	ExpectApplied(ctx, env.Client, nodePool)
	pool := &pools.Pool{
		GPUPool:   &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "inference"}, Spec: v1alpha1.GPUPoolSpec{Readiness: r}},
		NodePools: []string{nodePool.Name}, Version: "1",
	}
	store.Swap([]*pools.Pool{pool}, map[string]string{nodePool.Name: pool.Name()})
	return nodePool, pool
}

// installed applies a DaemonSet that is an agent, or with an app label something else.
func installed(name, label string, tolerations ...corev1.Toleration) {
	ds := coretest.DaemonSet(coretest.DaemonSetOptions{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": label}},
		PodOptions: coretest.PodOptions{Tolerations: tolerations},
	})
	ExpectApplied(ctx, env.Client, ds)
}

// claimFor asks for a node of the NodePool.
func claimFor(nodePool *karpv1.NodePool, requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodeClaim {
	return coretest.NodeClaim(karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{karpv1.NodePoolLabelKey: nodePool.Name}, UID: coretestUID()},
		Spec:       karpv1.NodeClaimSpec{Requirements: requirements},
	})
}

// lifecycleWith is Karpenter's controller of NodeClaims, with our hook.
func lifecycleWith(hook *readiness.Hook) *lifecycle.Controller {
	cluster := state.NewCluster(env.Clock, env.Client, outer)
	npState := nodepoolhealth.NewState()
	return lifecycle.NewController(env.Clock, env.Client, outer, coretest.NewEventRecorder(), cluster, npState, []corecloudprovider.NodeLifecycleHook{hook})
}
