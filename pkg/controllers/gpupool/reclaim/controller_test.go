package reclaim_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"
)

var _ = Describe("An empty node", func() {
	It("should be tainted when its time is up, looked at again, and removed", func() {
		claims, nodes := standing(1)
		bound(nodes[0], owned("apps/v1", "DaemonSet"))
		Expect(round(0)).To(Equal(10*time.Second), "the time is longer than the refresh")
		Expect(round(29 * time.Second)).To(Equal(time.Second))
		Expect(isTainted(nodes[0])).To(BeFalse())

		Expect(round(time.Second)).To(Equal(grace))
		Expect(isTainted(nodes[0])).To(BeTrue())
		Expect(deleted(claims[0])).To(BeFalse())
		Expect(round(time.Second)).To(Equal(time.Second))
		Expect(deleted(claims[0])).To(BeFalse())

		round(time.Second)
		Expect(deleted(claims[0])).To(BeTrue())
		Expect(events("EmptyNodeReclaimed")).To(ConsistOf(
			"empty for 32s, removing the node as reclaim.emptyAfter of gpu pool batch says",
			"empty for 32s, removing the node as reclaim.emptyAfter of gpu pool batch says"))
		reason := ExpectExists(ctx, env.Client, claims[0]).StatusConditions().Get(karpv1.ConditionTypeDisruptionReason)
		Expect(reason.IsTrue()).To(BeTrue())
		Expect(reason.Reason).To(Equal("Empty"))
		Expect(ExpectStateNodeExists(cluster, nodes[0]).MarkedForDeletion()).To(BeTrue())
		Expect(queue.HasAny(nodes[0].Spec.ProviderID)).To(BeFalse())
		status, _, _ := condition()
		Expect(status).To(Equal("True"))
	})

	It("should be counted", func() {
		before := figures()
		_, nodes := standing(2)
		round(0)
		round(30 * time.Second)
		ExpectManualBinding(ctx, direct, unbound(), nodes[1])
		round(grace)
		after := figures()
		Expect(after["karpenter_gpu_reclaim_nodes_total"] - before["karpenter_gpu_reclaim_nodes_total"]).To(BeEquivalentTo(1))
		Expect(after["karpenter_gpu_reclaim_spared_total"] - before["karpenter_gpu_reclaim_spared_total"]).To(BeEquivalentTo(1))
		Expect(after["karpenter_gpu_reclaim_empty_seconds"] - before["karpenter_gpu_reclaim_empty_seconds"]).To(BeEquivalentTo(32))
		disrupted, ok := FindMetricWithLabelValues("karpenter_nodeclaims_disrupted_total", map[string]string{"reason": "empty", "nodepool": "gpu"})
		Expect(ok).To(BeTrue())
		Expect(disrupted.GetCounter().GetValue()).To(BeNumerically(">=", 1))
	})

	It("should go at once with emptyAfter 0s", func() {
		gpuPool.Spec.Reclaim.EmptyAfter = &metav1.Duration{}
		ExpectApplied(ctx, env.Client, gpuPool)
		claims, nodes := standing(3)
		round(0)
		Expect(tainted(nodes)).To(Equal(3))
		round(grace)
		Expect(gone(claims)).To(Equal(3))
	})

	It("should begin its time anew with each pod", func() {
		claims, nodes := standing(1)
		round(0)
		pod := bound(nodes[0])
		round(20 * time.Second)
		ended(pod)
		round(time.Second)
		round(29 * time.Second)
		Expect(isTainted(nodes[0])).To(BeFalse())
		round(time.Second)
		round(grace)
		Expect(deleted(claims[0])).To(BeTrue())
	})

	It("should begin its time anew with each process", func() {
		_, nodes := standing(1)
		round(0)
		env.Clock.Step(20 * time.Second)
		start(nil)
		round(10 * time.Second)
		Expect(isTainted(nodes[0])).To(BeFalse())
		round(30 * time.Second)
		Expect(isTainted(nodes[0])).To(BeTrue())
	})

	DescribeTable("should be told from one that is in use",
		func(occupies bool, change ...func(*corev1.Pod)) {
			_, nodes := standing(1)
			bound(nodes[0], change...)
			round(0)
			round(30 * time.Second)
			Expect(isTainted(nodes[0])).To(Equal(!occupies))
		},
		Entry("by a running pod", true),
		Entry("by a pending pod", true, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
		Entry("by a pod of a ReplicaSet", true, owned("apps/v1", "ReplicaSet")),
		Entry("not by one of a DaemonSet", false, owned("apps/v1", "DaemonSet")),
		Entry("not by one that the kubelet runs from a file", false, owned("v1", "Node")),
		Entry("not by one that has succeeded", false, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		Entry("not by one that has failed", false, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
	)

	It("should be in use while a pod terminates, until that is overdue by a minute", func() {
		_, nodes := standing(1)
		pod := bound(nodes[0], func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} })
		Expect(direct.Delete(ctx, pod, client.GracePeriodSeconds(30))).To(Succeed())
		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
			g.Expect(pod.DeletionTimestamp.IsZero()).To(BeFalse())
		}).Should(Succeed())
		env.Clock.SetTime(pod.DeletionTimestamp.Time)
		round(time.Minute)
		round(30 * time.Second)
		Expect(isTainted(nodes[0])).To(BeFalse())
		round(30 * time.Second)
		Expect(isTainted(nodes[0])).To(BeTrue())
		ExpectFinalizersRemoved(ctx, env.Client, pod)
	})

	It("should be left alone until it is initialized", func() {
		_, nodes := standing(1, func(_ *karpv1.NodeClaim, n *corev1.Node) { delete(n.Labels, karpv1.NodeInitializedLabelKey) })
		round(0)
		round(time.Hour)
		Expect(isTainted(nodes[0])).To(BeFalse())
	})

	It("should be left alone while it is nominated for a pending pod", func() {
		_, nodes := standing(1)
		round(0)
		env.Clock.Step(25 * time.Second)
		cluster.NominateNodeForPod(ctx, nodes[0].Spec.ProviderID)
		round(5 * time.Second)
		Expect(isTainted(nodes[0])).To(BeFalse())
		round(20 * time.Second)
		Expect(isTainted(nodes[0])).To(BeTrue())
	})

	It("should be left alone while Karpenter is at it", func() {
		claims, nodes := standing(2)
		round(0)
		cluster.MarkForDeletion(nodes[0].Spec.ProviderID)
		claims[1].StatusConditions().SetTrue(karpv1.ConditionTypeRebooting)
		ExpectApplied(ctx, env.Client, claims[1])
		round(30 * time.Second)
		Expect(tainted(nodes)).To(Equal(0))
		status, _, _ := condition()
		Expect(status).To(Equal("True"), "nobody forbids it")
	})

	It("should be left to a command of Karpenter", func() {
		_, nodes := standing(1)
		queue.ProviderIDToCommand[nodes[0].Spec.ProviderID] = &disruption.Command{}
		round(0)
		round(30 * time.Second)
		Expect(isTainted(nodes[0])).To(BeFalse())
		Expect(queue.HasAny(nodes[0].Spec.ProviderID)).To(BeTrue())
	})

	It("should stay in a static NodePool", func() {
		nodePool = coretest.StaticNodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "static"}, Spec: karpv1.NodePoolSpec{Replicas: lo.ToPtr[int64](1)}})
		ExpectApplied(ctx, env.Client, nodePool)
		resolve()
		_, nodes := standing(1)
		round(0)
		round(time.Hour)
		Expect(isTainted(nodes[0])).To(BeFalse())
	})

	It("should go whatever consolidateAfter says", func() {
		nodePool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
		ExpectApplied(ctx, env.Client, nodePool)
		claims, _ := standing(1)
		round(0)
		round(30 * time.Second)
		round(grace)
		Expect(gone(claims)).To(Equal(1))
	})

	It("should be tried again when the API server refuses the deletion", func() {
		claims, nodes := standing(1)
		failing := true
		start(refusing{env.Client, &failing})
		round(0)
		round(30 * time.Second)
		env.Clock.Step(grace)
		_, err := controller.Reconcile(ctx, requestOf())
		Expect(err).To(MatchError(ContainSubstring("the server is on fire")))
		Expect(ExpectStateNodeExists(cluster, nodes[0]).MarkedForDeletion()).To(BeFalse())
		Expect(isTainted(nodes[0])).To(BeTrue())
		failing = false
		round(time.Second)
		Expect(deleted(claims[0])).To(BeTrue())
	})
})

