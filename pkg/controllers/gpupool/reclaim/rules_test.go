package reclaim_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/reclaim"
)

func requestOf() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: poolName}}
}

var _ = Describe("Who forbids disruption", func() {
	daemon := func(node *corev1.Node, annotations map[string]string) *corev1.Pod {
		return bound(node, owned("apps/v1", "DaemonSet"), func(p *corev1.Pod) {
			p.Labels, p.Annotations = map[string]string{"app": "agent"}, annotations
		})
	}
	forbid := map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}

	DescribeTable("should keep the node, and be named in the pool's condition",
		func(why string, change func(*karpv1.NodeClaim, *corev1.Node) string) {
			_, nodes := standing(1)
			claim := ExpectNodeClaims(ctx, env.Client)[0]
			detail := change(claim, nodes[0])
			round(0)
			round(30 * time.Second)
			Expect(isTainted(nodes[0])).To(BeFalse())
			status, reason, message := condition()
			Expect(status + " " + reason).To(Equal("False DoNotDisrupt"))
			Expect(message).To(Equal("NodePool gpu: 1 node kept though empty for 30s, such as " + nodes[0].Name + ": " + why + detail))
			Expect(events("ReclaimBlocked")).To(ConsistOf(message))

			By("telling so once")
			round(time.Second)
			Expect(events("ReclaimBlocked")).To(HaveLen(1))
		},
		Entry("an annotation of the node", "the node has the annotation karpenter.sh/do-not-disrupt", func(_ *karpv1.NodeClaim, n *corev1.Node) string {
			n.Annotations = forbid
			ExpectApplied(ctx, env.Client, n)
			return ""
		}),
		Entry("an annotation of the NodeClaim", "the NodeClaim has the annotation karpenter.sh/do-not-disrupt", func(c *karpv1.NodeClaim, _ *corev1.Node) string {
			c.Annotations = forbid
			ExpectApplied(ctx, env.Client, c)
			return ""
		}),
		Entry("an annotation of a DaemonSet's pod", "pod ", func(_ *karpv1.NodeClaim, n *corev1.Node) string {
			return "default/" + daemon(n, forbid).Name + " has the annotation karpenter.sh/do-not-disrupt"
		}),
		Entry("a PodDisruptionBudget", "PodDisruptionBudget default/agents lets no pod go", func(_ *karpv1.NodeClaim, n *corev1.Node) string {
			daemon(n, nil)
			ExpectApplied(ctx, env.Client, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "agents", Namespace: "default"}, Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: lo.ToPtr(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}}})
			return ""
		}),
	)

	It("should keep no node for longer than it says", func() {
		_, nodes := standing(1)
		daemon(nodes[0], map[string]string{karpv1.DoNotDisruptAnnotationKey: "10m"})
		pod := daemon(nodes[0], map[string]string{karpv1.DoNotDisruptAnnotationKey: "10m"})
		pod.Status.StartTime = &metav1.Time{Time: env.Clock.Now()}
		ExpectApplied(ctx, env.Client, pod)
		round(0)
		round(9 * time.Minute)
		Expect(isTainted(nodes[0])).To(BeFalse())
	})
})

