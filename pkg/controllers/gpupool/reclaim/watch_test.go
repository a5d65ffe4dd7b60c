package reclaim_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// running runs the controller in a manager for the time of a spec.
func running() {
	GinkgoHelper()
	m, err := controllerruntime.NewManager(env.Config, controllerruntime.Options{
		Scheme: env.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: lo.ToPtr(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	until, stop := context.WithCancel(ctx)
	Expect(m.GetFieldIndexer().IndexField(until, &corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
		return []string{o.(*corev1.Pod).Spec.NodeName}
	})).To(Succeed())
	start(m.GetClient())
	Expect(controller.Register(until, m)).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(until) }()
	Expect(m.GetCache().WaitForCacheSync(until)).To(BeTrue())
	DeferCleanup(func() {
		stop()
		Eventually(ended).WithTimeout(time.Minute).Should(Receive(Succeed()))
	})
}

var _ = Describe("Events", func() {
	It("should make rounds, and tell since when a node is empty", func() {
		claims, nodes := standing(1)
		pod := bound(nodes[0])
		running()
		Consistently(func() bool { return isTainted(nodes[0]) }).WithTimeout(time.Second).Should(BeFalse())

		By("the pod's end beginning the time")
		env.Clock.Step(time.Minute)
		ended(pod)
		status := func() string { s, _, _ := condition(); return s }
		Eventually(status).WithTimeout(10 * time.Second).Should(Equal("True"))
		Consistently(func() bool { return isTainted(nodes[0]) }).WithTimeout(2 * time.Second).Should(BeFalse())

		By("any event of a node making a round when the time is up")
		env.Clock.Step(30 * time.Second)
		touch(nodes[0])
		Eventually(func() bool { return isTainted(nodes[0]) }).WithTimeout(10 * time.Second).Should(BeTrue())
		env.Clock.Step(grace)
		Eventually(func() bool { return deleted(claims[0]) }).WithTimeout(20 * time.Second).Should(BeTrue())
	})

	It("should bring a pool that begins to reclaim its round", func() {
		gpuPool.Spec.Reclaim.EmptyAfter = nil
		ExpectApplied(ctx, env.Client, gpuPool)
		_, nodes := standing(1)
		running()
		gpuPool.Spec.Reclaim = v1alpha1.Reclaim{EmptyAfter: &metav1.Duration{}}
		resolve()
		ExpectApplied(ctx, env.Client, gpuPool)
		Eventually(func() bool { return isTainted(nodes[0]) }).WithTimeout(10 * time.Second).Should(BeTrue())
	})
})

// touch changes a label of a node.
func touch(node *corev1.Node) {
	GinkgoHelper()
	found := ExpectExists(ctx, direct, node)
	stored := found.DeepCopy()
	found.Labels["touched"] = "true"
	Expect(direct.Patch(ctx, found, client.MergeFrom(stored))).To(Succeed())
}