var _ = Describe("Between taint and second look", func() {
	var claims []*karpv1.NodeClaim
	var nodes []*corev1.Node

	// picked makes empty nodes that have the taint.
	picked := func(n int) {
		GinkgoHelper()
		claims, nodes = standing(n)
		round(0)
		round(30 * time.Second)
		Expect(tainted(nodes)).To(Equal(n))
	}
	spared := func(why string) {
		GinkgoHelper()
		Expect(deleted(claims[0])).To(BeFalse())
		Expect(isTainted(nodes[0])).To(BeFalse())
		Expect(queue.HasAny(nodes[0].Spec.ProviderID)).To(BeFalse())
		Expect(events("EmptyNodeSpared")).To(ConsistOf("was about to be removed as empty and stays: " + why))
	}

	It("should spare a node for a pod that was bound, though the cache does not know it yet", func() {
		start(podless{env.Client})
		picked(2)
		pod := unbound()
		ExpectManualBinding(ctx, direct, pod, nodes[0])
		round(grace)
		spared("pod default/" + pod.Name + " was bound to it meanwhile")
		Expect(deleted(claims[1])).To(BeTrue())
	})

	It("should have no node launched for such a pod", func() {
		picked(1)
		Expect(ExpectStateNodeExists(cluster, nodes[0]).MarkedForDeletion()).To(BeFalse())
	})

	DescribeTable("should spare a node that", func(why string, change func()) {
		picked(1)
		change()
		round(grace)
		spared(why)
	},
		Entry("gets the annotation", "the node has the annotation karpenter.sh/do-not-disrupt", func() { annotate(nodes[0]) }),
		Entry("has a NodeClaim that gets it", "the NodeClaim has the annotation karpenter.sh/do-not-disrupt", func() { annotate(claims[0]) }),
		Entry("is nominated", "it is nominated for a pending pod", func() { cluster.NominateNodeForPod(ctx, nodes[0].Spec.ProviderID) }),
		Entry("gets a capacity buffer", "it holds a capacity buffer", func() { cluster.UpdateBufferPodCounts(map[string]int{nodes[0].Spec.ProviderID: 1}) }),
		Entry("is not initialized any more", "it is not initialized any more", func() {
			stored := nodes[0].DeepCopy()
			delete(nodes[0].Labels, karpv1.NodeInitializedLabelKey)
			Expect(direct.Patch(ctx, nodes[0], client.MergeFrom(stored))).To(Succeed())
		}),
		Entry("reboots", "it is rebooting", func() {
			stored := ExpectExists(ctx, direct, claims[0])
			changed := stored.DeepCopy()
			changed.StatusConditions().SetTrue(karpv1.ConditionTypeRebooting)
			Expect(direct.Status().Patch(ctx, changed, client.MergeFrom(stored))).To(Succeed())
		}),
		Entry("its budget does not let go any more", "the NodePool's disruption budget is used up", func() {
			nodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
			ExpectApplied(ctx, env.Client, nodePool)
		}),
	)

	It("should taint a node again that has lost its taint, and give it the whole grace", func() {
		picked(1)
		ExpectApplied(ctx, env.Client, nodes[0]) // as it was read before the taint
		Expect(isTainted(nodes[0])).To(BeFalse())
		Expect(round(grace)).To(Equal(grace))
		Expect(isTainted(nodes[0])).To(BeTrue())
		Expect(deleted(claims[0])).To(BeFalse())
		round(grace)
		Expect(deleted(claims[0])).To(BeTrue())
	})

	It("should not take another node of the same name for it", func() {
		picked(1)
		ExpectFinalizersRemoved(ctx, direct, nodes[0])
		Expect(direct.Delete(ctx, nodes[0])).To(Succeed())
		nodes[0].ResourceVersion, nodes[0].UID = "", ""
		Expect(direct.Create(ctx, nodes[0])).To(Succeed())
		round(grace)
		Expect(deleted(claims[0])).To(BeFalse())
		Expect(events("EmptyNodeReclaimed")).To(BeEmpty())
		Expect(queue.HasAny(nodes[0].Spec.ProviderID)).To(BeFalse())
	})

	It("should have nothing to do for a node that is deleted by somebody else", func() {
		picked(1)
		Expect(direct.Delete(ctx, claims[0])).To(Succeed())
		round(grace)
		Expect(events("EmptyNodeReclaimed")).To(BeEmpty())
		Expect(isTainted(nodes[0])).To(BeTrue(), "Karpenter's termination wants the taint")
		Expect(queue.HasAny(nodes[0].Spec.ProviderID)).To(BeFalse())
	})

	It("should have nothing to do for a node that is gone", func() {
		picked(1)
		ExpectFinalizersRemoved(ctx, direct, nodes[0])
		Expect(direct.Delete(ctx, nodes[0])).To(Succeed())
		round(grace)
		Expect(deleted(claims[0])).To(BeFalse())
		Expect(queue.HasAny(nodes[0].Spec.ProviderID)).To(BeFalse())
	})

	It("should spare the nodes of a NodePool that leaves the pool", func() {
		picked(1)
		nodePool = coretest.NodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "another"}})
		ExpectApplied(ctx, env.Client, nodePool)
		resolve()
		round(grace)
		spared("NodePool gpu has left the pool")
	})

	It("should keep the taint through Karpenter's rounds", func() {
		picked(1)
		ExpectSingletonReconciled(ctx, karpenter)
		Expect(isTainted(nodes[0])).To(BeTrue())
	})

	It("should leave no taint behind when the process ends", func() {
		picked(1)
		start(nil)
		ExpectSingletonReconciled(ctx, karpenter)
		Expect(isTainted(nodes[0])).To(BeFalse())
		By("taking its time for the node again")
		round(0)
		round(29 * time.Second)
		Expect(isTainted(nodes[0])).To(BeFalse())
	})

	It("should spare its nodes when the pool stops to reclaim", func() {
		picked(2)
		gpuPool.Spec.Reclaim.EmptyAfter = nil
		ExpectApplied(ctx, env.Client, gpuPool)
		Expect(round(0)).To(BeZero())
		Expect(tainted(nodes)).To(Equal(0))
		Expect(events("EmptyNodeSpared")).To(ConsistOf(
			"was about to be removed as empty and stays: the pool no longer sets reclaim.emptyAfter",
			"was about to be removed as empty and stays: the pool no longer sets reclaim.emptyAfter"))
		status, _, _ := condition()
		Expect(status).To(BeEmpty())
	})

	It("should spare its nodes when the pool is not resolved any more", func() {
		picked(1)
		store.Swap(nil, map[string]string{nodePool.Name: ""})
		Expect(round(0)).To(Equal(10 * time.Second))
		Expect(isTainted(nodes[0])).To(BeFalse())
	})
})

