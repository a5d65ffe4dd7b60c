package reclaim_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	coreapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/reclaim"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

const (
	poolName = "batch"
	// grace is the time between the taint and the second look.
	grace = 2 * time.Second
)

var (
	ctx      context.Context
	env      *coretest.Environment
	direct   client.Client
	cloud    *fake.CloudProvider
	store    *pools.Store
	recorder *coretest.EventRecorder
	buffers  *counts

	gpuPool  *v1alpha1.GPUPool
	nodePool *karpv1.NodePool

	// What a process has in memory.
	cluster    *state.Cluster
	queue      *disruption.Queue
	karpenter  *disruption.Controller
	controller *reclaim.Controller
)

// counts stands for the provisioner.
type counts struct {
	counted  time.Time
	triggers int
}

func (c *counts) BuffersCounted() time.Time { return c.counted }
func (c *counts) TriggerReconcile()         { c.triggers++ }

func TestReclaim(t *testing.T) {
	testenv.UseAssets(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Reclaim")
}

var _ = BeforeSuite(func() {
	ctx = options.ToContext(context.Background(), coretest.Options())
	env = coretest.NewEnvironment(coretest.WithCRDs(coreapis.CRDs...), coretest.WithCRDs(testv1alpha1.CRDs...), coretest.WithCRDs(apis.CRDs...),
		coretest.WithFieldIndexers(coretest.NodeProviderIDFieldIndexer(ctx), coretest.NodeClaimProviderIDFieldIndexer(ctx)))
	direct = lo.Must(client.New(env.Config, client.Options{}))
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

var _ = BeforeEach(func() {
	env.Clock.SetTime(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	cloud, store, recorder, buffers = fake.NewCloudProvider(), &pools.Store{}, coretest.NewEventRecorder(), &counts{}
	nodePool = coretest.NodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Labels: map[string]string{v1alpha1.PoolLabelKey: poolName}}})
	nodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	gpuPool = &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: poolName}, Spec: v1alpha1.GPUPoolSpec{Reclaim: v1alpha1.Reclaim{EmptyAfter: &metav1.Duration{Duration: 30 * time.Second}}}}
	ExpectApplied(ctx, env.Client, nodePool, gpuPool)
	resolve()
	start(nil)
})

var _ = AfterEach(func() {
	ExpectCleanedUp(ctx, env.Client)
	Expect(direct.DeleteAllOf(ctx, &v1alpha1.GPUPool{})).To(Succeed())
	// The next spec makes objects of the same names.
	Eventually(func(g Gomega) {
		for _, list := range []client.ObjectList{&v1alpha1.GPUPoolList{}, &karpv1.NodePoolList{}, &karpv1.NodeClaimList{}, &corev1.NodeList{}, &corev1.PodList{}} {
			g.Expect(env.Client.List(ctx, list)).To(Succeed())
			g.Expect(meta.LenList(list)).To(BeZero())
		}
	}).WithTimeout(time.Minute).Should(Succeed())
})

// resolve does what the pools' controller does.
func resolve() {
	p := &pools.Pool{GPUPool: gpuPool.DeepCopy(), NodePools: []string{nodePool.Name}, Version: "1"}
	store.Swap([]*pools.Pool{p}, map[string]string{nodePool.Name: poolName})
}

// start makes the controllers as at the start of a process: memory is empty, and Karpenter's
// cluster state is read from the API server. Its disruption has no methods: what is left is
// what each of its rounds begins with, the removal of taints that nobody stands for. reads
// stands in for the cache, nil for none in between.
func start(reads client.Client, o ...func(*reclaim.Dependencies)) {
	GinkgoHelper()
	cluster = state.NewCluster(env.Clock, env.Client, cloud)
	queue = disruption.NewQueue(env.Client, recorder, cluster, env.Clock, nil)
	karpenter = disruption.NewController(ctx, env.Clock, env.Client, nil, cloud, recorder, cluster, queue, nil, disruption.WithMethods())
	d := reclaim.Dependencies{
		Clock: env.Clock, Client: lo.Ternary(reads == nil, env.Client, reads), Reader: direct, Recorder: recorder,
		Pools: store, Cluster: cluster, Queue: queue,
	}
	for _, f := range o {
		f(&d)
	}
	controller = reclaim.NewController(d)
	informed()
}

