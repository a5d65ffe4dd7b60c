package warm_test

import (
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/warm"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/warm/prepull"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

var inWorkloads = client.InNamespace(workloads)

func pullers() []corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Expect(env.Client.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
	return lo.Filter(list.Items, func(p corev1.Pod, _ int) bool { return prepull.Is(&p) && p.DeletionTimestamp.IsZero() })
}

// pulls lets the kubelet report on a puller.
func pulls(pod corev1.Pod, state corev1.ContainerState) {
	GinkgoHelper()
	pod.Status.ContainerStatuses = lo.Map(pod.Spec.Containers, func(c corev1.Container, _ int) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: state}
	})
	Expect(env.Client.Status().Update(ctx, &pod)).To(Succeed())
}

var started = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError"}}

var _ = Describe("Counting", func() {
	day := key(namespace, "inference.day")

	BeforeEach(func() { pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 3)} })

	It("should count space on verified nodes alone, and tell since when", func() {
		ExpectApplied(ctx, env.Client, node("a", true), node("b", true), node("c", false))
		keep()
		Expect(status("day")).To(And(HaveField("Wanted", BeEquivalentTo(3)), HaveField("Ready", BeEquivalentTo(0)), HaveField("Message", "the provisioner has not looked for a place yet")))
		placed(day, "10", "a", "b", "c")
		pool.Status.GPUs.Ready = 3
		Expect(env.Client.Status().Update(ctx, pool)).To(Succeed())
		again(ctx)
		Expect(status("day")).To(And(HaveField("Ready", BeEquivalentTo(2)), HaveField("Provisioning", BeEquivalentTo(1)), HaveField("Message", "1 of 3 are on their way")))
		Expect(pool.Status.GPUs.Warm).To(BeEquivalentTo(2))
		condition("False", v1alpha1.ReasonFilling, "day: 2 of 3 ready: 1 of 3 are on their way")
		since := status("day").Since

		By("becoming whole")
		env.Clock.Step(time.Hour)
		c := ExpectExists(ctx, env.Client, node("c", false))
		verified := node("c", true)
		c.Labels, c.Annotations, c.Spec.Taints = verified.Labels, verified.Annotations, nil
		Expect(env.Client.Update(ctx, c)).To(Succeed())
		again(ctx)
		condition("True", v1alpha1.ConditionTypeWarmCapacityReady, "")
		Expect(status("day").Ready).To(BeEquivalentTo(3))
		Expect(status("day").Since.Time).To(BeTemporally(">", since.Time))

		By("losing a node that is fenced")
		c = ExpectExists(ctx, env.Client, c)
		c.Spec.Taints = append(c.Spec.Taints, v1alpha1.UnverifiedTaint())
		Expect(env.Client.Update(ctx, c)).To(Succeed())
		again(ctx)
		Expect(status("day").Ready).To(BeEquivalentTo(2))
	})

	It("should keep what it told until the provisioner has looked, after a restart", func() {
		ExpectApplied(ctx, env.Client, node("a", true), node("b", true), node("c", true))
		keep()
		placed(day, "10", "a", "b", "c")
		again(ctx)
		Expect(status("day").Ready).To(BeEquivalentTo(3))
		start()
		again(ctx)
		Expect(status("day").Ready).To(BeEquivalentTo(3))
		spaces.Note(map[types.NamespacedName]provisioning.Space{})
		again(ctx)
		Expect(status("day").Ready).To(BeEquivalentTo(0))
	})

	It("should say what keeps space from being made", func() {
		keep()
		spaces.Note(map[types.NamespacedName]provisioning.Space{day: {Waiting: 3, Why: provisioning.Refusal{Kind: provisioning.RefusedGPULimit, Message: "waiting: GPUPool inference has 8 of 8 GPUs"}}})
		again(ctx)
		condition("False", v1alpha1.ReasonBudgetReached, "day: 0 of 3 ready: waiting: GPUPool inference has 8 of 8 GPUs")
		Expect(recorder.Calls(v1alpha1.ReasonBudgetReached)).To(Equal(1))
		spaces.Note(map[types.NamespacedName]provisioning.Space{day: {Waiting: 3, Why: errors.New("no instance type has nvidia.com/gpu")}})
		again(ctx)
		condition("False", v1alpha1.ReasonFilling, "day: 0 of 3 ready: no node can be launched for it: no instance type has nvidia.com/gpu")
	})

	It("should leave an invalid pool, and one that goes, alone", func() {
		ExpectApplied(ctx, env.Client, pool)
		_, err := controller.Reconcile(ctx, pool.DeepCopy())
		Expect(err).NotTo(HaveOccurred())
		Expect(ExpectExists(ctx, env.Client, pool).Status.Warm).To(BeEmpty())
	})
})