// figures are our metrics of the pool; of the histogram, the sum.
func figures() map[string]float64 {
	out := map[string]float64{}
	for _, name := range []string{"karpenter_gpu_reclaim_nodes_total", "karpenter_gpu_reclaim_spared_total", "karpenter_gpu_reclaim_empty_seconds"} {
		if m, ok := FindMetricWithLabelValues(name, map[string]string{"gpupool": poolName}); ok {
			out[name] = m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return out
}

// refusing is a client that the API server lets delete nothing, for a time.
type refusing struct {
	client.Client
	failing *bool
}

func (r refusing) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if *r.failing {
		return errors.New("the server is on fire")
	}
	return r.Client.Delete(ctx, o, opts...)
}

// podless is a cache that has not heard of any pod.
type podless struct{ client.Client }

func (p podless) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok {
		return nil
	}
	return p.Client.List(ctx, list, opts...)
}

// unbound makes a pod that nothing has scheduled.
func unbound() *corev1.Pod {
	GinkgoHelper()
	pod := coretest.Pod()
	ExpectApplied(ctx, env.Client, pod)
	return pod
}

func annotate(o client.Object) {
	GinkgoHelper()
	stored := o.DeepCopyObject().(client.Object)
	o.SetAnnotations(map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"})
	Expect(direct.Patch(ctx, o, client.MergeFrom(stored))).To(Succeed())
}