// informed brings the cluster state up to date.
func informed() {
	GinkgoHelper()
	var claims karpv1.NodeClaimList
	Expect(env.Client.List(ctx, &claims)).To(Succeed())
	for _, c := range claims.Items {
		cluster.UpdateNodeClaim(&c)
	}
	var nodes corev1.NodeList
	Expect(env.Client.List(ctx, &nodes)).To(Succeed())
	for _, n := range nodes.Items {
		Expect(cluster.UpdateNode(ctx, &n)).To(Succeed())
	}
}

// standing makes initialized nodes of the NodePool, each with the pod of a DaemonSet.
func standing(n int, change ...func(*karpv1.NodeClaim, *corev1.Node)) ([]*karpv1.NodeClaim, []*corev1.Node) {
	GinkgoHelper()
	var claims []*karpv1.NodeClaim
	var nodes []*corev1.Node
	for range n {
		claim, node := coretest.NodeClaimAndNode(karpv1.NodeClaim{
			// Karpenter's finalizer keeps a deleted NodeClaim visible.
			ObjectMeta: metav1.ObjectMeta{Finalizers: []string{karpv1.TerminationFinalizer}, Labels: map[string]string{
				karpv1.NodePoolLabelKey: nodePool.Name, corev1.LabelInstanceTypeStable: "default-instance-type",
				karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand, corev1.LabelTopologyZone: "test-zone-1",
			}},
		})
		node.Labels[karpv1.NodeRegisteredLabelKey], node.Labels[karpv1.NodeInitializedLabelKey] = "true", "true"
		for _, f := range change {
			f(claim, node)
		}
		ExpectApplied(ctx, env.Client, claim, node)
		ExpectMakeNodeClaimsInitialized(ctx, env.Client, env.Clock, claim)
		ExpectMakeNodesReady(ctx, env.Client, env.Clock, node)
		claims, nodes = append(claims, ExpectExists(ctx, env.Client, claim)), append(nodes, node)
	}
	informed()
	return claims, nodes
}

// bound makes a running pod on a node.
func bound(node *corev1.Node, o ...func(*corev1.Pod)) *corev1.Pod {
	GinkgoHelper()
	pod := coretest.Pod(coretest.PodOptions{NodeName: node.Name, Phase: corev1.PodRunning})
	for _, f := range o {
		f(pod)
	}
	ExpectApplied(ctx, env.Client, pod)
	return pod
}

// owned makes a pod one of a DaemonSet, or of a Node.
func owned(version, kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "owner", UID: "uid", Controller: lo.ToPtr(true)}}
	}
}

// ended makes a pod succeed.
func ended(pod *corev1.Pod) {
	GinkgoHelper()
	pod.Status.Phase = corev1.PodSucceeded
	ExpectApplied(ctx, env.Client, pod)
}

// round lets the time pass, brings Karpenter's state up to date and makes one round.
func round(after time.Duration) time.Duration {
	GinkgoHelper()
	env.Clock.Step(after)
	informed()
	result, err := controller.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: poolName}})
	Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

func isTainted(node *corev1.Node) bool {
	GinkgoHelper()
	found := &corev1.Node{}
	Expect(direct.Get(ctx, client.ObjectKeyFromObject(node), found)).To(Succeed())
	return lo.ContainsBy(found.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&karpv1.DisruptedNoScheduleTaint) })
}

func deleted(claim *karpv1.NodeClaim) bool {
	GinkgoHelper()
	found := &karpv1.NodeClaim{}
	Expect(direct.Get(ctx, client.ObjectKeyFromObject(claim), found)).To(Succeed())
	return !found.DeletionTimestamp.IsZero()
}

// tainted and gone count nodes.
func tainted(nodes []*corev1.Node) int { return lo.CountBy(nodes, isTainted) }

func gone(claims []*karpv1.NodeClaim) int { return lo.CountBy(claims, deleted) }

func events(reason string) []string {
	var out []string
	for _, e := range recorder.Events() {
		if e.Reason == reason {
			out = append(out, e.Message)
		}
	}
	return out
}

// condition is ReclaimUnblocked of the pool: status, reason and message, empty if there is none.
func condition() (status, reason, message string) {
	GinkgoHelper()
	found := &v1alpha1.GPUPool{}
	Expect(direct.Get(ctx, types.NamespacedName{Name: poolName}, found)).To(Succeed())
	for _, c := range found.Status.Conditions {
		if c.Type == v1alpha1.ConditionTypeReclaimUnblocked {
			return string(c.Status), c.Reason, c.Message
		}
	}
	return "", "", ""
}