var _ = Describe("A price", func() {
	day := key(namespace, "inference.day")

	BeforeEach(func() {
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8, func(w *v1alpha1.WarmCapacity) { w.MaxPricePerHour = lo.ToPtr("45") })}
	})

	It("should bound the amount by what the offers cost", func() {
		keep()
		Expect(replicas(day)).To(Equal(4))
		condition("False", v1alpha1.ReasonBudgetReached, "day: 0 of 4 ready: maxPricePerHour=45 does not cover the full amount; raise it, or hold less")
	})

	It("should count what is held at its own price, and not flap", func() {
		keep()
		ExpectApplied(ctx, env.Client, node("a", true), node("b", true))
		placed(day, "20", "a", "b")
		for range 3 {
			again(ctx)
			Expect(replicas(day)).To(Equal(2))
		}
		By("the offers becoming dearer than what is held")
		placed(day, "22", "a", "b")
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 40)}
		again(ctx)
		Expect(replicas(day)).To(Equal(2))
	})

	It("should not give up what is paid for after a restart, until the provisioner has looked", func() {
		keep()
		ExpectApplied(ctx, env.Client, node("a", true), node("b", true), node("c", true), node("d", true))
		placed(day, "10", "a", "b", "c", "d")
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 40)}
		again(ctx)
		Expect(replicas(day)).To(Equal(4))
		start()
		again(ctx)
		Expect(replicas(day)).To(Equal(4))
		condition("False", v1alpha1.ReasonFilling, "day: 4 of 4 ready: no more is asked for until the provisioner has looked at what is held, since maxPricePerHour is to cover both")
		placed(day, "10", "a", "b", "c", "d")
		again(ctx)
		Expect(replicas(day)).To(Equal(4))
		condition("False", v1alpha1.ReasonBudgetReached, "day: 4 of 4 ready: maxPricePerHour=45 does not cover the full amount; raise it, or hold less")
	})

	It("should tell that what is held costs more", func() {
		keep()
		ExpectApplied(ctx, env.Client, node("a", true), node("b", true))
		placed(day, "30", "a", "b")
		again(ctx)
		Expect(replicas(day)).To(Equal(2), "one that is held, and what the rest buys")
		condition("False", v1alpha1.ReasonBudgetReached, "day: 2 of 2 ready: the nodes that hold it cost $60.00 an hour, more than maxPricePerHour=45; raise it, hold less, or delete the NodeClaim of a node that is too dear")
	})

	It("should ask for all when the price is raised", func() {
		keep()
		spaces.Note(map[types.NamespacedName]provisioning.Space{})
		pool.Spec.Warm[0].MaxPricePerHour = lo.ToPtr("80")
		keep()
		Expect(replicas(day)).To(Equal(8))
	})
})

