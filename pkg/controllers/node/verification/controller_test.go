package verification_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

var _ = Describe("A node in trial", func() {
	It("should be verified once report and resources are what was bought, and not before", func() {
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		Expect(events("GPUNotVerified")).To(ConsistOf(
			"takes no work yet (NoReport): the GPU agent has not reported from this node; check that its pod runs there; without verification it is replaced at " +
				lo.Must(deadline()).UTC().Format(time.RFC3339)))
		reported(a10gs(boot))
		plugged("2")
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		Expect(events("GPUNotVerified")[1]).To(ContainSubstring("takes no work yet (ResourcesMissing): the device plugin has not registered all devices, nvidia.com/gpu: 2 of 4"))
		plugged("4")
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
		Expect(node.Annotations).To(HaveKeyWithValue(v1alpha1.VerifiedBootAnnotationKey, boot))
		Expect(events("GPUVerified")).To(ConsistOf("GPUs verified, the node takes work: the GPUs are what was bought"))
	})
	It("should lose no other taint and no cordon", func() {
		node.Spec.Unschedulable = true
		verified()
		Expect(node.Spec.Unschedulable).To(BeTrue())
		Expect(lo.Map(node.Spec.Taints, func(t corev1.Taint, _ int) string { return t.Key })).To(ContainElement("team"))
	})
	It("should keep the taint until it is registered, because Karpenter would bring it back", func() {
		delete(node.Labels, karpv1.NodeRegisteredLabelKey)
		reported(a10gs(boot))
		plugged("4")
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		Expect(node.Annotations).ToNot(HaveKey(v1alpha1.VerifiedBootAnnotationKey))
		node.Labels[karpv1.NodeRegisteredLabelKey] = "true"
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
	})
	It("should get the taint back when somebody else removes it", func() {
		node.Spec.Taints = nil
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
	})
	It("should stay fenced while NVML is broken although the plugin has registered", func() {
		plugged("4")
		reported(faulty(health.Report{Version: 1, BootID: boot}, health.ReportFinding{Check: health.CheckDriver, Reason: health.DriverLibraryMismatch, Message: "550 and 535"}))
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		Expect(events("GPUFenced")).To(BeEmpty())
		Expect(events("GPUNotVerified")[0]).To(ContainSubstring("(DriverLibraryMismatch): 550 and 535"))
	})
	It("should take part in noticing a storm", func() {
		for range 3 {
			nodeClaim, node = launched()
			reported(faulty(health.Report{Version: 1, BootID: boot}, health.ReportFinding{Check: health.CheckDriver, Reason: health.DriverLibraryMismatch, Message: "550 and 535"}))
			reconciled()
		}
		storm, ok := book.Storm("inference")
		Expect(ok).To(BeTrue())
		Expect(storm.Reason).To(Equal("DriverLibraryMismatch"))
	})
	It("should be let go when it has no GPU", func() {
		nodeClaim.Labels[corev1.LabelInstanceTypeStable] = "m5.large"
		nodeClaim.Status.Capacity = nil
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
		Expect(node.Annotations).ToNot(HaveKey(v1alpha1.VerifiedBootAnnotationKey))
	})
	It("should be let go when its pool does not gate any more", func() {
		reconciled()
		join(v1alpha1.GPUPoolSpec{Readiness: v1alpha1.Readiness{Gate: v1alpha1.GateNone}})
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
		Expect(events("GPUNotGated")).To(ConsistOf("takes work unverified (NoReport): gpu pool inference does not gate now, see its condition GateSafe"))
	})
	It("should be let go when its gate would deadlock, and not where the pool enforces it", func() {
		join(v1alpha1.GPUPoolSpec{}) // no agent anywhere
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
	})
	It("should be let go when its pool has gone, and not before the NodePool was looked at", func() {
		store.Swap(nil, nil)
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		store.Swap(nil, map[string]string{nodePool.Name: "inference"})
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
	})
	It("should be told what its pool wants of the agent", func() {
		join(v1alpha1.GPUPoolSpec{
			Readiness: v1alpha1.Readiness{Enforce: v1alpha1.EnforceAlways, Checks: []v1alpha1.Check{
				{Name: v1alpha1.CheckFabric, Enabled: lo.ToPtr(false)},
				{Name: v1alpha1.CheckECC, Severity: v1alpha1.SeverityFatal, Timeout: &metav1.Duration{Duration: 30 * time.Second}},
				{Name: v1alpha1.CheckPCIe, Enabled: lo.ToPtr(true)},
			}},
			Health: v1alpha1.Health{XIDPolicies: []v1alpha1.XIDPolicy{{Codes: []int32{31, 13}, Action: v1alpha1.XIDActionReboot}}},
		})
		reconciled()
		policy, err := health.ParsePolicy([]byte(node.Annotations[v1alpha1.PolicyAnnotationKey]))
		Expect(err).ToNot(HaveOccurred())
		Expect(policy.Checks).To(Equal(map[health.Check]health.CheckPolicy{
			health.CheckFabric: {Disabled: true},
			health.CheckECC:    {Severity: health.Fatal, Timeout: 30 * time.Second},
			health.CheckPCIe:   {},
		}))
		class, _ := policy.XIDClassOf(31)
		Expect(class).To(Equal(health.XIDReboot))
		join(v1alpha1.GPUPoolSpec{Readiness: v1alpha1.Readiness{Enforce: v1alpha1.EnforceAlways}})
		reconciled()
		Expect(node.Annotations).ToNot(HaveKey(v1alpha1.PolicyAnnotationKey))
	})
})

