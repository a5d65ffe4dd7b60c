package gate_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/gate"
)

var _ = Describe("GateSafe", func() {
	It("should be True when all tolerate the taint, and say when there is no gate", func() {
		condition := reconciled().StatusConditions().Get(v1alpha1.ConditionTypeGateSafe)
		Expect(condition.IsTrue()).To(BeTrue())
		gpuPool.Spec.Readiness.Gate = v1alpha1.GateNone
		condition = reconciled().StatusConditions().Get(v1alpha1.ConditionTypeGateSafe)
		Expect(condition.IsTrue()).To(BeTrue())
		Expect(condition.Reason).To(Equal(v1alpha1.ReasonGateDisabled))
	})
	It("should name the DaemonSet that deadlocks and the command, in an event too, and recover", func() {
		ds := installed("plugin", "nvidia-device-plugin-daemonset", corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists})
		condition := reconciled().StatusConditions().Get(v1alpha1.ConditionTypeGateSafe)
		Expect(condition.IsFalse()).To(BeTrue())
		Expect(condition.Reason).To(Equal(v1alpha1.ReasonTaintNotTolerated))
		Expect(condition.Message).To(Equal(`DaemonSet default/plugin (device plugin) does not tolerate readiness.karpenter-gpu.dev/unverified:NoSchedule; run: ` +
			`kubectl -n default patch daemonset plugin --type=json -p '[{"op":"add","path":"/spec/template/spec/tolerations/-","value":{"key":"readiness.karpenter-gpu.dev/unverified","operator":"Exists","effect":"NoSchedule"}}]'` +
			`. Until then nodes of the pool are not gated`))
		Expect(recorder.Calls(gate.ReasonUnsafe)).To(Equal(1))
		reconciled()
		Expect(recorder.Calls(gate.ReasonUnsafe)).To(Equal(1))
		ds.Spec.Template.Spec.Tolerations = append(ds.Spec.Template.Spec.Tolerations, corev1.Toleration{Key: v1alpha1.UnverifiedTaintKey, Operator: corev1.TolerationOpExists})
		ExpectApplied(ctx, env.Client, ds)
		Expect(reconciled().StatusConditions().Get(v1alpha1.ConditionTypeGateSafe).IsTrue()).To(BeTrue())
	})
	It("should say what an enforced gate does meanwhile", func() {
		installed("plugin", "nvidia-device-plugin-daemonset")
		gpuPool.Spec.Readiness.Enforce = v1alpha1.EnforceAlways
		Expect(reconciled().StatusConditions().Get(v1alpha1.ConditionTypeGateSafe).Message).To(HaveSuffix(
			"Until then no node of the pool becomes ready, because readiness.enforce is Always"))
	})
	It("should ask for the startup taint where nodes start without any", func() {
		ExpectApplied(ctx, env.Client, gpuPool)
		open[gpuPool.Name] = "ip-10-0-0-1"
		condition := reconciled().StatusConditions().Get(v1alpha1.ConditionTypeGateSafe)
		Expect(condition.Reason).To(Equal(v1alpha1.ReasonStartupTaintMissing))
		Expect(condition.Message).To(ContainSubstring("node ip-10-0-0-1 registered without any taint of Karpenter"))
		Expect(condition.Message).To(ContainSubstring(`add {"key":"readiness.karpenter-gpu.dev/unverified","effect":"NoSchedule"} to spec.template.spec.startupTaints of NodePool gpu`))
	})
	It("should not be touched while the pool is not resolved", func() {
		ExpectApplied(ctx, env.Client, gpuPool)
		ExpectObjectReconciled(ctx, env.Client, controller, gpuPool)
		Expect(ExpectExists(ctx, env.Client, gpuPool).Status.Conditions).To(BeEmpty())
	})
})

var _ = Describe("VerificationHealthy", func() {
	fail := func() {
		for i := range trials.StormFailures {
			book.Failed(trials.Trial{UID: types.UID(rune('a' + i)), Pool: gpuPool.Name, Launched: env.Clock.Now()}, "DriverLibraryMismatch", "550 and 535")
		}
	}
	It("should tell of a storm, what follows and where to look, and end with it", func() {
		Expect(reconciled().StatusConditions().Get(v1alpha1.ConditionTypeVerificationHealthy).IsTrue()).To(BeTrue())
		fail()
		condition := reconciled().StatusConditions().Get(v1alpha1.ConditionTypeVerificationHealthy)
		Expect(condition.Reason).To(Equal(v1alpha1.ReasonVerificationFailing))
		Expect(condition.Message).To(Equal("DriverLibraryMismatch: 550 and 535; all new nodes fail so, and at most 3 are in trial until one is verified. Look at the image and the NodeClass of NodePool gpu"))
		book.Verified(trials.Trial{UID: "good", Pool: gpuPool.Name, Launched: env.Clock.Now()})
		Expect(reconciled().StatusConditions().Get(v1alpha1.ConditionTypeVerificationHealthy).IsTrue()).To(BeTrue())
	})
	It("should be memory over a restart, of which nodes from before the storm are no end", func() {
		ExpectApplied(ctx, env.Client, gpuPool)
		old := trials.Trial{UID: "old", Pool: gpuPool.Name, Launched: env.Clock.Now()}
		env.Clock.Step(time.Hour)
		fail()
		before := reconciled().StatusConditions().Get(v1alpha1.ConditionTypeVerificationHealthy).Message
		book = trials.NewBook(env.Clock)
		controller = gate.NewController(env.Clock, env.Client, recorder, store, book, open)
		Expect(reconciled().StatusConditions().Get(v1alpha1.ConditionTypeVerificationHealthy).Message).To(Equal(before))
		storm, ok := book.Storm(gpuPool.Name)
		Expect(ok).To(BeTrue())
		Expect(storm.Reason).To(Equal("DriverLibraryMismatch"))
		book.Verified(old)
		Expect(reconciled().StatusConditions().Get(v1alpha1.ConditionTypeVerificationHealthy).Message).To(Equal(before))
		env.Clock.Step(time.Minute)
		book.Verified(trials.Trial{UID: "good", Pool: gpuPool.Name, Launched: env.Clock.Now()})
		Expect(reconciled().StatusConditions().Get(v1alpha1.ConditionTypeVerificationHealthy).IsTrue()).To(BeTrue())
	})
})

