package verification_test

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
	coreapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/node/verification"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
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
	controller *verification.Controller

	nodePool  *karpv1.NodePool
	pool      *pools.Pool
	nodeClaim *karpv1.NodeClaim
	node      *corev1.Node
)

func TestVerification(t *testing.T) {
	testenv.UseAssets(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Verification")
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
	controller = verification.NewController(env.Clock, env.Client, recorder, store, readiness.NewVerifier(catalog.Default()), book)
	nodePool = coretest.NodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.PoolLabelKey: "inference"}}})
	ExpectApplied(ctx, env.Client, nodePool)
	join(v1alpha1.GPUPoolSpec{Readiness: v1alpha1.Readiness{Enforce: v1alpha1.EnforceAlways}})
	nodeClaim, node = launched()
})

var _ = AfterEach(func() {
	ExpectCleanedUp(ctx, env.Client)
})

// join puts the NodePool into a pool with this spec, as the pools' controller does.
func join(spec v1alpha1.GPUPoolSpec) {
	pool = &pools.Pool{GPUPool: &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "inference"}, Spec: spec}, NodePools: []string{nodePool.Name}, Version: fmt.Sprint(spec)}
	store.Swap([]*pools.Pool{pool}, map[string]string{nodePool.Name: "inference"})
}

// launched is a g5.12xlarge that has registered with the taint of the gate; its agent has not
// reported and its device plugin has not registered.
func launched() (*karpv1.NodeClaim, *corev1.Node) {
	resources := corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("4"), corev1.ResourceCPU: resource.MustParse("48")}
	nodeClaim, node := coretest.NodeClaimAndNode(karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			karpv1.NodePoolLabelKey: nodePool.Name, corev1.LabelInstanceTypeStable: "g5.12xlarge", corev1.LabelTopologyZone: "a",
		}},
		Status: karpv1.NodeClaimStatus{Capacity: resources, Allocatable: resources, ImageID: "ami-1"},
	})
	node.Labels = map[string]string{karpv1.NodePoolLabelKey: nodePool.Name, karpv1.NodeRegisteredLabelKey: "true"}
	node.Spec.Taints = []corev1.Taint{v1alpha1.UnverifiedTaint(), {Key: "team", Value: "vision", Effect: corev1.TaintEffectNoSchedule}}
	node.Status.NodeInfo.BootID = boot
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("48")}
	nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	return nodeClaim, node
}

// a10gs is what the agent of a sound g5.12xlarge reports.
func a10gs(boot string) health.Report {
	r := health.Report{Version: health.ReportVersion, BootID: boot, State: health.Ready, Reason: health.ReasonVerified, Verified: true, Known: 4, Driver: "550.54.15", CUDA: "12.4"}
	for i := range 4 {
		r.GPUs = append(r.GPUs, health.ReportGPU{Index: i, UUID: fmt.Sprint("GPU-", i), Product: "NVIDIA A10G", MemoryMiB: 23028, ComputeCapability: "8.6"})
	}
	return r
}

func faulty(r health.Report, f health.ReportFinding) health.Report {
	f.Severity = health.Fatal
	r.State, r.Reason, r.Findings = health.Unhealthy, f.Reason, append(r.Findings, f)
	return r
}

// reported writes what the agent writes, to the object in memory.
func reported(r health.Report) {
	node.Annotations = lo.Assign(node.Annotations, map[string]string{v1alpha1.ReportAnnotationKey: string(lo.Must(health.Encode(r)))})
	status := map[health.State]corev1.ConditionStatus{health.Ready: corev1.ConditionTrue, health.Unhealthy: corev1.ConditionFalse, health.Starting: corev1.ConditionUnknown}[r.State]
	message := ""
	if len(r.Findings) > 0 {
		message = r.Findings[0].Message
	}
	node.Status.Conditions = append(
		lo.Reject(node.Status.Conditions, func(c corev1.NodeCondition, _ int) bool { return c.Type == v1alpha1.NodeConditionGPUReady }),
		corev1.NodeCondition{Type: v1alpha1.NodeConditionGPUReady, Status: status, Reason: string(r.Reason), Message: message})
}

func plugged(gpus string) { node.Status.Allocatable[v1alpha1.ResourceGPU] = resource.MustParse(gpus) }

// reconciled applies the objects and lets the controller see the node.
func reconciled() {
	GinkgoHelper()
	ExpectApplied(ctx, env.Client, nodeClaim, node)
	ExpectObjectReconciled(ctx, env.Client, controller, node)
	node = ExpectExists(ctx, env.Client, node)
}

// verified brings the node to work.
func verified() {
	GinkgoHelper()
	reported(a10gs(boot))
	plugged("4")
	reconciled()
	Expect(readiness.Tainted(node)).To(BeFalse())
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
