package trial_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
)

var _ = Describe("The deadline", func() {
	It("should replace a node whose GPUs never show, say why, and set the offering aside", func() {
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		reconciled()
		env.Clock.Step(v1alpha1.DefaultDeadline - time.Second)
		reconciled()
		Expect(deleted()).To(BeFalse())
		env.Clock.Step(time.Second)
		reconciled()
		Expect(deleted()).To(BeTrue())
		message := "not verified within 10m0s (NoReport): the GPU agent has not reported from this node; check that its pod runs there; replacing the node"
		Expect(events("GPUVerificationFailed")).To(ConsistOf(message, message, nodeClaim.Name+" "+message))
		Expect(book.Avoided("default")).To(ConsistOf(trials.Avoidance{
			Offering: trials.Offering{NodeClass: "default", InstanceType: "g5.xlarge", Zone: "a", Image: "ami-1"},
			Until:    env.Clock.Now().Add(trials.FirstBackoff), Failures: 1, Reason: "NoReport",
		}))
	})
	It("should hold for an instance that never joins", func() {
		join(v1alpha1.Readiness{Enforce: v1alpha1.EnforceAlways, Deadline: &metav1.Duration{Duration: 3 * time.Minute}})
		ExpectApplied(ctx, env.Client, nodeClaim)
		env.Clock.Step(3 * time.Minute)
		reconciled()
		Expect(deleted()).To(BeTrue())
		Expect(events("GPUVerificationFailed")[0]).To(Equal("not verified within 3m0s (NotRegistered): no Node has joined the cluster; replacing the node"))
	})
	DescribeTable("should not replace",
		func(prepare func()) {
			prepare()
			ExpectApplied(ctx, env.Client, nodeClaim, node)
			env.Clock.Step(24 * time.Hour)
			reconciled()
			Expect(deleted()).To(BeFalse())
			Expect(book.Avoided("default")).To(BeEmpty())
		},
		Entry("a verified node", func() {
			node.Annotations = map[string]string{v1alpha1.VerifiedBootAnnotationKey: boot}
			readiness.Open(node)
		}),
		Entry("a verified node that is fenced for a fault, which repair replaces", func() {
			node.Annotations = map[string]string{v1alpha1.VerifiedBootAnnotationKey: boot}
			readiness.Open(node)
			readiness.Close(node, env.Clock.Now())
		}),
		Entry("a node that worked before its pool gated", func() { node.Labels[karpv1.NodeInitializedLabelKey] = "true" }),
		Entry("a node without GPUs", func() { nodeClaim.Labels[corev1.LabelInstanceTypeStable] = "m5.large"; nodeClaim.Status.Capacity = nil }),
		Entry("a node that is not launched", func() { nodeClaim.Status.Conditions = nil }),
		Entry("a node of a pool without gate", func() { join(v1alpha1.Readiness{Gate: v1alpha1.GateNone}) }),
		Entry("a node of a pool whose gate would deadlock", func() { join(v1alpha1.Readiness{}) }),
		Entry("a node of no pool", func() { store.Swap(nil, map[string]string{nodePool.Name: ""}) }),
	)
	It("should count anew after a reboot, and not set the offering aside for it", func() {
		node.Annotations = map[string]string{v1alpha1.VerifiedBootAnnotationKey: boot}
		node.Status.NodeInfo.BootID = reboot
		readiness.Open(node)
		env.Clock.Step(24 * time.Hour)
		readiness.Close(node, env.Clock.Now())
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		env.Clock.Step(9 * time.Minute)
		reconciled()
		Expect(deleted()).To(BeFalse())
		env.Clock.Step(time.Minute)
		reconciled()
		Expect(deleted()).To(BeTrue())
		Expect(book.Avoided("default")).To(BeEmpty())
	})
	It("should leave a node that a person wants to look at", func() {
		node.Annotations = map[string]string{karpv1.DoNotRepairAnnotationKey: "true"}
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		env.Clock.Step(time.Hour)
		reconciled()
		Expect(deleted()).To(BeFalse())
		Expect(events("GPUVerificationFailedNodeKept")[0]).To(ContainSubstring("kept because of karpenter.sh/do-not-repair, remove the annotation to have it replaced"))
	})
	It("should survive a restart of the controller", func() {
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		env.Clock.Step(v1alpha1.DefaultDeadline / 2)
		reconciled()
		controller = newController()
		env.Clock.Step(v1alpha1.DefaultDeadline / 2)
		reconciled()
		Expect(deleted()).To(BeTrue())
	})
	It("should make a storm of nodes that fail alike", func() {
		for range trials.StormFailures {
			nodeClaim, node = launched()
			demand.pods.Insert(nodeClaim.Status.ProviderID)
			ExpectApplied(ctx, env.Client, nodeClaim, node)
			env.Clock.Step(v1alpha1.DefaultDeadline)
			reconciled()
		}
		storm, ok := book.Storm("inference")
		Expect(ok).To(BeTrue())
		Expect(storm.Reason).To(Equal("NoReport"))
	})
})

