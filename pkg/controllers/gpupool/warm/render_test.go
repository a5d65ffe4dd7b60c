package warm_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/sharing"
)

func requests(t *corev1.PodTemplate) map[string]string {
	return lo.MapEntries(t.Template.Spec.Containers[0].Resources.Requests, func(name corev1.ResourceName, q resource.Quantity) (string, string) {
		return string(name), q.String()
	})
}

func expressions(t *corev1.PodTemplate) []corev1.NodeSelectorRequirement {
	GinkgoHelper()
	terms := t.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	Expect(terms).To(HaveLen(1))
	return terms[0].MatchExpressions
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// gone expects that nothing is rendered under a name.
func gone(k types.NamespacedName) {
	GinkgoHelper()
	Expect(apierrors.IsNotFound(env.Client.Get(ctx, k, &autoscalingv1beta1.CapacityBuffer{}))).To(BeTrue())
	Expect(apierrors.IsNotFound(env.Client.Get(ctx, k, &corev1.PodTemplate{}))).To(BeTrue())
}

// refusing is a client that cannot apply the capacity buffer of one name.
type refusing struct {
	client.Client
	name string
}

func (r refusing) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if named, ok := o.(interface{ GetName() string }); ok && named.GetName() == r.name {
		if kind, ok := o.(interface{ GetKind() string }); ok && kind.GetKind() == "CapacityBuffer" {
			return errors.New("no quota")
		}
	}
	return r.Client.Apply(ctx, o, opts...)
}

