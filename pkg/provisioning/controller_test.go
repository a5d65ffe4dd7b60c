package provisioning_test

import (
	"context"
	"errors"

	"github.com/awslabs/operatorpkg/controller"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/capacitybuffer"
	stock "sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// replaced are the controllers that Replace makes of stock's.
func replaced() []controller.Controller {
	GinkgoHelper()
	return lo.Must(provisioning.Replace(ctx, []controller.Controller{inner, stock.NewPodController(env.Client, inner, cluster), stock.NewNodeController(env.Client, inner)}, dependencies()))
}

func dependencies() provisioning.Dependencies {
	return provisioning.Dependencies{Client: env.Client, Cluster: cluster, Clock: env.Clock, Recorder: recorder, Ledger: ledger}
}

// reconcileBatch runs one reconciliation while time goes by.
func reconcileBatch(ctx context.Context, p *provisioning.Provisioner) error {
	done := make(chan error)
	go func() {
		_, err := p.Reconcile(ctx)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			return err
		default:
			if env.Clock.HasWaiters() {
				env.Clock.Step(minute / 60)
			}
		}
	}
}

var _ = Describe("Replacing the controllers", func() {
	It("should take the places and names of stock's", func() {
		Expect(lo.Map(replaced(), func(c controller.Controller, _ int) string {
			return c.(interface{ Name() string }).Name()
		})).To(Equal([]string{"provisioner", "provisioner.trigger.pod", "provisioner.trigger.node", "provisioner.trigger.launch"}))
	})

	It("should follow capacity buffers where they are on", func() {
		on := options.ToContext(ctx, coretest.Options(coretest.OptionsFields{FeatureGates: coretest.FeatureGates{CapacityBuffer: lo.ToPtr(true)}}))
		all := lo.Must(provisioning.Replace(on, []controller.Controller{inner, stock.NewPodController(env.Client, inner, cluster), stock.NewNodeController(env.Client, inner)}, dependencies()))
		Expect(all).To(HaveLen(6))
		Expect(all[3]).To(BeAssignableToTypeOf(&provisioning.LaunchTrigger{}))
		Expect(all[4]).To(BeAssignableToTypeOf(&provisioning.BufferTrigger{}))
		Expect(all[5]).To(BeAssignableToTypeOf(&provisioning.UseTrigger{}))
	})

	It("should refuse a set that it does not know", func() {
		_, err := provisioning.Replace(ctx, []controller.Controller{stock.NewNodeController(env.Client, inner)}, dependencies())
		Expect(err).To(MatchError("replacing the provisioner, not among the 1 controllers of Karpenter"))
		_, err = provisioning.Replace(ctx, []controller.Controller{inner, stock.NewNodeController(env.Client, inner)}, dependencies())
		Expect(err).To(MatchError("replacing the provisioner, 0 controllers became *provisioning.PodTrigger, want 1"))
	})
})