var _ = Describe("A node in trial that nobody wants", func() {
	// passed lets time go by as a running controller does.
	passed := func(d time.Duration) {
		for ; d > 0; d -= 10 * time.Second {
			reconciled()
			env.Clock.Step(10 * time.Second)
		}
		reconciled()
	}
	BeforeEach(func() {
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		demand.pods.Clear()
	})
	It("should be removed after the time that its NodePool grants empty nodes", func() {
		passed(110 * time.Second)
		Expect(deleted()).To(BeFalse())
		passed(10 * time.Second)
		Expect(deleted()).To(BeTrue())
		Expect(events("UnverifiedNodeUnwanted")).To(ConsistOf("no pod wants the node any more and it is not verified yet; removing it"))
		Expect(book.Avoided("default")).To(BeEmpty())
	})
	It("should stay while pods wait that the scheduler has not decided on since, and go once it has", func() {
		waiting := coretest.UnschedulablePod()
		ExpectApplied(ctx, env.Client, waiting)
		passed(5 * time.Minute)
		Expect(deleted()).To(BeFalse())
		*decisions++ // it may have begun before
		passed(10 * time.Second)
		Expect(deleted()).To(BeFalse())
		*decisions++
		passed(10 * time.Second)
		Expect(deleted()).To(BeTrue())
	})
	It("should go without a decision once no pod waits", func() {
		waiting := coretest.UnschedulablePod()
		ExpectApplied(ctx, env.Client, waiting)
		passed(3 * time.Minute)
		Expect(deleted()).To(BeFalse())
		ExpectDeleted(ctx, env.Client, waiting)
		passed(10 * time.Second)
		Expect(deleted()).To(BeTrue())
	})
	It("should stay when pods come back in time", func() {
		passed(100 * time.Second)
		demand.pods.Insert(nodeClaim.Status.ProviderID)
		passed(20 * time.Second)
		demand.pods.Clear()
		passed(110 * time.Second)
		Expect(deleted()).To(BeFalse())
	})
	DescribeTable("should stay",
		func(prepare func()) {
			prepare()
			passed(5 * time.Minute)
			Expect(deleted()).To(BeFalse())
		},
		Entry("while a buffer counts on it", func() { demand.buffers.Insert(nodeClaim.Status.ProviderID) }),
		Entry("while it may not be disrupted", func() {
			nodeClaim = ExpectExists(ctx, env.Client, nodeClaim)
			nodeClaim.Annotations = lo.Assign(nodeClaim.Annotations, map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"})
			ExpectApplied(ctx, env.Client, nodeClaim)
		}),
		Entry("when its NodePool never removes empty nodes", func() {
			nodePool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
			ExpectApplied(ctx, env.Client, nodePool)
		}),
		Entry("while a pod other than a DaemonSet's runs on it", func() {
			ExpectApplied(ctx, env.Client, coretest.Pod(coretest.PodOptions{NodeName: node.Name}))
		}),
	)
	It("should not be kept by pods of DaemonSets and pods that are done", func() {
		ds := coretest.DaemonSet()
		ExpectApplied(ctx, env.Client, ds)
		ExpectApplied(ctx, env.Client,
			coretest.Pod(coretest.PodOptions{NodeName: node.Name, ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "DaemonSet", Name: ds.Name, UID: ds.UID, Controller: lo.ToPtr(true), BlockOwnerDeletion: lo.ToPtr(true)}}}}),
			coretest.Pod(coretest.PodOptions{NodeName: node.Name, Phase: corev1.PodSucceeded}))
		passed(2 * time.Minute)
		Expect(deleted()).To(BeTrue())
	})
	It("should stay when it was verified and has rebooted", func() {
		node.Annotations = map[string]string{v1alpha1.VerifiedBootAnnotationKey: reboot}
		readiness.Open(node)
		readiness.Close(node, env.Clock.Now())
		ExpectApplied(ctx, env.Client, node)
		passed(5 * time.Minute)
		Expect(deleted()).To(BeFalse())
	})
	It("should be given back even where it holds all of its resources already", func() {
		node.Status.Allocatable = corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("1")}
		ExpectApplied(ctx, env.Client, node)
		passed(2 * time.Minute)
		Expect(deleted()).To(BeTrue())
	})
})
