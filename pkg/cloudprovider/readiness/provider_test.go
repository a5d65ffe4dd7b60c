package readiness_test

import (
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/controllers/state/informer"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

func coretestUID() types.UID { return uuid.NewUUID() }

func resources(gpus int) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110"),
		v1alpha1.ResourceGPU: *resource.NewQuantity(int64(gpus), resource.DecimalSI),
	}
}

func ofTypes(values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func values(nodeClaim *karpv1.NodeClaim, key string) []string {
	var out []string
	for _, r := range nodeClaim.Spec.Requirements {
		if r.Key == key {
			out = append(out, r.Values...)
		}
	}
	return out
}

// fail records that a node of an offering was not verified in time.
func fail(pool *pools.Pool, instanceType, zone, reason string) {
	book.Failed(trials.Trial{
		UID: coretestUID(), Pool: pool.Name(), Launched: env.Clock.Now(),
		Offering: trials.Offering{NodeClass: "default", InstanceType: instanceType, Zone: zone, Image: "ami-1"},
	}, reason, "the driver shows no GPU")
}

// storm makes three nodes fail alike.
func storm(pool *pools.Pool) {
	for range trials.StormFailures {
		fail(pool, "gone.type", "z", "NoGPUs")
	}
}

var _ = Describe("The taint of the gate", func() {
	It("should reach the inner provider on a copy, and be expected to go by Karpenter's scheduler", func() {
		nodePool, _ := join(v1alpha1.Readiness{})
		installed("agent", "gpu-agent", toleratesAll)
		nodeClaim := claimFor(nodePool, ofTypes("g5.xlarge"))
		before := nodeClaim.DeepCopy()
		_, err := outer.Create(ctx, nodeClaim)
		Expect(err).ToNot(HaveOccurred())
		Expect(nodeClaim).To(Equal(before))
		Expect(inner.CreateCalls).To(HaveLen(1))
		Expect(inner.CreateCalls[0].Spec.StartupTaints).To(ConsistOf(v1alpha1.UnverifiedTaint()))
		Expect(scheduling.IsKnownEphemeralTaint(lo.ToPtr(v1alpha1.UnverifiedTaint()))).To(BeTrue())
	})
	It("should not be there twice where the NodePool lists it", func() {
		nodePool, _ := join(v1alpha1.Readiness{})
		installed("agent", "gpu-agent", toleratesAll)
		nodeClaim := claimFor(nodePool, ofTypes("g5.xlarge"))
		nodeClaim.Spec.StartupTaints = []corev1.Taint{v1alpha1.UnverifiedTaint()}
		_, err := outer.Create(ctx, nodeClaim)
		Expect(err).ToNot(HaveOccurred())
		Expect(inner.CreateCalls[0].Spec.StartupTaints).To(HaveLen(1))
	})
	DescribeTable("should be there when the gate is in force",
		func(r v1alpha1.Readiness, agent bool, pluginTolerates corev1.Toleration, want bool) {
			nodePool, pool := join(r)
			if agent {
				installed("agent", "gpu-agent", toleratesAll)
			}
			installed("plugin", "nvidia-device-plugin-daemonset", pluginTolerates)
			_, err := outer.Create(ctx, claimFor(nodePool, ofTypes("g5.xlarge")))
			Expect(err).ToNot(HaveOccurred())
			Expect(inner.CreateCalls[0].Spec.StartupTaints).To(HaveLen(lo.Ternary(want, 1, 0)))
			inForce, err := readiness.NewGate(env.Client).InForce(ctx, pool)
			Expect(err).ToNot(HaveOccurred())
			Expect(inForce).To(Equal(want))
		},
		Entry("by default", v1alpha1.Readiness{}, true, toleratesGate, true),
		Entry("with gate Registration", v1alpha1.Readiness{Gate: v1alpha1.GateRegistration}, true, toleratesGate, true),
		Entry("and not with gate None", v1alpha1.Readiness{Gate: v1alpha1.GateNone}, true, toleratesGate, false),
		Entry("and not when a DaemonSet would deadlock", v1alpha1.Readiness{}, true, toleratesGPU, false),
		Entry("and not without an agent", v1alpha1.Readiness{}, false, toleratesGate, false),
		Entry("whatever happens when it is enforced", v1alpha1.Readiness{Enforce: v1alpha1.EnforceAlways}, false, toleratesGPU, true),
	)
	It("should count an agent that is no DaemonSet once it has reported", func() {
		_, pool := join(v1alpha1.Readiness{})
		safety, err := readiness.NewGate(env.Client).Safety(ctx, pool)
		Expect(err).ToNot(HaveOccurred())
		Expect(safety.Reason).To(Equal(v1alpha1.ReasonAgentMissing))
		Expect(safety.Message).To(ContainSubstring("no GPU agent reports from these nodes; install the chart gpu-agent, or run the agent from the image. Until then nodes of the pool are not gated"))
		node := coretest.Node()
		ExpectApplied(ctx, env.Client, node)
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.NodeConditionGPUReady, Status: corev1.ConditionTrue})
		ExpectApplied(ctx, env.Client, node)
		safety, err = readiness.NewGate(env.Client).Safety(ctx, pool)
		Expect(err).ToNot(HaveOccurred())
		Expect(safety.Safe).To(BeTrue())
	})
	It("should leave NodePools without a pool to the inner provider", func() {
		nodePool := coretest.NodePool()
		ExpectApplied(ctx, env.Client, nodePool)
		nodeClaim := claimFor(nodePool, ofTypes("g5.xlarge"))
		_, err := outer.Create(ctx, nodeClaim)
		Expect(err).ToNot(HaveOccurred())
		Expect(inner.CreateCalls[0]).To(BeIdenticalTo(nodeClaim))
	})
})