var _ = Describe("Images", func() {
	day := key(namespace, "inference.day")

	BeforeEach(func() {
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 3, func(w *v1alpha1.WarmCapacity) {
			w.Images, w.ImagePullSecrets = []string{image, "busybox"}, []string{"registry"}
		})}
		keep()
	})

	It("should be pulled to nodes with space before these count, verified or not", func() {
		ExpectApplied(ctx, env.Client, node("a", true), node("b", false))
		placed(day, "10", "a", "b")
		again(ctx)
		Expect(status("day").Ready).To(BeEquivalentTo(0))
		made := pullers()
		Expect(lo.Map(made, func(p corev1.Pod, _ int) string { return p.Spec.NodeName })).To(ConsistOf("a", "b"))
		for _, p := range made {
			Expect(p.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Node"), HaveField("Name", p.Spec.NodeName))))
			Expect(lo.Map(p.Spec.Containers, func(c corev1.Container, _ int) string { return c.Image })).To(Equal([]string{"busybox", image}))
			Expect(p.Spec.ImagePullSecrets).To(ConsistOf(corev1.LocalObjectReference{Name: "registry"}))
			Expect(p.Spec.Tolerations).To(ConsistOf(corev1.Toleration{Operator: corev1.TolerationOpExists}))
			pulls(p, started)
		}
		again(ctx)
		Expect(status("day")).To(And(HaveField("Ready", BeEquivalentTo(1)), HaveField("Provisioning", BeEquivalentTo(1))))
		Expect(pullers()).To(HaveLen(2), "they are what says so until the node lists the images")

		By("the node listing the images")
		a := ExpectExists(ctx, env.Client, node("a", true))
		a.Status.Images = []corev1.ContainerImage{{Names: []string{image}}, {Names: []string{"docker.io/library/busybox@sha256:0123", "docker.io/library/busybox:latest"}}}
		Expect(env.Client.Status().Update(ctx, a)).To(Succeed())
		again(ctx)
		Expect(status("day").Ready).To(BeEquivalentTo(1))
		Expect(lo.Map(pullers(), func(p corev1.Pod, _ int) string { return p.Spec.NodeName })).To(ConsistOf("b"))
	})

	It("should say that an image cannot be pulled", func() {
		ExpectApplied(ctx, env.Client, node("a", true))
		placed(day, "10", "a")
		again(ctx)
		pulls(pullers()[0], corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such manifest"}})
		again(ctx)
		Expect(status("day").Message).To(Equal("pulling registry.example.com/team/model:v3 fails (ImagePullBackOff: no such manifest); correct images or imagePullSecrets"))
	})

	It("should be pulled by a bounded number of nodes at a time, and the next have their turn when work has taken one", func() {
		pool.Spec.Warm[0].GPUs = lo.ToPtr[int32](14)
		keep()
		names := lo.Times(14, func(i int) string { return fmt.Sprintf("n%02d", i) })
		for _, n := range names {
			ExpectApplied(ctx, env.Client, node(n, true))
		}
		placed(day, "10", names...)
		again(ctx)
		Expect(pullers()).To(HaveLen(prepull.MaxParallel))
		placed(day, "10", names[4:]...)
		again(ctx)
		Expect(lo.Map(pullers(), func(p corev1.Pod, _ int) string { return p.Spec.NodeName })).To(ConsistOf(names[4:]))
	})

	It("should be pulled to the next nodes where they cannot be pulled to the first", func() {
		pool.Spec.Warm[0].GPUs = lo.ToPtr[int32](14)
		keep()
		names := lo.Times(14, func(i int) string { return fmt.Sprintf("n%02d", i) })
		for _, n := range names {
			ExpectApplied(ctx, env.Client, node(n, true))
		}
		placed(day, "10", names...)
		again(ctx)
		for _, p := range pullers() {
			pulls(p, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}})
		}
		again(ctx)
		Expect(pullers()).To(HaveLen(14))
	})

	It("should be pulled anew when the entry wants others", func() {
		ExpectApplied(ctx, env.Client, node("a", true))
		placed(day, "10", "a")
		again(ctx)
		before := pullers()[0].Name
		pool.Spec.Warm[0].Images = []string{"other:v1"}
		keep()
		again(ctx)
		Expect(pullers()).To(ConsistOf(HaveField("Name", Not(Equal(before)))))
		Expect(pullers()[0].Spec.Containers).To(ConsistOf(HaveField("Image", "other:v1")))
	})

	It("should replace a puller that the kubelet would not take, and not at once", func() {
		ExpectApplied(ctx, env.Client, node("a", true))
		placed(day, "10", "a")
		again(ctx)
		pod := pullers()[0]
		env.Clock.SetTime(pod.CreationTimestamp.Time)
		pod.Status.Phase = corev1.PodFailed
		pod.Status.Reason = "OutOfpods"
		Expect(env.Client.Status().Update(ctx, &pod)).To(Succeed())
		again(ctx)
		Expect(pullers()).To(ConsistOf(HaveField("UID", pod.UID)))
		env.Clock.Step(time.Minute)
		again(ctx)
		again(ctx)
		Expect(pullers()).To(ConsistOf(HaveField("UID", Not(Equal(pod.UID)))))
	})
})