// deadline is that of the node in its present state.
func deadline() (time.Time, error) {
	end, _ := readiness.DeadlineOf(readiness.Subject{Node: node, Claim: ExpectExists(ctx, env.Client, nodeClaim), Pool: pool})
	return end, nil
}

var _ = Describe("A node at work", func() {
	lost := health.ReportFinding{Check: health.CheckGPULost, Reason: health.GPULost, Action: health.ActionReplace, GPU: lo.ToPtr(2), Message: "lost, the GPU does not answer"}

	It("should be fenced by a fault, dated, and stay so over a restart of the controller", func() {
		verified()
		env.Clock.Step(time.Hour)
		reported(faulty(a10gs(boot), lost))
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		since, ok := readiness.TaintedSince(node)
		Expect(ok).To(BeTrue())
		Expect(since.UTC()).To(Equal(env.Clock.Now().UTC()))
		Expect(events("GPUFenced")).To(ConsistOf("no new pods, GPU fault; node repair takes over where it is on (GPULost): lost, the GPU does not answer"))
		Expect(readiness.StateOf(node)).To(Equal(readiness.StateFaulty))
		env.Clock.Step(time.Hour)
		reconciled()
		again, _ := readiness.TaintedSince(node)
		Expect(again).To(Equal(since))
	})
	It("should be opened when the fault has gone within the same boot", func() {
		verified()
		reported(faulty(a10gs(boot), lost))
		reconciled()
		reported(a10gs(boot))
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
	})
	It("should be fenced by a reboot until it is verified again, with resources and all", func() {
		verified()
		node.Status.NodeInfo.BootID = reboot
		plugged("0")
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		Expect(events("GPUFenced")).To(ConsistOf("no new pods, not verified since its last boot (BootDiffers): the report is of an earlier boot of the node"))
		reported(a10gs(reboot))
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		plugged("4")
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
		Expect(node.Annotations).To(HaveKeyWithValue(v1alpha1.VerifiedBootAnnotationKey, reboot))
	})
	It("should not be fenced by its plugin, nor by an agent that is gone", func() {
		verified()
		plugged("0")
		node.Status.Conditions = lo.Reject(node.Status.Conditions, func(c corev1.NodeCondition, _ int) bool { return c.Type == v1alpha1.NodeConditionGPUReady })
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
	})
	It("should be fenced by a fault with gate None too", func() {
		join(v1alpha1.GPUPoolSpec{Readiness: v1alpha1.Readiness{Gate: v1alpha1.GateNone}})
		verified()
		reported(faulty(a10gs(boot), lost))
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
	})
	It("should go on working when it was there before its pool gated, until it shows a fault", func() {
		node.Spec.Taints = nil
		node.Labels[karpv1.NodeInitializedLabelKey] = "true"
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
		reported(faulty(a10gs(boot), lost))
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		reported(a10gs(boot))
		plugged("4")
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
		Expect(node.Annotations).To(HaveKeyWithValue(v1alpha1.VerifiedBootAnnotationKey, boot))
	})
	It("should be left alone when it is not Karpenter's", func() {
		local := coretest.Node(coretest.NodeOptions{Taints: []corev1.Taint{v1alpha1.UnverifiedTaint()}})
		ExpectApplied(ctx, env.Client, local)
		ExpectObjectReconciled(ctx, env.Client, controller, local)
		Expect(readiness.Tainted(ExpectExists(ctx, env.Client, local))).To(BeTrue())
	})
})

