package trial_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	coreapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/nodeclaim/trial"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

const (
	boot   = "11111111-1111-4111-8111-111111111111"
	reboot = "22222222-2222-4222-8222-222222222222"
)

var (
	ctx        context.Context
	env        *coretest.Environment
	store      *pools.Store
	book       *trials.Book
	recorder   *coretest.EventRecorder
	demand     *wishes
	decisions  *rounds
	controller *trial.Controller

	nodePool  *karpv1.NodePool
	nodeClaim *karpv1.NodeClaim
	node      *corev1.Node
)

// wishes stands for Karpenter's cluster state: provider IDs of nodes that pods or buffers
// count on.
type wishes struct{ pods, buffers sets.Set[string] }

func (w *wishes) IsNodeNominated(id string) bool { return w.pods.Has(id) }
func (w *wishes) HasBufferPods(id string) bool   { return w.buffers.Has(id) }

// rounds stands for the provisioner's count of decisions.
type rounds int

func (r *rounds) Rounds() int { return int(*r) }

func TestTrial(t *testing.T) {
	testenv.UseAssets(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Trial")
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
	env.Clock.SetTime(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	recorder, store, book = coretest.NewEventRecorder(), &pools.Store{}, trials.NewBook(env.Clock)
	demand = &wishes{pods: sets.New[string](), buffers: sets.New[string]()}
	decisions = new(rounds)
	controller = newController()
	nodePool = coretest.NodePool()
	nodePool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("2m")
	ExpectApplied(ctx, env.Client, nodePool)
	join(v1alpha1.Readiness{Enforce: v1alpha1.EnforceAlways})
	nodeClaim, node = launched()
	demand.pods.Insert(nodeClaim.Status.ProviderID)
})

var _ = AfterEach(func() {
	ExpectCleanedUp(ctx, env.Client)
})

func newController() *trial.Controller {
	return trial.NewController(trial.Dependencies{
		Clock: env.Clock, Client: env.Client, CloudProvider: fake.NewCloudProvider(), Recorder: recorder, Pools: store,
		Verifier: readiness.NewVerifier(catalog.Default()), Book: book, Demand: demand, Rounds: decisions,
	})
}

func join(r v1alpha1.Readiness) {
	p := &pools.Pool{GPUPool: &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "inference"}, Spec: v1alpha1.GPUPoolSpec{Readiness: r}}, NodePools: []string{nodePool.Name}, Version: "1"}
	store.Swap([]*pools.Pool{p}, map[string]string{nodePool.Name: "inference"})
}

// launched is a g5.xlarge whose Node has joined and whose agent has not reported.
func launched() (*karpv1.NodeClaim, *corev1.Node) {
	resources := corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("1")}
	nodeClaim, node := coretest.NodeClaimAndNode(karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			// Karpenter's finalizer keeps a deleted NodeClaim visible.
			Finalizers: []string{karpv1.TerminationFinalizer},
			Labels: map[string]string{
				karpv1.NodePoolLabelKey: nodePool.Name, corev1.LabelInstanceTypeStable: "g5.xlarge", corev1.LabelTopologyZone: "a",
			},
		},
		Status: karpv1.NodeClaimStatus{Capacity: resources, Allocatable: resources, ImageID: "ami-1"},
	})
	node.Labels[karpv1.NodeRegisteredLabelKey] = "true"
	node.Spec.Taints = []corev1.Taint{v1alpha1.UnverifiedTaint()}
	node.Status.NodeInfo.BootID = boot
	nodeClaim.Status.Conditions = nil
	nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	for i := range nodeClaim.Status.Conditions {
		nodeClaim.Status.Conditions[i].LastTransitionTime = metav1.NewTime(env.Clock.Now())
	}
	return nodeClaim, node
}

func reconciled() {
	GinkgoHelper()
	ExpectObjectReconciled(ctx, env.Client, controller, nodeClaim)
}

func deleted() bool {
	GinkgoHelper()
	return !ExpectExists(ctx, env.Client, nodeClaim).DeletionTimestamp.IsZero()
}

func events(reason string) []string {
	var out []string
	for _, e := range recorder.Events() {
		if e.Reason == reason {
			out = append(out, e.Message)
		}
	}
	return out
}