var _ = Describe("A schedule", func() {
	day := key(namespace, "inference.day")

	// story walks minute by minute and notes when the number of virtual pods changes.
	story := func(from time.Time, minutes int) []string {
		GinkgoHelper()
		berlin := lo.Must(time.LoadLocation("Europe/Berlin"))
		env.Clock.SetTime(from)
		keep()
		last := replicas(day)
		out := []string{fmt.Sprintf("%d at first", last)}
		for next := from; env.Clock.Since(from) < time.Duration(minutes)*time.Minute; {
			// As the manager would: at the time that was asked for.
			next = next.Add(time.Minute)
			env.Clock.SetTime(next.Add(-time.Second))
			again(ctx) // steps by the second that is missing
			if now := replicas(day); now != last {
				out = append(out, fmt.Sprintf("%d from %s", now, env.Clock.Now().In(berlin).Format("Mon 15:04 MST")))
				last = now
			}
		}
		return out
	}

	It("should be followed to the minute, across the change to summer time", func() {
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8, func(w *v1alpha1.WarmCapacity) {
			w.Schedule = &v1alpha1.WarmSchedule{Windows: []v1alpha1.WarmWindow{
				window("0 0 * * *", 3*time.Hour, "Europe/Berlin", 50), window("30 2 * * *", 90*time.Minute, "Europe/Berlin", 100), window("0 4 * * *", time.Hour, "Europe/Berlin", 25),
			}}
		})}
		Expect(story(time.Date(2026, time.March, 28, 22, 50, 0, 0, time.UTC), 6*60)).To(Equal([]string{
			"0 at first", "4 from Sun 00:00 CET", "8 from Sun 03:00 CEST", "2 from Sun 04:30 CEST", "0 from Sun 05:00 CEST",
		}))
	})

	It("should be followed to the minute, across the change to winter time", func() {
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8, func(w *v1alpha1.WarmCapacity) {
			w.Schedule = &v1alpha1.WarmSchedule{Windows: []v1alpha1.WarmWindow{window("30 2 * * *", 10*time.Minute, "Europe/Berlin", 100), window("0 3 * * *", 5*time.Minute, "Europe/Berlin", 50)}}
		})}
		Expect(story(time.Date(2026, time.October, 25, 0, 20, 0, 0, time.UTC), 2*60)).To(Equal([]string{
			"0 at first", "8 from Sun 02:30 CEST", "0 from Sun 02:40 CEST", "4 from Sun 03:00 CET", "0 from Sun 03:05 CET",
		}))
	})

	It("should tell the next change, come back for it, and say what changed", func() {
		env.Clock.SetTime(time.Date(2026, time.March, 2, 6, 59, 50, 0, time.UTC))
		pool.Spec.Warm = []v1alpha1.WarmCapacity{entry("day", 8, func(w *v1alpha1.WarmCapacity) {
			w.Schedule = &v1alpha1.WarmSchedule{Windows: []v1alpha1.WarmWindow{window("0 7 * * *", 12*time.Hour, "UTC", 100)}}
		})}
		keep()
		Expect(status("day").NextChange.UTC()).To(Equal(time.Date(2026, time.March, 2, 7, 0, 0, 0, time.UTC)))
		condition("True", v1alpha1.ConditionTypeWarmCapacityReady, "")
		env.Clock.Step(time.Second)
		result, err := controller.Reconcile(ctx, pool.DeepCopy())
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(8 * time.Second))
		env.Clock.Step(result.RequeueAfter - time.Second)
		again(ctx)
		Expect(replicas(day)).To(Equal(8))
		Expect(recorder.DetectedEvent("warm entry day wants 8 in place of 0, until 2026-03-02T19:00:00Z")).To(BeTrue())
		Expect(recorder.Calls(warm.ReasonChanged)).To(Equal(1))
	})
})
