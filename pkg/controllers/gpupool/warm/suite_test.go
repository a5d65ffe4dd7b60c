package warm_test

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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coreapis "sigs.k8s.io/karpenter/pkg/apis"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
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
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/warm"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

const (
	namespace = "kube-system"
	workloads = "default"
	boot      = "11111111-1111-4111-8111-111111111111"
	image     = "registry.example.com/team/model:v3"
)

var (
	gateless   context.Context
	ctx        context.Context
	env        *coretest.Environment
	cloud      *fake.CloudProvider
	store      *pools.Store
	spaces     *provisioning.Spaces
	recorder   *coretest.EventRecorder
	controller *warm.Controller

	nodePool *karpv1.NodePool
	pool     *v1alpha1.GPUPool
)

func TestWarm(t *testing.T) {
	testenv.UseAssets(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Warm capacity")
}

var _ = BeforeSuite(func() {
	gateless = options.ToContext(context.Background(), coretest.Options())
	ctx = options.ToContext(context.Background(), coretest.Options(coretest.OptionsFields{FeatureGates: coretest.FeatureGates{CapacityBuffer: lo.ToPtr(true)}}))
	env = coretest.NewEnvironment(coretest.WithCRDs(coreapis.CRDs...), coretest.WithCRDs(testv1alpha1.CRDs...), coretest.WithCRDs(apis.CRDs...))
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

var _ = BeforeEach(func() {
	env.Clock.SetTime(time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC))
	cloud = fake.NewCloudProvider()
	cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 10), gpuType("gpu8", 8, 100)}
	nodePool = coretest.NodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: karpv1.NodePoolSpec{Template: karpv1.NodeClaimTemplate{
		Spec: karpv1.NodeClaimTemplateSpec{Taints: []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}},
	}}})
	pool = &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "inference"}}
	start()
})

// start builds what the process builds at its start.
func start() {
	store, spaces, recorder = &pools.Store{}, provisioning.NewSpaces(), coretest.NewEventRecorder()
	controller = warm.NewController(warm.Options{Clock: env.Clock, Client: env.Client, CloudProvider: cloud, Recorder: recorder, Pools: store, Spaces: spaces, Namespace: namespace})
}

var _ = AfterEach(func() {
	ExpectCleanedUp(ctx, env.Client)
	Expect(env.Client.DeleteAllOf(ctx, &v1alpha1.GPUPool{})).To(Succeed())
	for _, ns := range []string{namespace, workloads} {
		Expect(env.Client.DeleteAllOf(ctx, &autoscalingv1beta1.CapacityBuffer{}, client.InNamespace(ns))).To(Succeed())
		Expect(env.Client.DeleteAllOf(ctx, &corev1.PodTemplate{}, client.InNamespace(ns))).To(Succeed())
		Expect(env.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(ns), client.GracePeriodSeconds(0))).To(Succeed())
	}
})

func gpuType(name string, gpus int, price float64) *cloudprovider.InstanceType {
	return fake.NewInstanceType(name, fake.WithResources(corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(fmt.Sprint(4 * gpus)), corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dGi", 32*gpus)),
		corev1.ResourcePods: resource.MustParse("110"), v1alpha1.ResourceGPU: resource.MustParse(fmt.Sprint(gpus)),
	}), fake.WithOfferings(cloudprovider.Offering{Available: true, Price: price, Requirements: scheduling.NewLabelRequirements(map[string]string{
		karpv1.CapacityTypeLabelKey: "on-demand", corev1.LabelTopologyZone: "test-zone-1"})}))
}

// entry is a warm entry of so many GPUs.
func entry(name string, gpus int32, change ...func(*v1alpha1.WarmCapacity)) v1alpha1.WarmCapacity {
	out := v1alpha1.WarmCapacity{Name: name, GPUs: &gpus}
	for _, c := range change {
		c(&out)
	}
	return out
}

