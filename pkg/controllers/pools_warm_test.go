package controllers_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	"sigs.k8s.io/karpenter/pkg/controllers/capacitybuffer"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	stock "sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/warm"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// What the controller renders goes through Karpenter's buffers and scheduler, as in the process.
var _ = Describe("Warm capacity", func() {
	on := func() *coretest.OptionsFields {
		return &coretest.OptionsFields{FeatureGates: coretest.FeatureGates{CapacityBuffer: lo.ToPtr(true)}}
	}

	// decided renders the entries of the pool, lets Karpenter read them, and decides a round.
	decided := func(p *v1alpha1.GPUPool, buffers ...string) (scheduler.Results, *provisioning.Spaces) {
		GinkgoHelper()
		gated := options.ToContext(ctx, coretest.Options(*on()))
		ledger, spaces := provisioning.NewLedger(env.Client, env.Clock, provisioning.GPUs{}), provisioning.NewSpaces()
		guarded := provisioning.Guard(outer, provisioning.GuardOptions{Client: env.Client, Clock: env.Clock, Ledger: ledger})
		cluster, virtual := state.NewCluster(env.Clock, env.Client, guarded), virtualpods.NewVirtualPodCache(env.Client)
		ours := provisioning.NewProvisioner(stock.NewProvisioner(env.Client, recorder, guarded, cluster, env.Clock, deviceallocation.NewController(env.Client), virtual),
			&provisioning.RightSizer{Client: env.Client, Cluster: cluster, Clock: env.Clock, Ledger: ledger, Spaces: spaces}, recorder, nil)
		keeper := warm.NewController(warm.Options{Clock: env.Clock, Client: direct, CloudProvider: guarded, Recorder: recorder, Pools: store, Spaces: spaces, Namespace: namespace})
		_, err := keeper.Reconcile(gated, ExpectExists(ctx, env.Client, p))
		Expect(err).NotTo(HaveOccurred())
		reader := capacitybuffer.NewController(env.Client, ours, virtual)
		for _, name := range buffers {
			key := client.ObjectKey{Namespace: namespace, Name: name}
			Eventually(func(g Gomega) {
				_, err := reader.Reconcile(gated, reconcile.Request{NamespacedName: key})
				g.Expect(err).NotTo(HaveOccurred())
				buffer := &autoscalingv1beta1.CapacityBuffer{}
				g.Expect(env.Client.Get(ctx, key, buffer)).To(Succeed())
				g.Expect(buffer.Status.Replicas).NotTo(BeNil())
			}).Should(Succeed())
		}
		results, err := ours.Provision(gated)
		Expect(err).NotTo(HaveOccurred())
		return results, spaces
	}

	AfterEach(func() {
		Expect(direct.DeleteAllOf(ctx, &autoscalingv1beta1.CapacityBuffer{}, client.InNamespace(namespace))).To(Succeed())
		Expect(direct.DeleteAllOf(ctx, &corev1.PodTemplate{}, client.InNamespace(namespace))).To(Succeed())
		Eventually(func(g Gomega) {
			var list autoscalingv1beta1.CapacityBufferList
			g.Expect(env.Client.List(ctx, &list)).To(Succeed())
			g.Expect(list.Items).To(BeEmpty())
		}).Should(Succeed())
	})

	It("should get nodes of its pool, past their taints", func() {
		p := gpuPool(nil)
		p.Spec.Warm = []v1alpha1.WarmCapacity{{Name: "day", GPUs: lo.ToPtr[int32](2)}}
		member, outside := nodePool("member", "g5.xlarge"), nodePool("outside", "g5.xlarge")
		member.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}
		outside.Labels = nil
		ExpectApplied(ctx, env.Client, p, member, outside)
		resolve()
		results, spaces := decided(p, poolName+".day")
		Expect(results.PodErrors).To(BeEmpty())
		Expect(results.NewNodeClaims).To(HaveLen(2))
		for _, c := range results.NewNodeClaims {
			Expect(c.NodePoolName).To(Equal("member"))
		}
		space, _ := spaces.Of(client.ObjectKey{Namespace: namespace, Name: poolName + ".day"})
		Expect(space).To(Equal(provisioning.Space{Launching: 2}))
	})

	It("should get partitions of several profiles on as few GPUs as hold them", func() {
		p := gpuPool(profiles("1g.10gb", "3g.40gb"))
		p.Spec.Warm = []v1alpha1.WarmCapacity{{Name: "day", Partitions: []v1alpha1.PartitionCount{{Profile: "1g.10gb", Count: 7}, {Profile: "3g.40gb", Count: 2}}}}
		ExpectApplied(ctx, env.Client, p, nodePool("member", "p5.4xlarge"))
		resolve()
		results, _ := decided(p, poolName+".day.1g-10gb", poolName+".day.3g-40gb")
		Expect(results.PodErrors).To(BeEmpty())
		Expect(results.NewNodeClaims).To(HaveLen(2))
		Expect(lo.SumBy(results.NewNodeClaims, func(c *scheduler.NodeClaim) int { return len(c.Pods) })).To(Equal(9))
	})

	It("should say what no node of the pool has", func() {
		p := gpuPool(nil)
		p.Spec.Warm = []v1alpha1.WarmCapacity{{Name: "day", GPUs: lo.ToPtr[int32](1)}}
		ExpectApplied(ctx, env.Client, p, nodePool("member", "c6i.large"))
		resolve()
		results, spaces := decided(p, poolName+".day")
		Expect(results.NewNodeClaims).To(BeEmpty())
		space, _ := spaces.Of(client.ObjectKey{Namespace: namespace, Name: poolName + ".day"})
		Expect(space.Waiting).To(Equal(1))
		Expect(space.Why).To(MatchError(ContainSubstring("nvidia.com/gpu")))
	})
})