var _ = Describe("Offerings whose nodes fail", func() {
	var nodePool *karpv1.NodePool
	var pool *pools.Pool
	BeforeEach(func() {
		nodePool, pool = join(v1alpha1.Readiness{})
		installed("agent", "gpu-agent", toleratesAll)
	})
	available := func() []string {
		its, err := outer.GetInstanceTypes(ctx, nodePool)
		Expect(err).ToNot(HaveOccurred())
		var out []string
		for _, it := range its {
			for _, o := range it.Offerings.Available() {
				out = append(out, it.Name+"/"+o.Zone())
			}
		}
		return out
	}
	It("should be unavailable for the time of the backoff, and the inner answer be untouched", func() {
		Expect(available()).To(HaveLen(4))
		fail(pool, "g5.xlarge", "a", "NoGPUs")
		Expect(available()).To(ConsistOf("g5.xlarge/b", "g5.12xlarge/a", "g5.12xlarge/b"))
		Expect(inner.InstanceTypes[0].Offerings.Available()).To(HaveLen(2))
		its, err := outer.GetInstanceTypes(ctx, nodePool)
		Expect(err).ToNot(HaveOccurred())
		Expect(its[1]).To(BeIdenticalTo(inner.InstanceTypes[1]))
		Expect(its[0].Allocatable()).To(Equal(inner.InstanceTypes[0].Allocatable()))
		env.Clock.Step(trials.FirstBackoff)
		Expect(available()).To(HaveLen(4))
	})
	It("should copy all of a type but what is computed", func() {
		inner.InstanceTypes[0].ApplyCapacityOverlay(corev1.ResourceList{"example.com/x": resource.MustParse("1")})
		inner.InstanceTypes[0].VolumeAttachmentLimits = map[string]int{"ebs": 3}
		fail(pool, "g5.xlarge", "a", "NoGPUs")
		its, err := outer.GetInstanceTypes(ctx, nodePool)
		Expect(err).ToNot(HaveOccurred())
		Expect(its[0].IsCapacityOverlayApplied()).To(BeTrue())
		Expect(its[0].Capacity).To(HaveKey(corev1.ResourceName("example.com/x")))
		Expect(its[0].VolumeAttachmentLimits).To(HaveKeyWithValue("ebs", 3))
		Expect(its[0].Requirements).To(Equal(inner.InstanceTypes[0].Requirements))
		Expect(its[0].Overhead).To(BeIdenticalTo(inner.InstanceTypes[0].Overhead))
	})
	It("should be kept from the provider's own choice by leaving out the type", func() {
		fail(pool, "g5.xlarge", "a", "NoGPUs")
		_, err := outer.Create(ctx, claimFor(nodePool, ofTypes("g5.xlarge", "g5.12xlarge")))
		Expect(err).ToNot(HaveOccurred())
		Expect(values(inner.CreateCalls[0], corev1.LabelInstanceTypeStable)).To(ConsistOf("g5.12xlarge"))
		Expect(values(inner.CreateCalls[0], corev1.LabelTopologyZone)).To(BeEmpty())
	})
	It("should be kept from it by leaving out the zone where there is one type", func() {
		fail(pool, "g5.xlarge", "a", "NoGPUs")
		_, err := outer.Create(ctx, claimFor(nodePool, ofTypes("g5.xlarge")))
		Expect(err).ToNot(HaveOccurred())
		Expect(values(inner.CreateCalls[0], corev1.LabelTopologyZone)).To(ConsistOf("b"))
	})
	It("should be tried where nothing else is left", func() {
		fail(pool, "g5.xlarge", "a", "NoGPUs")
		fail(pool, "g5.xlarge", "b", "NoGPUs")
		_, err := outer.Create(ctx, claimFor(nodePool, ofTypes("g5.xlarge")))
		Expect(err).ToNot(HaveOccurred())
		Expect(values(inner.CreateCalls[0], corev1.LabelTopologyZone)).To(BeEmpty())
	})
	It("should not cost a NodeClaim its minimum of types", func() {
		fail(pool, "g5.xlarge", "a", "NoGPUs")
		requirement := ofTypes("g5.xlarge", "g5.12xlarge")
		requirement.MinValues = lo.ToPtr(2)
		_, err := outer.Create(ctx, claimFor(nodePool, requirement))
		Expect(err).ToNot(HaveOccurred())
		Expect(values(inner.CreateCalls[0], corev1.LabelInstanceTypeStable)).To(ConsistOf("g5.xlarge", "g5.12xlarge"))
		Expect(values(inner.CreateCalls[0], corev1.LabelTopologyZone)).To(ConsistOf("b"))
	})
})

