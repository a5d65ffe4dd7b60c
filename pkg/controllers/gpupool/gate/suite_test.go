package gate_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coreapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/gate"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

const boot = "11111111-1111-4111-8111-111111111111"

var (
	ctx        context.Context
	env        *coretest.Environment
	store      *pools.Store
	book       *trials.Book
	recorder   *coretest.EventRecorder
	open       untainted
	controller *gate.Controller

	nodePool *karpv1.NodePool
	gpuPool  *v1alpha1.GPUPool
)

// untainted are nodes that registered without a taint, by pool.
type untainted map[string]string

func (u untainted) Untainted(pool string) (string, bool) { n, ok := u[pool]; return n, ok }

func TestGate(t *testing.T) {
	testenv.UseAssets(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Gate")
}

var _ = BeforeSuite(func() {
	ctx = options.ToContext(context.Background(), coretest.Options())
	env = coretest.NewEnvironment(coretest.WithCRDs(coreapis.CRDs...), coretest.WithCRDs(testv1alpha1.CRDs...), coretest.WithCRDs(apis.CRDs...))
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

var _ = BeforeEach(func() {
	env.Clock.SetTime(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	recorder, store, book, open = coretest.NewEventRecorder(), &pools.Store{}, trials.NewBook(env.Clock), untainted{}
	controller = gate.NewController(env.Clock, env.Client, recorder, store, book, open)
	nodePool = coretest.NodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	gpuPool = &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: coretest.RandomName()}}
	installed("agent", "gpu-agent", corev1.Toleration{Operator: corev1.TolerationOpExists})
})

var _ = AfterEach(func() {
	ExpectCleanedUp(ctx, env.Client)
	Expect(env.Client.DeleteAllOf(ctx, &appsv1.DaemonSet{}, client.InNamespace("default"))).To(Succeed())
	Expect(env.Client.DeleteAllOf(ctx, &v1alpha1.GPUPool{})).To(Succeed())
})

func installed(name, app string, tolerations ...corev1.Toleration) *appsv1.DaemonSet {
	ds := coretest.DaemonSet(coretest.DaemonSetOptions{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}, PodOptions: coretest.PodOptions{Tolerations: tolerations},
	})
	ExpectApplied(ctx, env.Client, ds)
	return ds
}

// reconciled applies pool and NodePool, resolves them and returns the pool as the controller
// leaves it.
func reconciled() *v1alpha1.GPUPool {
	GinkgoHelper()
	ExpectApplied(ctx, env.Client, nodePool, gpuPool)
	store.Swap([]*pools.Pool{{GPUPool: gpuPool.DeepCopy(), NodePools: []string{nodePool.Name}, Version: gpuPool.ResourceVersion}}, map[string]string{nodePool.Name: gpuPool.Name})
	ExpectObjectReconciled(ctx, env.Client, controller, gpuPool)
	gpuPool = ExpectExists(ctx, env.Client, gpuPool)
	return gpuPool
}

// available lists the offerings that a process with the present book would launch into. The
// pools are resolved as after a start: with the status that the API server has.
func available() []string {
	GinkgoHelper()
	resolved := ExpectExists(ctx, env.Client, gpuPool)
	store.Swap([]*pools.Pool{{GPUPool: resolved, NodePools: []string{nodePool.Name}, Version: resolved.ResourceVersion}}, map[string]string{nodePool.Name: resolved.Name})
	cloud := fake.NewCloudProvider()
	for _, name := range []string{"g5.xlarge", "g5.12xlarge"} {
		cloud.InstanceTypes = append(cloud.InstanceTypes, fake.NewInstanceType(name, fake.WithOfferings(offered("a"), offered("b"))))
	}
	types, err := readiness.Decorate(cloud, env.Client, store, book, readiness.Options{}).GetInstanceTypes(ctx, ExpectExists(ctx, env.Client, nodePool))
	Expect(err).ToNot(HaveOccurred())
	var out []string
	for _, it := range types {
		for _, o := range it.Offerings.Available() {
			out = append(out, it.Name+" "+o.Zone())
		}
	}
	return out
}

func offered(zone string) cloudprovider.Offering {
	return cloudprovider.Offering{Available: true, Price: 1, Requirements: scheduling.NewLabelRequirements(map[string]string{
		corev1.LabelTopologyZone: zone, karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand,
	})}
}

func nodeOf(pool *karpv1.NodePool, change func(*corev1.Node)) {
	node := coretest.Node(coretest.NodeOptions{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{karpv1.NodePoolLabelKey: pool.Name}, Annotations: map[string]string{v1alpha1.VerifiedBootAnnotationKey: boot},
	}})
	node.Status.NodeInfo.BootID = boot
	change(node)
	ExpectApplied(ctx, env.Client, node)
}

func fenced(node *corev1.Node) { readiness.Close(node, env.Clock.Now()) }
