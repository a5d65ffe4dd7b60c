package controlplane_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

func gpuNode(name string, gpus int64) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("192"),
		corev1.ResourceMemory: resource.MustParse("2Ti"),
		corev1.ResourcePods:   resource.MustParse("250"),
		gpu:                   *resource.NewQuantity(gpus, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{corev1.LabelHostname: name},
			Annotations: map[string]string{controlplane.NodeAnnotation: controlplane.NodeAnnotationValue},
		},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			NodeInfo:    corev1.NodeSystemInfo{KernelVersion: "6.12", BootID: "boot-1", KubeletVersion: "v1.37.2"},
			Conditions: []corev1.NodeCondition{{
				Type: "karpenter-gpu.dev/GPUReady", Status: corev1.ConditionFalse, Reason: "DriverMissing",
			}},
		},
	}
}

func gpuJob(name string, pods int32, runFor string) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: batchv1.JobSpec{
			Parallelism:  ptr.To(pods),
			Completions:  ptr.To(pods),
			BackoffLimit: ptr.To[int32](0),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				InitContainers: []corev1.Container{
					{Name: "fetch", Image: "none"},
					{Name: "sidecar", Image: "none", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
				},
				Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{gpu: resource.MustParse("1")},
				}}},
			}},
		},
	}
	if runFor != "" {
		job.Spec.Template.Annotations = map[string]string{controlplane.RunForAnnotation: runFor}
	}
	return job
}