var _ = Describe("A storm", func() {
	var nodePool *karpv1.NodePool
	var pool *pools.Pool
	BeforeEach(func() {
		nodePool, pool = join(v1alpha1.Readiness{MaxConcurrentTrials: lo.ToPtr[int32](2)})
		installed("agent", "gpu-agent", toleratesAll)
	})
	launch := func() error {
		nodeClaim := claimFor(nodePool, ofTypes("g5.xlarge"))
		_, err := outer.Create(ctx, nodeClaim)
		return err
	}
	It("should hold launches to the pool's number, also when all come at once", func() {
		storm(pool)
		errs := make(chan error, 20)
		for range 20 {
			go func() { errs <- launch() }()
		}
		launched := 0
		for range 20 {
			if err := <-errs; err == nil {
				launched++
			} else {
				Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
				Expect(err).To(MatchError(ContainSubstring("new nodes of gpu pool inference fail verification (NoGPUs)")))
			}
		}
		Expect(launched).To(Equal(2))
	})
	It("should leave room when a launch comes to nothing", func() {
		storm(pool)
		inner.NextCreateErr = corecloudprovider.NewInsufficientCapacityError(fmt.Errorf("sold out"))
		Expect(launch()).To(MatchError(ContainSubstring("sold out")))
		Expect(launch()).To(Succeed())
		Expect(launch()).To(Succeed())
		Expect(launch()).To(HaveOccurred())
	})
	It("should show no offerings while its number is in trial, and all of them after one was verified", func() {
		storm(pool)
		var uid types.UID
		for i := range 2 {
			nodeClaim := coretest.NodeClaim(karpv1.NodeClaim{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{karpv1.NodePoolLabelKey: nodePool.Name}},
				Status:     karpv1.NodeClaimStatus{ProviderID: fmt.Sprint("fake:///", i)},
			})
			ExpectApplied(ctx, env.Client, nodeClaim)
			uid = nodeClaim.UID
		}
		its, err := outer.GetInstanceTypes(ctx, nodePool)
		Expect(err).ToNot(HaveOccurred())
		Expect(lo.Map(its, func(it *corecloudprovider.InstanceType, _ int) int { return len(it.Offerings.Available()) })).To(HaveEach(0))
		env.Clock.Step(time.Minute)
		book.Verified(trials.Trial{UID: uid, Pool: pool.Name(), Launched: env.Clock.Now()})
		its, err = outer.GetInstanceTypes(ctx, nodePool)
		Expect(err).ToNot(HaveOccurred())
		Expect(its[0]).To(BeIdenticalTo(inner.InstanceTypes[0]))
	})
	It("should not hold back a pool that does not gate", func() {
		nodePool, pool = join(v1alpha1.Readiness{Gate: v1alpha1.GateNone, MaxConcurrentTrials: lo.ToPtr[int32](1)})
		storm(pool)
		for range 3 {
			Expect(launch()).To(Succeed())
		}
	})
})