var _ = Describe("Budgets", func() {
	budget := func(b ...karpv1.Budget) {
		GinkgoHelper()
		nodePool.Spec.Disruption.Budgets = b
		ExpectApplied(ctx, env.Client, nodePool)
	}

	It("should bound how many nodes go at a time, counting those that are on their way", func() {
		budget(karpv1.Budget{Nodes: "20%"})
		claims, nodes := standing(10)
		round(0)
		Expect(round(30 * time.Second)).To(Equal(grace))
		Expect(tainted(nodes)).To(Equal(2))
		status, reason, message := condition()
		Expect(status + " " + reason).To(Equal("False BudgetBlocks"))
		Expect(message).To(MatchRegexp(`^NodePool gpu: 8 nodes waiting for its disruption budgets, such as \S+; ` +
			`to let empty nodes go at once give it a budget of "100%" for the reason Empty, and reasons to those budgets that have none$`))
		round(grace)
		Expect(gone(claims)).To(Equal(2))
		round(time.Second)
		Expect(tainted(nodes)).To(Equal(2), "two are on their way")

		By("going on when they have gone")
		for _, c := range claims {
			if deleted(c) {
				ExpectFinalizersRemoved(ctx, env.Client, c)
				ExpectNotFound(ctx, env.Client, c)
				cluster.DeleteNodeClaim(c.Name)
			}
		}
		round(time.Second)
		Expect(tainted(nodes)).To(Equal(4))
	})

	It("should count what Karpenter itself disrupts", func() {
		budget(karpv1.Budget{Nodes: "2"})
		_, nodes := standing(4)
		bound(nodes[0])
		round(0)
		cluster.MarkForDeletion(nodes[0].Spec.ProviderID)
		round(30 * time.Second)
		Expect(tainted(nodes)).To(Equal(1))
	})

	It("should look at those for the reason Empty", func() {
		budget(karpv1.Budget{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted, karpv1.DisruptionReasonUnderutilized}})
		_, nodes := standing(2)
		round(0)
		round(30 * time.Second)
		Expect(tainted(nodes)).To(Equal(2))
	})

	It("should block all with none for the reason Empty", func() {
		budget(karpv1.Budget{Nodes: "100%"}, karpv1.Budget{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonEmpty}})
		_, nodes := standing(2)
		round(0)
		round(30 * time.Second)
		Expect(tainted(nodes)).To(Equal(0))
	})

	It("should hold only in their time", func() {
		budget(karpv1.Budget{Nodes: "0", Schedule: lo.ToPtr("0 12 * * *"), Duration: &metav1.Duration{Duration: time.Hour}})
		_, nodes := standing(1)
		round(0)
		round(59 * time.Minute)
		Expect(tainted(nodes)).To(Equal(0))
		round(time.Minute + time.Second)
		Expect(tainted(nodes)).To(Equal(1))
	})
})

var _ = Describe("Warm capacity", func() {
	var buffer *autoscalingv1beta1.CapacityBuffer

	BeforeEach(func() {
		buffer = &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Name: "warm", Namespace: "default"},
			Spec: autoscalingv1beta1.CapacityBufferSpec{PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: "warm"}, Replicas: lo.ToPtr[int32](1)}}
		ExpectApplied(ctx, env.Client, buffer)
		start(nil, func(d *reclaim.Dependencies) { d.Buffers = buffers })
	})
	AfterEach(func() {
		Expect(client.IgnoreNotFound(direct.Delete(ctx, buffer))).To(Succeed())
	})

	It("should keep a node that holds a buffer, and no other", func() {
		_, nodes := standing(2)
		cluster.UpdateBufferPodCounts(map[string]int{nodes[0].Spec.ProviderID: 1})
		round(0)
		buffers.counted = env.Clock.Now().Add(time.Second)
		round(time.Hour)
		Expect(isTainted(nodes[0])).To(BeFalse())
		Expect(isTainted(nodes[1])).To(BeTrue())
		status, _, _ := condition()
		Expect(status).To(Equal("True"), "a warm node is meant to stay")

		By("letting it go with the buffer's space")
		cluster.UpdateBufferPodCounts(nil)
		round(time.Second)
		Expect(isTainted(nodes[0])).To(BeTrue())
	})

	It("should have been counted since the node was there, and ask for that", func() {
		_, nodes := standing(1)
		buffers.counted = env.Clock.Now()
		Expect(round(0)).To(Equal(time.Second))
		Expect(buffers.triggers).To(Equal(1))
		round(time.Hour)
		Expect(isTainted(nodes[0])).To(BeFalse())
		buffers.counted = env.Clock.Now()
		round(time.Second)
		Expect(isTainted(nodes[0])).To(BeTrue())
	})

	It("should need no count where nobody has a buffer", func() {
		ExpectDeleted(ctx, env.Client, buffer)
		_, nodes := standing(1)
		round(0)
		round(30 * time.Second)
		Expect(isTainted(nodes[0])).To(BeTrue())
		Expect(buffers.triggers).To(BeZero())
	})
})