// stopwatch starts to run; its result tells the time since then. Real programs keep real time.
func stopwatch() func() time.Duration {
	began := clock.RealClock{}.Now()
	return func() time.Duration { return clock.RealClock{}.Since(began).Round(time.Millisecond) }
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

var _ = Describe("The whole stack", Ordered, func() {
	var cp *controlplane.ControlPlane
	var api client.Client

	BeforeAll(func(ctx SpecContext) {
		took := stopwatch()
		var err error
		cp, err = controlplane.Start(ctx, controlplane.Options{
			Dir:                    GinkgoT().TempDir(),
			NodeMonitorGracePeriod: 5 * time.Second,
		})
		Expect(err).ToNot(HaveOccurred())
		AddReportEntry("start", took())
		api = connect(cp.RESTConfig())
		DeferCleanup(func(ctx SpecContext) {
			pids := pidsOf(cp)
			Expect(pids).To(HaveLen(5))
			took := stopwatch()
			Expect(cp.Stop(ctx)).To(Succeed())
			AddReportEntry("stop", took())
			for _, c := range controlplane.AllComponents() {
				Expect(alive(cp.Process(c).Pid())).To(BeFalse(), "%s", c)
			}
			Expect(refused(address(cp))).To(BeTrue())
		})
	})

	JustAfterEach(func(ctx SpecContext) {
		if !CurrentSpecReport().Failed() || cp == nil {
			return
		}
		for _, c := range controlplane.AllComponents() {
			AddReportEntry(string(c), strings.Join(cp.Process(c).LogTail(40), "\n"))
		}
		leases := &coordinationv1.LeaseList{}
		Expect(api.List(ctx, leases, client.InNamespace(corev1.NamespaceNodeLease))).To(Succeed())
		AddReportEntry("leases", leases.Items)
	})

	nodeReady := func(ctx SpecContext, name string) func() corev1.ConditionStatus {
		return func() corev1.ConditionStatus {
			node := &corev1.Node{}
			if err := api.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
				return corev1.ConditionStatus(err.Error())
			}
			return condition(node, corev1.NodeReady).Status
		}
	}
	phases := func(ctx SpecContext, job string) func() map[corev1.PodPhase]int {
		return func() map[corev1.PodPhase]int {
			pods := &corev1.PodList{}
			if err := api.List(ctx, pods, client.MatchingLabels{batchv1.JobNameLabel: job}); err != nil {
				return nil
			}
			count := map[corev1.PodPhase]int{}
			for _, pod := range pods.Items {
				count[pod.Status.Phase]++
			}
			return count
		}
	}
	completed := func(ctx SpecContext, job string) func() int32 {
		return func() int32 {
			found := &batchv1.Job{}
			if err := api.Get(ctx, client.ObjectKey{Namespace: "default", Name: job}, found); err != nil {
				return -1
			}
			return found.Status.Succeeded
		}
	}
	remove := func(ctx SpecContext, job *batchv1.Job) {
		GinkgoHelper()
		Expect(api.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(phases(ctx, job.Name)).Should(BeEmpty())
	}

	It("should make a node Ready and leave the rest of its status alone", func(ctx SpecContext) {
		Expect(api.Create(ctx, gpuNode("gpu-1", 64))).To(Succeed())
		Eventually(nodeReady(ctx, "gpu-1")).Should(Equal(corev1.ConditionTrue))
		node := &corev1.Node{}
		Expect(api.Get(ctx, client.ObjectKey{Name: "gpu-1"}, node)).To(Succeed())
		want := gpuNode("gpu-1", 64).Status
		Expect(node.Status.Capacity).To(BeComparableTo(want.Capacity))
		Expect(node.Status.Allocatable).To(BeComparableTo(want.Allocatable))
		Expect(node.Status.NodeInfo).To(Equal(want.NodeInfo))
		Expect(condition(node, "karpenter-gpu.dev/GPUReady").Reason).To(Equal("DriverMissing"))
		Expect(condition(node, corev1.NodeMemoryPressure).Status).To(Equal(corev1.ConditionFalse))
		Expect(node.Status.Addresses).To(ConsistOf(
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: "gpu-1"},
		))
	})

	It("should leave a node without the annotation to others", func(ctx SpecContext) {
		node := gpuNode("stranger", 8)
		node.Annotations = nil
		Expect(api.Create(ctx, node)).To(Succeed())
		Consistently(nodeReady(ctx, "stranger"), "1s").ShouldNot(Equal(corev1.ConditionTrue))
		Expect(api.Delete(ctx, node)).To(Succeed())
	})

	It("should run 50 GPU pods that run on", func(ctx SpecContext) {
		job := gpuJob("endless", 50, "")
		took := stopwatch()
		Expect(api.Create(ctx, job)).To(Succeed())
		Eventually(phases(ctx, job.Name)).Should(Equal(map[corev1.PodPhase]int{corev1.PodRunning: 50}))
		AddReportEntry("50 pods running", took())
		pods := &corev1.PodList{}
		Expect(api.List(ctx, pods, client.MatchingLabels{batchv1.JobNameLabel: job.Name})).To(Succeed())
		addresses := map[string]bool{}
		for _, pod := range pods.Items {
			addresses[pod.Status.PodIP] = true
			Expect(pod.Status.InitContainerStatuses[0].State.Terminated).ToNot(BeNil())
			Expect(pod.Status.InitContainerStatuses[1].State.Running).ToNot(BeNil())
			Expect(pod.Status.ContainerStatuses[0].Ready).To(BeTrue())
		}
		Expect(addresses).To(HaveLen(50))
		Consistently(phases(ctx, job.Name), "1s").Should(Equal(map[corev1.PodPhase]int{corev1.PodRunning: 50}))

		By("going promptly when they are deleted")
		remove(ctx, job)
	})

	It("should end pods after their run time, whatever else changes them", func(ctx SpecContext) {
		job := gpuJob("short", 10, "3s")
		took := stopwatch()
		Expect(api.Create(ctx, job)).To(Succeed())
		Eventually(phases(ctx, job.Name)).Should(Equal(map[corev1.PodPhase]int{corev1.PodRunning: 10}))
		pods := &corev1.PodList{}
		for change := range 2 {
			Expect(api.List(ctx, pods, client.MatchingLabels{batchv1.JobNameLabel: job.Name})).To(Succeed())
			for i := range pods.Items {
				patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, change))
				Expect(client.IgnoreNotFound(api.Patch(ctx, &pods.Items[i], patch))).To(Succeed())
			}
		}
		Eventually(completed(ctx, job.Name)).Should(BeEquivalentTo(10))
		Expect(took()).To(And(BeNumerically(">", 2*time.Second), BeNumerically("<", 20*time.Second)))
		Expect(api.List(ctx, pods, client.MatchingLabels{batchv1.JobNameLabel: job.Name})).To(Succeed())
		for _, pod := range pods.Items {
			terminated := pod.Status.ContainerStatuses[0].State.Terminated
			Expect(terminated.ExitCode).To(BeZero())
			Expect(terminated.FinishedAt.Sub(terminated.StartedAt.Time)).To(BeNumerically("~", 3*time.Second, time.Second), "%s", pod.Name)
		}
		remove(ctx, job)
	})

	It("should run on where the run time does not parse", func(ctx SpecContext) {
		job := gpuJob("unparsed", 1, "soon")
		Expect(api.Create(ctx, job)).To(Succeed())
		Eventually(phases(ctx, job.Name)).Should(Equal(map[corev1.PodPhase]int{corev1.PodRunning: 1}))
		Consistently(phases(ctx, job.Name), "1s").Should(Equal(map[corev1.PodPhase]int{corev1.PodRunning: 1}))
		remove(ctx, job)
	})

	It("should go on after each component restarts", func(ctx SpecContext) {
		for i, c := range controlplane.AllComponents() {
			By(string(c))
			old := cp.Process(c).Pid()
			Expect(cp.Restart(ctx, c)).To(Succeed())
			Expect(cp.Process(c).Pid()).ToNot(Equal(old))
			Expect(alive(old)).To(BeFalse())
			job := gpuJob(fmt.Sprintf("after-%d", i), 3, "1s")
			Expect(api.Create(ctx, job)).To(Succeed())
			Eventually(completed(ctx, job.Name)).Should(BeEquivalentTo(3))
			remove(ctx, job)
		}
	})

	It("should play the death of a machine, also across a restart of KWOK, and its return", func(ctx SpecContext) {
		job := gpuJob("stranded", 2, "4s")
		Expect(api.Create(ctx, job)).To(Succeed())
		Eventually(phases(ctx, job.Name)).Should(Equal(map[corev1.PodPhase]int{corev1.PodRunning: 2}))
		took := stopwatch()
		Expect(controlplane.SetNodeDown(ctx, api, "gpu-1")).To(Succeed())
		Expect(controlplane.SetNodeDown(ctx, api, "gpu-1")).To(Succeed())
		Eventually(nodeReady(ctx, "gpu-1")).Should(Equal(corev1.ConditionUnknown))
		Expect(took()).To(And(BeNumerically(">", 2*time.Second), BeNumerically("<", 15*time.Second)))

		Expect(cp.Restart(ctx, controlplane.KWOK)).To(Succeed())
		pods := &corev1.PodList{}
		Expect(api.List(ctx, pods, client.MatchingLabels{batchv1.JobNameLabel: job.Name})).To(Succeed())
		Expect(api.Delete(ctx, &pods.Items[0])).To(Succeed())
		Consistently(nodeReady(ctx, "gpu-1"), "3s").Should(Equal(corev1.ConditionUnknown))
		Expect(phases(ctx, job.Name)()).To(HaveKeyWithValue(corev1.PodRunning, 2), "a dead kubelet ends no pod")

		Expect(controlplane.SetNodeUp(ctx, api, "gpu-1")).To(Succeed())
		Eventually(nodeReady(ctx, "gpu-1")).Should(Equal(corev1.ConditionTrue))
		Eventually(func() bool {
			return apierrors.IsNotFound(api.Get(ctx, client.ObjectKeyFromObject(&pods.Items[0]), &corev1.Pod{}))
		}).Should(BeTrue())
		Consistently(nodeReady(ctx, "gpu-1"), "7s").Should(Equal(corev1.ConditionTrue), "the lease is renewed again")
		remove(ctx, job)
	})

	It("should take a node down whose lease KWOK has not made yet", func(ctx SpecContext) {
		node := gpuNode("still-born", 8)
		node.Annotations[controlplane.DownAnnotation] = "true"
		Expect(api.Create(ctx, node)).To(Succeed())
		Expect(controlplane.SetNodeDown(ctx, api, node.Name)).To(Succeed())
		Consistently(nodeReady(ctx, node.Name), "2s").ShouldNot(Equal(corev1.ConditionTrue))
		Expect(api.Delete(ctx, node)).To(Succeed())
		Expect(controlplane.SetNodeDown(ctx, api, "never-was")).To(MatchError(And(
			HavePrefix("taking node never-was down, "), ContainSubstring(`nodes "never-was" not found`))))
	})
})