var _ = Describe("Planning", func() {
	It("should go by what a node in trial will be, and by what it is once it is initialized", func() {
		nodePool, _ := join(v1alpha1.Readiness{Enforce: v1alpha1.EnforceAlways})
		nodeClaim, node := coretest.NodeClaimAndNode(karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{karpv1.NodePoolLabelKey: nodePool.Name}},
			Status:     karpv1.NodeClaimStatus{Capacity: resources(8), Allocatable: resources(8)},
		})
		node.Labels[karpv1.NodeRegisteredLabelKey] = "true"
		node.Spec.Taints = []corev1.Taint{v1alpha1.UnverifiedTaint()}
		node.Status.Capacity, node.Status.Allocatable = resources(4), resources(4)
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		cluster := state.NewCluster(env.Clock, env.Client, outer)
		replaced, err := readiness.PlanWithTrials([]controller.Controller{informer.NewNodeController(env.Client, cluster)}, env.Client, cluster)
		Expect(err).ToNot(HaveOccurred())
		cluster.UpdateNodeClaim(nodeClaim)
		gpus := func() int64 {
			ExpectReconcileSucceeded(ctx, replaced[0].(reconcile.Reconciler), client.ObjectKeyFromObject(node))
			for n := range cluster.Nodes() {
				allocatable := n.Allocatable()
				return allocatable.Name(v1alpha1.ResourceGPU, resource.DecimalSI).Value()
			}
			return -1
		}
		Expect(gpus()).To(BeEquivalentTo(8))
		node.Labels[karpv1.NodeInitializedLabelKey] = "true"
		ExpectApplied(ctx, env.Client, node)
		Expect(gpus()).To(BeEquivalentTo(4))
		stored := ExpectExists(ctx, env.Client, node)
		Expect(stored.Status.Allocatable.Name(v1alpha1.ResourceGPU, resource.DecimalSI).Value()).To(BeEquivalentTo(4))
	})
	It("should refuse to go without the controller that it replaces", func() {
		_, err := readiness.PlanWithTrials(nil, env.Client, nil)
		Expect(err).To(MatchError("replacing the controller of nodes in the cluster state, found 0, want 1"))
	})
})