var _ = Describe("Avoided offerings", func() {
	offering := trials.Offering{NodeClass: "default", InstanceType: "g5.xlarge", Zone: "a", Image: "ami-1"}
	tried := func(uid types.UID) {
		launched := env.Clock.Now()
		env.Clock.Step(10 * time.Minute)
		book.Failed(trials.Trial{UID: uid, Pool: gpuPool.Name, Launched: launched, Offering: offering}, "NoGPUs", "the driver shows no GPU")
	}
	It("should be told in the status while they matter", func() {
		Expect(reconciled().Status.Avoided).To(BeEmpty())
		tried("a")
		Expect(reconciled().Status.Avoided).To(Equal([]v1alpha1.AvoidedOffering{{
			NodeClass: "default", InstanceType: "g5.xlarge", Zone: "a", Image: "ami-1", Failures: 1, Reason: "NoGPUs",
			LastLaunch: metav1.NewTime(env.Clock.Now().Add(-10 * time.Minute).Local()), Until: metav1.NewTime(env.Clock.Now().Add(time.Minute).Local()),
		}}))
		version := gpuPool.ResourceVersion
		ExpectObjectReconciled(ctx, env.Client, controller, gpuPool)
		Expect(ExpectExists(ctx, env.Client, gpuPool).ResourceVersion).To(Equal(version))
		env.Clock.Step(2 * time.Hour)
		Expect(reconciled().Status.Avoided).To(BeEmpty())
	})
	It("should be set aside by the next process before it has reconciled, and for longer with the next failure", func() {
		ExpectApplied(ctx, env.Client, nodePool)
		tried("a")
		env.Clock.Step(trials.FirstBackoff)
		tried("b")
		reconciled()

		book = trials.NewBook(env.Clock)
		controller = gate.NewController(env.Clock, env.Client, recorder, store, book, open)
		Expect(available()).To(ConsistOf("g5.xlarge b", "g5.12xlarge a", "g5.12xlarge b"))
		env.Clock.Step(2 * trials.FirstBackoff)
		Expect(available()).To(HaveLen(4))
		tried("c")
		Expect(reconciled().Status.Avoided).To(HaveLen(1))
		Expect(gpuPool.Status.Avoided[0].Failures).To(BeEquivalentTo(3))
		Expect(gpuPool.Status.Avoided[0].Until.Sub(env.Clock.Now())).To(Equal(4 * trials.FirstBackoff))
	})
})

var _ = Describe("GPUsHealthy", func() {
	It("should count nodes that are fenced and that work with faulty partitions", func() {
		ExpectApplied(ctx, env.Client, nodePool)
		nodeOf(nodePool, func(*corev1.Node) {})
		Expect(reconciled().StatusConditions().Get(v1alpha1.ConditionTypeGPUsHealthy).IsTrue()).To(BeTrue())
		nodeOf(nodePool, func(n *corev1.Node) { n.Name = "b"; fenced(n) })
		nodeOf(nodePool, func(n *corev1.Node) { n.Name = "a"; fenced(n) })
		nodeOf(nodePool, func(n *corev1.Node) {
			n.Name = "p"
			n.Annotations[v1alpha1.RepairHeldAnnotationKey] = "PartitionsFaulty"
		})
		condition := reconciled().StatusConditions().Get(v1alpha1.ConditionTypeGPUsHealthy)
		Expect(condition.Reason).To(Equal(v1alpha1.ReasonNodesFenced))
		Expect(condition.Message).To(Equal("2 nodes are fenced because of GPU faults, such as a; 1 node is working with faulty partitions, such as p. " +
			"Karpenter's node repair reboots or replaces fenced nodes where its feature gate NodeRepair is on; kubectl describe node says what is wrong"))
	})
	It("should not count nodes in trial nor those that have rebooted", func() {
		ExpectApplied(ctx, env.Client, nodePool)
		nodeOf(nodePool, func(n *corev1.Node) { fenced(n); n.Annotations = nil })
		nodeOf(nodePool, func(n *corev1.Node) { fenced(n); n.Status.NodeInfo.BootID = "another" })
		Expect(reconciled().StatusConditions().Get(v1alpha1.ConditionTypeGPUsHealthy).IsTrue()).To(BeTrue())
	})
})