func window(start string, length time.Duration, zone string, share int32) v1alpha1.WarmWindow {
	return v1alpha1.WarmWindow{Start: start, Duration: metav1.Duration{Duration: length}, TimeZone: zone, SharePercent: &share}
}

// keep applies pool and NodePool, resolves them, and returns the pool as the controller
// leaves it.
func keep() *v1alpha1.GPUPool { return keepWith(ctx) }

func keepWith(ctx context.Context) *v1alpha1.GPUPool {
	GinkgoHelper()
	nodePool.Labels = map[string]string{v1alpha1.PoolLabelKey: pool.Name}
	ExpectApplied(ctx, env.Client, nodePool, pool)
	return again(ctx)
}

// again reconciles a pool that stands, after the time that it is left alone.
func again(ctx context.Context) *v1alpha1.GPUPool {
	GinkgoHelper()
	resolved := ExpectExists(ctx, env.Client, pool)
	store.Swap([]*pools.Pool{{GPUPool: resolved, NodePools: []string{nodePool.Name}, Version: resolved.ResourceVersion}}, map[string]string{nodePool.Name: pool.Name})
	env.Clock.Step(time.Second)
	_, err := controller.Reconcile(ctx, resolved.DeepCopy())
	Expect(err).NotTo(HaveOccurred())
	pool = ExpectExists(ctx, env.Client, pool)
	return pool
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// buffer and template are what was rendered under a name.
func buffer(k types.NamespacedName) *autoscalingv1beta1.CapacityBuffer {
	GinkgoHelper()
	out := &autoscalingv1beta1.CapacityBuffer{}
	Expect(env.Client.Get(ctx, k, out)).To(Succeed())
	return out
}

func template(k types.NamespacedName) *corev1.PodTemplate {
	GinkgoHelper()
	out := &corev1.PodTemplate{}
	Expect(env.Client.Get(ctx, k, out)).To(Succeed())
	return out
}

func replicas(k types.NamespacedName) int {
	GinkgoHelper()
	return int(*buffer(k).Spec.Replicas)
}

// node is one of Karpenter's that has been verified, or is not yet.
func node(name string, verified bool) *corev1.Node {
	n := coretest.Node(coretest.NodeOptions{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		karpv1.NodePoolLabelKey: nodePool.Name, karpv1.NodeRegisteredLabelKey: "true"}}})
	n.Status.NodeInfo.BootID = boot
	if verified {
		n.Labels[karpv1.NodeInitializedLabelKey] = "true"
		n.Annotations = lo.Assign(n.Annotations, map[string]string{v1alpha1.VerifiedBootAnnotationKey: boot})
	} else {
		n.Spec.Taints = append(n.Spec.Taints, v1alpha1.UnverifiedTaint())
	}
	return n
}

// placed notes a round of the provisioner: one pod of the buffer on each of the nodes.
func placed(k types.NamespacedName, price string, nodes ...string) {
	GinkgoHelper()
	per, err := v1alpha1.ParsePrice(price)
	Expect(err).NotTo(HaveOccurred())
	spaces.Note(map[types.NamespacedName]provisioning.Space{k: {Nodes: lo.Map(nodes, func(n string, i int) provisioning.HeldNode {
		return provisioning.HeldNode{Node: n, NodeClaim: fmt.Sprintf("claim-%d", i), Pods: 1, GPUs: 1, Price: per}
	})}})
}

func status(name string) v1alpha1.WarmStatus {
	GinkgoHelper()
	out, ok := lo.Find(pool.Status.Warm, func(w v1alpha1.WarmStatus) bool { return w.Name == name })
	Expect(ok).To(BeTrue(), "no status of entry "+name)
	return out
}

func condition(want metav1.ConditionStatus, reason, message string) {
	GinkgoHelper()
	got := pool.StatusConditions().Get(v1alpha1.ConditionTypeWarmCapacityReady)
	Expect(got).NotTo(BeNil())
	Expect(got.Status).To(Equal(want), got.Message)
	Expect(got.Reason).To(Equal(reason))
	Expect(got.Message).To(Equal(message))
}