var _ = Describe("Registration", func() {
	var nodePool *karpv1.NodePool
	var hook *readiness.Hook
	start := func(r v1alpha1.Readiness) (*karpv1.NodeClaim, *corev1.Node) {
		nodePool, _ = join(r)
		installed("agent", "gpu-agent", toleratesAll)
		hook = readiness.NewHook(env.Client, store, readiness.NewGate(env.Client), readiness.NewVerifier(catalog.Default()), env.Clock)
		nodeClaim, node := coretest.NodeClaimAndNode(karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Labels:     map[string]string{karpv1.NodePoolLabelKey: nodePool.Name, corev1.LabelInstanceTypeStable: "g5.xlarge"},
				Finalizers: []string{karpv1.TerminationFinalizer},
			},
			Status: karpv1.NodeClaimStatus{Capacity: resources(1), Allocatable: resources(1)},
		})
		node.Labels = map[string]string{}
		node.Spec.Taints = []corev1.Taint{karpv1.UnregisteredNoExecuteTaint}
		nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
		return nodeClaim, node
	}
	register := func(nodeClaim *karpv1.NodeClaim, node *corev1.Node) (*karpv1.NodeClaim, *corev1.Node) {
		ExpectObjectReconciled(ctx, env.Client, lifecycleWith(hook), nodeClaim)
		return ExpectExists(ctx, env.Client, nodeClaim), ExpectExists(ctx, env.Client, node)
	}
	It("should add the taint to a node that started without it, before pods can come", func() {
		nodeClaim, node := start(v1alpha1.Readiness{})
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		nodeClaim, node = register(nodeClaim, node)
		Expect(nodeClaim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()).To(BeFalse())
		Expect(node.Spec.Taints).To(ContainElements(v1alpha1.UnverifiedTaint(), karpv1.UnregisteredNoExecuteTaint))
		nodeClaim, node = register(nodeClaim, node)
		Expect(nodeClaim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()).To(BeTrue())
		Expect(node.Spec.Taints).To(ContainElement(v1alpha1.UnverifiedTaint()))
		Expect(node.Spec.Taints).ToNot(ContainElement(karpv1.UnregisteredNoExecuteTaint))
		_, open := hook.Untainted("inference")
		Expect(open).To(BeFalse())
	})
	It("should tell of a node that started with no taint at all", func() {
		nodeClaim, node := start(v1alpha1.Readiness{})
		node.Spec.Taints = nil
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		register(nodeClaim, node)
		name, open := hook.Untainted("inference")
		Expect(open).To(BeTrue())
		Expect(name).To(Equal(node.Name))
	})
	It("should not wait for verification with gate StartupTaint", func() {
		nodeClaim, node := start(v1alpha1.Readiness{})
		node.Spec.Taints = append(node.Spec.Taints, v1alpha1.UnverifiedTaint())
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		nodeClaim, _ = register(nodeClaim, node)
		Expect(nodeClaim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()).To(BeTrue())
	})
	It("should wait until the hardware is verified with gate Registration", func() {
		nodeClaim, node := start(v1alpha1.Readiness{Gate: v1alpha1.GateRegistration})
		node.Spec.Taints = append(node.Spec.Taints, v1alpha1.UnverifiedTaint())
		node.Status.NodeInfo.BootID = boot
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		nodeClaim, node = register(nodeClaim, node)
		Expect(nodeClaim.StatusConditions().Get(karpv1.ConditionTypeRegistered).Message).To(Equal("GPUReadiness"))
		Expect(node.Spec.Taints).To(ContainElement(karpv1.UnregisteredNoExecuteTaint))
		r := h100s(boot)
		r.GPUs = r.GPUs[:1]
		r.GPUs[0].Product, r.GPUs[0].MemoryMiB = "NVIDIA A10G", 23028
		node.Annotations = map[string]string{}
		report(node, r)
		ExpectApplied(ctx, env.Client, node)
		nodeClaim, node = register(nodeClaim, node)
		Expect(nodeClaim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()).To(BeTrue())
		Expect(node.Spec.Taints).To(ContainElement(v1alpha1.UnverifiedTaint()))
	})
	It("should leave nodes without GPUs and nodes of other NodePools alone", func() {
		nodeClaim, node := start(v1alpha1.Readiness{})
		nodeClaim.Labels[corev1.LabelInstanceTypeStable] = "m5.large"
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		nodeClaim, node = register(nodeClaim, node)
		Expect(nodeClaim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()).To(BeTrue())
		Expect(readiness.Tainted(node)).To(BeFalse())
	})
})