var _ = Describe("Rendering", func() {
	day := key(namespace, "inference.day")

	It("should render a buffer of GPUs, aimed at the pool", func() {
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8, func(w *v1alpha1.WarmCapacity) {
			w.CapacityTypes = []v1alpha1.CapacityType{v1alpha1.CapacityTypeReserved, v1alpha1.CapacityTypeOnDemand}
		})}
		keep()
		Expect(replicas(day)).To(Equal(8))
		Expect(buffer(day).Spec.PodTemplateRef.Name).To(Equal(day.Name))
		t := template(day)
		Expect(requests(t)).To(Equal(map[string]string{"nvidia.com/gpu": "1"}))
		Expect(expressions(t)).To(ConsistOf(in("karpenter-gpu.dev/pool", "inference"), in("karpenter.sh/capacity-type", "reserved", "on-demand")))
		Expect(t.Template.Spec.Tolerations).To(ConsistOf(corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}))
		for _, labels := range []map[string]string{t.Labels, t.Template.Labels, buffer(day).Labels} {
			Expect(labels).To(Equal(map[string]string{"app.kubernetes.io/managed-by": "karpenter-gpu", "karpenter-gpu.dev/pool": "inference", "karpenter-gpu.dev/warm": "day"}))
		}
		Expect(buffer(day).OwnerReferences).To(ConsistOf(HaveField("UID", pool.UID)))
	})

	It("should hold whole GPUs where they are shared, under their name", func() {
		pool.Spec.Partitioning = &v1alpha1.Partitioning{TimeSlicing: &v1alpha1.TimeSlicing{Replicas: 4}}
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 2)}
		keep()
		Expect(requests(template(day))).To(Equal(map[string]string{"nvidia.com/gpu": "4"}))
		Expect(sharing.ResourceGPU).To(Equal("nvidia.com/gpu"))
	})

	It("should hold partitions by profile, with a buffer for each", func() {
		pool.Spec.Partitioning = &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Profiles: []string{"1g.10gb", "1g.10gb+me"}}}
		pool.Spec.Warm = []v1alpha1.WarmCapacity{{Name: "day", Partitions: []v1alpha1.PartitionCount{{Profile: "1g.10gb", Count: 7}, {Profile: "1g.10gb+me", Count: 1}}}}
		keep()
		Expect(replicas(key(namespace, "inference.day.1g-10gb"))).To(Equal(7))
		Expect(requests(template(key(namespace, "inference.day.1g-10gb")))).To(Equal(map[string]string{"nvidia.com/mig-1g.10gb": "1"}))
		Expect(replicas(key(namespace, "inference.day.1g-10gb--me"))).To(Equal(1))
		Expect(requests(template(key(namespace, "inference.day.1g-10gb--me")))).To(Equal(map[string]string{"nvidia.com/mig-1g.10gb.me": "1"}))
		Expect(status("day").Unit).To(Equal(v1alpha1.WarmUnitPartitions))
		Expect(status("day").Wanted).To(BeEquivalentTo(8))
	})

	It("should tell profiles with and without media extensions apart by the name of the buffer", func() {
		pool.Spec.Partitioning = &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Profiles: []string{"1g.24gb+me", "1g.24gb-me"}}}
		pool.Spec.Warm = []v1alpha1.WarmCapacity{{Name: "day", Partitions: []v1alpha1.PartitionCount{{Profile: "1g.24gb+me", Count: 1}, {Profile: "1g.24gb-me", Count: 2}}}}
		keep()
		Expect(replicas(key(namespace, "inference.day.1g-24gb--me"))).To(Equal(1))
		Expect(replicas(key(namespace, "inference.day.1g-24gb-me"))).To(Equal(2))
	})

	It("should delete the buffer of a profile that is no longer held, whatever the price allows", func() {
		pool.Spec.Partitioning = &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Profiles: []string{"1g.10gb", "3g.40gb"}}}
		pool.Spec.Warm = []v1alpha1.WarmCapacity{{Name: "day", MaxPricePerHour: lo.ToPtr("1"), Partitions: []v1alpha1.PartitionCount{{Profile: "1g.10gb", Count: 7}, {Profile: "3g.40gb", Count: 1}}}}
		keep()
		Expect(replicas(key(namespace, "inference.day.3g-40gb"))).To(Equal(0))
		pool.Spec.Warm[0].Partitions = pool.Spec.Warm[0].Partitions[:1]
		keep()
		condition("False", v1alpha1.ReasonBudgetReached, "day: 0 of 0 ready: maxPricePerHour=1 does not cover the full amount; raise it, or hold less")
		gone(key(namespace, "inference.day.3g-40gb"))
	})

	It("should tell partitions of strategy Single apart by the layout", func() {
		pool.Spec.Partitioning = &v1alpha1.Partitioning{MIG: &v1alpha1.MIG{Strategy: v1alpha1.MIGStrategySingle, Layouts: []string{"all-1g.10gb", "all-3g.40gb"}}}
		pool.Spec.Warm = []v1alpha1.WarmCapacity{{Name: "day", Partitions: []v1alpha1.PartitionCount{{Profile: "3g.40gb", Count: 2}}}, entry("whole", 1)}
		keep()
		t := template(key(namespace, "inference.day.3g-40gb"))
		Expect(requests(t)).To(Equal(map[string]string{"nvidia.com/gpu": "1"}))
		Expect(expressions(t)).To(ContainElement(in("karpenter-gpu.dev/layout", "all-3g.40gb")))
		Expect(status("whole").Message).To(Equal("with MIG strategy Single nvidia.com/gpu is a partition, and whole GPUs cannot be asked for; hold partitions in place of gpus"))
	})

	It("should hold room for pods of a template, in its namespace and with all that they ask for", func() {
		ref := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: "server"}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "server"}},
			Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"disk": "ssd"},
				Tolerations:  []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}},
				Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{in("topology.kubernetes.io/zone", "a", "b")}}}}}},
				Containers: []corev1.Container{{Name: "serve", Image: "server", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("4")}, Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}},
			}}}
		ExpectApplied(ctx, env.Client, ref)
		pool.Spec.Warm = []v1alpha1.WarmCapacity{{Name: "day", PodTemplateRef: &v1alpha1.PodTemplateReference{Namespace: workloads, Name: "server"}, Replicas: lo.ToPtr[int32](3)}}
		keep()
		rendered := key(workloads, "inference.day")
		Expect(replicas(rendered)).To(Equal(3))
		t := template(rendered)
		Expect(requests(t)).To(Equal(map[string]string{"cpu": "4", "nvidia.com/gpu": "1"}))
		Expect(expressions(t)).To(ConsistOf(in("topology.kubernetes.io/zone", "a", "b"), in("karpenter-gpu.dev/pool", "inference")))
		Expect(t.Template.Labels).To(And(HaveKeyWithValue("app", "server"), HaveKeyWithValue("karpenter-gpu.dev/warm", "day")))
		Expect(t.Template.Spec.Tolerations).To(HaveLen(1), "it tolerates the taint already")
		Expect(status("day").Unit).To(Equal(v1alpha1.WarmUnitPods))

		By("following what the template no longer asks for")
		ref = ExpectExists(ctx, env.Client, ref)
		ref.Template.Spec.NodeSelector = nil
		Expect(env.Client.Update(ctx, ref)).To(Succeed())
		again(ctx)
		Expect(template(rendered).Template.Spec.NodeSelector).To(BeEmpty())
	})

	It("should hold room for a share of a workload, and follow its size", func() {
		deployment := coretest.Deployment(coretest.DeploymentOptions{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: "server"}, Replicas: 11})
		ExpectApplied(ctx, env.Client, deployment)
		pool.Spec.Warm = []v1alpha1.WarmCapacity{{Name: "day", Percentage: lo.ToPtr[int32](20), ScalableRef: &v1alpha1.ScalableReference{Kind: "Deployment", Namespace: workloads, Name: "server"}}}
		keep()
		Expect(replicas(key(workloads, "inference.day"))).To(Equal(3))
		deployment = ExpectExists(ctx, env.Client, deployment)
		deployment.Spec.Replicas = lo.ToPtr[int32](50)
		Expect(env.Client.Update(ctx, deployment)).To(Succeed())
		again(ctx)
		Expect(replicas(key(workloads, "inference.day"))).To(Equal(10))
		Expect(env.Client.DeleteAllOf(ctx, &appsv1.Deployment{}, inWorkloads)).To(Succeed())
		again(ctx)
		Expect(status("day").Message).To(Equal("scalableRef Deployment default/server does not exist; create it, or correct its name"))
		Expect(replicas(key(workloads, "inference.day"))).To(Equal(10), "a workload that is being replaced keeps its space")
	})

	It("should keep the space of a workload that is missing no longer than its window", func() {
		ExpectApplied(ctx, env.Client, coretest.Deployment(coretest.DeploymentOptions{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: "server"}, Replicas: 1}))
		pool.Spec.Warm = []v1alpha1.WarmCapacity{{Name: "day", Replicas: lo.ToPtr[int32](3), ScalableRef: &v1alpha1.ScalableReference{Kind: "Deployment", Namespace: workloads, Name: "server"},
			Schedule: &v1alpha1.WarmSchedule{Windows: []v1alpha1.WarmWindow{window("0 11 * * *", 2*time.Hour, "UTC", 100)}}}}
		keep()
		Expect(env.Client.DeleteAllOf(ctx, &appsv1.Deployment{}, inWorkloads)).To(Succeed())
		again(ctx)
		Expect(replicas(key(workloads, "inference.day"))).To(Equal(3))
		env.Clock.Step(time.Hour)
		again(ctx)
		gone(key(workloads, "inference.day"))
	})

	It("should go on with other entries when one cannot be written, tell of it, and come again", func() {
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8), entry("night", 2), entry("old", 1)}
		keep()
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 9), entry("night", 3)}
		controller.Client = refusing{env.Client, day.Name}
		ExpectApplied(ctx, env.Client, pool)
		store.Swap([]*pools.Pool{{GPUPool: pool, NodePools: []string{nodePool.Name}}}, map[string]string{nodePool.Name: pool.Name})
		env.Clock.Step(time.Second)
		_, err := controller.Reconcile(ctx, pool.DeepCopy())
		Expect(err).To(MatchError("applying *v1beta1.CapacityBuffer kube-system/inference.day, no quota"))
		pool = ExpectExists(ctx, env.Client, pool)
		condition("False", v1alpha1.ReasonFilling, "day: 0 of 9 ready: its buffer cannot be written: applying *v1beta1.CapacityBuffer kube-system/inference.day, no quota")
		Expect(replicas(day)).To(Equal(8))
		Expect(replicas(key(namespace, "inference.night"))).To(Equal(3))
		gone(key(namespace, "inference.old"))

		By("writing it when that has passed")
		controller.Client = env.Client
		again(ctx)
		Expect(replicas(day)).To(Equal(9))
	})

	It("should say that a reference does not exist or cannot be followed", func() {
		pool.Spec.Warm = []v1alpha1.WarmCapacity{
			{Name: "none", PodTemplateRef: &v1alpha1.PodTemplateReference{Namespace: workloads, Name: "nowhere"}, Replicas: lo.ToPtr[int32](3)},
			{Name: "other", ScalableRef: &v1alpha1.ScalableReference{APIGroup: "batch", Kind: "Job", Namespace: workloads, Name: "nowhere"}, Replicas: lo.ToPtr[int32](3)},
		}
		keep()
		condition("False", v1alpha1.ReasonReferenceNotFound, "none: 0 of 0 ready: podTemplateRef default/nowhere does not exist; create it, or correct its name")
		Expect(status("other").Message).To(Equal(`scalableRef Job default/nowhere cannot be followed: unsupported scalableRef API group "batch"; name a Deployment, StatefulSet or ReplicaSet of the group apps`))
	})

	It("should put right what somebody changed, and delete what no entry wants", func() {
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8), entry("night", 2)}
		keep()
		changed := buffer(day)
		changed.Spec.Replicas = lo.ToPtr[int32](80)
		Expect(env.Client.Update(ctx, changed)).To(Succeed())
		again(ctx)
		Expect(replicas(day)).To(Equal(8))

		version := buffer(day).ResourceVersion
		again(ctx)
		Expect(buffer(day).ResourceVersion).To(Equal(version), "nothing has changed")

		pool.Spec.Warm = pool.Spec.Warm[:1]
		keep()
		Expect(apierrors.IsNotFound(env.Client.Get(ctx, key(namespace, "inference.night"), &autoscalingv1beta1.CapacityBuffer{}))).To(BeTrue())
		Expect(apierrors.IsNotFound(env.Client.Get(ctx, key(namespace, "inference.night"), &corev1.PodTemplate{}))).To(BeTrue())

		pool.Spec.Warm = nil
		keep()
		Expect(apierrors.IsNotFound(env.Client.Get(ctx, day, &autoscalingv1beta1.CapacityBuffer{}))).To(BeTrue())
		Expect(pool.Status.Warm).To(BeEmpty())
		Expect(pool.StatusConditions().Get(v1alpha1.ConditionTypeWarmCapacityReady)).To(BeNil())
	})

	It("should leave an object of somebody else alone and say so", func() {
		ExpectApplied(ctx, env.Client, &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: day.Name}, Spec: autoscalingv1beta1.CapacityBufferSpec{
			PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: "mine"}, Replicas: lo.ToPtr[int32](1)}})
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8)}
		keep()
		Expect(buffer(day).Spec.PodTemplateRef.Name).To(Equal("mine"))
		Expect(status("day").Message).To(Equal("CapacityBuffer kube-system/inference.day exists and is not of this pool; delete it, or rename the entry"))
	})

	It("should say that the feature gate is off, and render nothing", func() {
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8)}
		keepWith(gateless)
		condition("False", v1alpha1.ReasonBuffersDisabled, "day: 0 of 0 ready: nothing is held ready, because Karpenter's feature gate CapacityBuffer is off; set settings.featureGates.capacityBuffer=true in the chart, or CapacityBuffer=true in FEATURE_GATES")
		Expect(apierrors.IsNotFound(env.Client.Get(ctx, day, &autoscalingv1beta1.CapacityBuffer{}))).To(BeTrue())
		Expect(recorder.Calls(v1alpha1.ReasonBuffersDisabled)).To(Equal(1))
	})

	It("should delete what was rendered for entries that were removed while the feature gate was off", func() {
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8)}
		keep()
		start()
		pool.Spec.Warm = nil
		keepWith(gateless)
		Expect(pool.Status.Warm).To(BeEmpty())
		again(gateless)
		Expect(replicas(day)).To(Equal(8))
		start()
		again(ctx)
		gone(day)
	})
})