var _ = Describe("The provisioner", func() {
	BeforeEach(func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 1), gpuType("gpu8", 8, 16)}
	})

	It("should create the right-sized NodeClaims for pods that trigger it", func() {
		pods := gpuPods(3, 1)
		apply(pods, gpuPool(nil), nodePool())
		all := replaced()
		for _, p := range pods {
			result, err := all[1].(*provisioning.PodTrigger).Reconcile(ctx, ExpectExists(ctx, env.Client, p))
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(Equal(minute / 6))
			Expect(cluster.PodAckTime(client.ObjectKeyFromObject(p)).IsZero()).To(BeFalse())
		}
		Expect(reconcileBatch(ctx, all[0].(*provisioning.Provisioner))).To(Succeed())
		claims := ExpectNodeClaims(ctx, env.Client)
		Expect(claims).To(HaveLen(3))
		for _, c := range claims {
			Expect(c.Spec.Requirements).To(ContainElement(HaveField("Values", []string{"gpu1"})))
		}
	})

	It("should do nothing without a trigger, or for pods that have a node", func() {
		apply(gpuPods(1, 1), gpuPool(nil), nodePool())
		all := replaced()
		bound := coretest.Pod(coretest.PodOptions{NodeName: "n"})
		result, err := all[1].(*provisioning.PodTrigger).Reconcile(ctx, bound)
		Expect(result, err).To(Equal(reconcile.Result{}))
		Expect(reconcileBatch(ctx, all[0].(*provisioning.Provisioner))).To(Succeed())
		Expect(ExpectNodeClaims(ctx, env.Client)).To(BeEmpty())
	})

	It("should try again at once when a launch in a pool has failed, and only there", func() {
		member, outside := nodePool(), coretest.NodePool()
		apply(gpuPods(1, 1), gpuPool(nil), member, outside)
		all := replaced()
		trigger := all[3].(*provisioning.LaunchTrigger)
		for _, name := range []string{outside.Name, "gone"} {
			Expect(trigger.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})).To(Equal(reconcile.Result{}))
		}
		Expect(reconcileBatch(ctx, all[0].(*provisioning.Provisioner))).To(Succeed())
		Expect(ExpectNodeClaims(ctx, env.Client)).To(BeEmpty())
		Expect(trigger.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: member.Name}})).To(Equal(reconcile.Result{}))
		Expect(reconcileBatch(ctx, all[0].(*provisioning.Provisioner))).To(Succeed())
		Expect(ExpectNodeClaims(ctx, env.Client)).To(HaveLen(1))
	})

	It("should provision for nodes that are being emptied", func() {
		trigger := replaced()[2].(*provisioning.NodeTrigger)
		result, err := trigger.Reconcile(ctx, coretest.Node())
		Expect(result, err).To(Equal(reconcile.Result{}))
		result, err = trigger.Reconcile(ctx, coretest.Node(coretest.NodeOptions{Taints: []corev1.Taint{karpv1.DisruptedNoScheduleTaint}}))
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(minute / 6))
	})

	It("should keep track of capacity buffers as stock does", func() {
		on := options.ToContext(ctx, coretest.Options(coretest.OptionsFields{FeatureGates: coretest.FeatureGates{CapacityBuffer: lo.ToPtr(true)}}))
		template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "headroom", Namespace: "default"}, Template: corev1.PodTemplateSpec{Spec: gpuPods(1, 1)[0].Spec}}
		buffer := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"},
			Spec: autoscalingv1beta1.CapacityBufferSpec{PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: template.Name}, Replicas: lo.ToPtr[int32](2)}}
		apply(nil, gpuPool(nil), nodePool(), template, buffer)
		_, err := capacitybuffer.NewController(env.Client, ours, virtual).Reconcile(on, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(buffer)})
		Expect(err).NotTo(HaveOccurred())
		Expect(reconcileBatch(on, ours)).To(Succeed())
		condition := func() string {
			c := meta.FindStatusCondition(ExpectExists(ctx, env.Client, buffer).Status.Conditions, autoscalingv1beta1.ProvisioningCondition)
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
		Expect(condition()).To(Equal("False RequiresNewCapacity: 2/2 virtual pods required new capacity, 0 failed"))
		claims := ExpectNodeClaims(ctx, env.Client)
		Expect(claims).To(HaveLen(2))
		for _, c := range claims {
			_, node := ExpectNodeClaimDeployedAndStateUpdated(ctx, env.Client, cluster, guarded, c)
			Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "gpu1"))
		}
		ours.TriggerReconcile()
		Expect(reconcileBatch(on, ours)).To(Succeed())
		Expect(condition()).To(Equal("True FitsExistingCapacity: All 2 virtual pods fit on existing capacity"))
		for n := range cluster.Nodes() {
			Expect(cluster.BufferPodCount(n.ProviderID())).To(Equal(1))
		}
		ExpectDeleted(ctx, env.Client, buffer, template)
	})

	It("should move a pod to another NodePool of its pool", func() {
		cloud.InstanceTypesForNodePool = map[string][]*cloudprovider.InstanceType{"z-large": {gpuType("gpu8", 8, 16)}, "b-small": {gpuType("gpu1", 1, 1)}}
		small := nodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "b-small"}})
		pods := gpuPods(1, 1)
		apply(pods, gpuPool(nil), nodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "z-large"}}), small)
		Expect(decide().NewNodeClaims[0].NodePoolName).To(Equal("b-small"))
		Expect(cluster.PodSchedulingSuccessTime(client.ObjectKeyFromObject(pods[0])).IsZero()).To(BeFalse())
	})

	It("should launch what stock decided when ours fails or panics", func() {
		apply(gpuPods(10, 1), gpuPool(nil), nodePool())
		for _, fault := range []func(){func() { panic("a bug") }, nil} {
			broken := provisioning.NewProvisioner(inner, &provisioning.RightSizer{Client: faulty{env.Client, fault}, Cluster: cluster, Clock: env.Clock, Ledger: ledger}, recorder, nil)
			results, err := broken.Provision(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(shapes(results.NewNodeClaims)).To(Equal([]string{"gpu8=2", "gpu8=8"}))
		}
	})

	It("should not launch more of a reservation than there is", func() {
		reserved := func(price float64) []cloudprovider.Offering {
			o := offer(karpv1.CapacityTypeReserved, zones[0], 0)
			o.Requirements.Add(requirementIn(cloudprovider.ReservationIDLabel, "r-1"))
			o.ReservationCapacity = 2
			return []cloudprovider.Offering{o, offer("on-demand", zones[0], price)}
		}
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 1, reserved(1)...), gpuType("gpu8", 8, 16)}
		pods := gpuPods(5, 1)
		apply(pods, gpuPool(func(s *v1alpha1.GPUPoolSpec) {
			s.Selection.CapacityTypes = []v1alpha1.CapacityType{v1alpha1.CapacityTypeReserved, v1alpha1.CapacityTypeOnDemand}
		}), nodePool())
		for range 4 {
			launch(decide())
		}
		ExpectPodsScheduled(ctx, env.Client, pods...)
		Expect(lo.CountValuesBy(ExpectNodeClaims(ctx, env.Client), func(n *karpv1.NodeClaim) string {
			return n.Labels[corev1.LabelInstanceTypeStable] + " " + n.Labels[karpv1.CapacityTypeLabelKey]
		})).To(Equal(map[string]int{"gpu1 reserved": 2, "gpu1 on-demand": 3}))
	})

	It("should change nothing of the scheduler's results", func() {
		apply(gpuPods(10, 1), gpuPool(func(s *v1alpha1.GPUPoolSpec) { s.Selection.MaxUnusedGPUs = lo.ToPtr[int32](0) }), nodePool())
		watched, seen := provisioning.Watch(ctx)
		results := lo.Must(inner.Schedule(watched))
		before := describe(results.NewNodeClaims)
		sizer := &provisioning.RightSizer{Client: env.Client, Cluster: cluster, Clock: env.Clock, Ledger: ledger}
		Expect(sizer.Decide(ctx, results, seen).Saved).To(BeNumerically("~", 16-2, 20))
		Expect(describe(results.NewNodeClaims)).To(Equal(before))
	})
})

func describe(claims []*scheduler.NodeClaim) []string {
	return lo.Map(claims, func(c *scheduler.NodeClaim, _ int) string {
		return c.Requirements.String() + " " + lo.Must(lo.Nth(typesOf(c), 0)) + " " + c.Spec.Resources.Requests.Cpu().String()
	})
}

// faulty fails or panics when pools are read.
type faulty struct {
	client.Client
	fault func()
}

func (f faulty) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.GPUPoolList); ok {
		if f.fault != nil {
			f.fault()
		}
		return errors.New("the API server is away")
	}
	return f.Client.List(ctx, list, opts...)
}