var _ = Describe("A node with partitions at fault", func() {
	xid := func(gi int) health.ReportFinding {
		return health.ReportFinding{Check: health.CheckXID, Reason: health.XIDNeedsReboot, GPU: lo.ToPtr(0), GI: &gi, XID: 95, Message: "XID 95"}
	}
	It("should work on and be kept from repair within the allowance, and be fenced and repaired beyond it", func() {
		verified()
		plugged("3")
		reported(faulty(a10gs(boot), xid(1)))
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
		Expect(node.Annotations).To(HaveKeyWithValue(karpv1.DoNotRepairAnnotationKey, "true"))
		Expect(readiness.StateOf(node)).To(Equal(readiness.StateDegraded))
		Expect(events("GPUPartitionFaulty")).To(HaveLen(1))
		plugged("2")
		reported(faulty(faulty(a10gs(boot), xid(1)), xid(2)))
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		Expect(node.Annotations).ToNot(HaveKey(karpv1.DoNotRepairAnnotationKey))
		Expect(node.Annotations).ToNot(HaveKey(v1alpha1.RepairHeldAnnotationKey))
	})
	It("should be fenced as a whole for as long as the device plugin offers such a partition", func() {
		verified()
		reported(faulty(a10gs(boot), xid(1)))
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		Expect(node.Annotations).ToNot(HaveKey(karpv1.DoNotRepairAnnotationKey))
		Expect(events("GPUFenced")).To(ConsistOf(ContainSubstring("the device plugin holds back 0 of 1 partitions at fault")))
		plugged("3")
		reconciled()
		Expect(readiness.Tainted(node)).To(BeFalse())
		Expect(readiness.StateOf(node)).To(Equal(readiness.StateDegraded))
		Expect(events("GPUPartitionFaulty")).To(HaveLen(1))
		plugged("4") // it has restarted, and forgotten
		reconciled()
		Expect(readiness.Tainted(node)).To(BeTrue())
		Expect(node.Annotations).ToNot(HaveKey(karpv1.DoNotRepairAnnotationKey))
	})
	It("should keep an administrator's do-not-repair", func() {
		verified()
		plugged("3")
		node.Annotations[karpv1.DoNotRepairAnnotationKey] = "true"
		reported(faulty(a10gs(boot), xid(1)))
		reconciled()
		Expect(node.Annotations).ToNot(HaveKey(v1alpha1.RepairHeldAnnotationKey))
		reported(a10gs(boot))
		reconciled()
		Expect(node.Annotations).To(HaveKeyWithValue(karpv1.DoNotRepairAnnotationKey, "true"))
	})
})