var _ = Describe("Buffers of users", func() {
	mine := func(name string, count int32, spec autoscalingv1beta1.CapacityBufferSpec) *autoscalingv1beta1.CapacityBuffer {
		GinkgoHelper()
		spec.Replicas = &count
		b := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: name}, Spec: spec}
		ExpectApplied(ctx, env.Client, b)
		b.Status.Replicas = &count
		b.SetCondition(autoscalingv1beta1.ReadyForProvisioningCondition, metav1.ConditionTrue, "Resolved", "")
		Expect(env.Client.Status().Update(ctx, b)).To(Succeed())
		return b
	}
	podsOf := func(name string, selector map[string]string, gpus string) {
		GinkgoHelper()
		ExpectApplied(ctx, env.Client, &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: name}, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeSelector: selector, Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)}}}}}}})
	}
	template := func(name string) autoscalingv1beta1.CapacityBufferSpec {
		return autoscalingv1beta1.CapacityBufferSpec{PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: name}}
	}

	It("should count towards GPUs where they select the pool, each once", func() {
		podsOf("here", map[string]string{v1alpha1.PoolLabelKey: "inference"}, "2")
		podsOf("anywhere", nil, "2")
		mine("here", 5, template("here"))
		mine("anywhere", 5, template("anywhere"))
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8), entry("more", 4)}
		keep()
		Expect(replicas(key(namespace, "inference.day"))).To(Equal(0))
		Expect(replicas(key(namespace, "inference.more"))).To(Equal(2))
		Expect(status("day").Wanted).To(BeEquivalentTo(8))
	})

	It("should count towards the template that they follow, and what stands for them is ready", func() {
		podsOf("server", nil, "1")
		mine("own", 2, template("server"))
		pool.Spec.Warm = []v1alpha1.WarmCapacity{{Name: "day", PodTemplateRef: &v1alpha1.PodTemplateReference{Namespace: workloads, Name: "server"}, Replicas: lo.ToPtr[int32](3)}}
		ExpectApplied(ctx, env.Client, node("a", true))
		placed(key(workloads, "own"), "1", "a")
		keep()
		Expect(replicas(key(workloads, "inference.day"))).To(Equal(1))
		Expect(status("day")).To(And(HaveField("Wanted", BeEquivalentTo(3)), HaveField("Ready", BeEquivalentTo(1))))
	})

	It("should not count while it holds nothing", func() {
		podsOf("here", map[string]string{v1alpha1.PoolLabelKey: "inference"}, "1")
		b := mine("here", 5, template("here"))
		b.SetCondition(autoscalingv1beta1.ReadyForProvisioningCondition, metav1.ConditionFalse, "PodTemplateNotFound", "")
		Expect(env.Client.Status().Update(ctx, b)).To(Succeed())
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8)}
		keep()
		Expect(replicas(key(namespace, "inference.day"))).To(Equal(8))
	})
})
