package controllers_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/nodeconfig"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

var reconcileRequest reconcile.Request

func configMap(name string) map[string]string {
	GinkgoHelper()
	found := &corev1.ConfigMap{}
	Expect(direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)).To(Succeed())
	return found.Data
}

func layoutNames(instanceType string) []string {
	GinkgoHelper()
	pool, ok := store.Get(poolName)
	Expect(ok).To(BeTrue())
	shape, _ := catalog.Default().Shape(instanceType)
	return lo.Map(pool.MIG.Layouts(shape), func(l mig.NodeLayout, _ int) string { return l.Name() })
}

// pending asks for MIG partitions.
func pending(resourceName string) *corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse("1")}
	return coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{Requests: list, Limits: list}})
}

var _ = Describe("Membership", func() {
	It("should put the NodePools of a pool into the store, and know the others", func() {
		other := nodePool("other")
		other.Labels = nil
		lost := nodePool("lost")
		lost.Labels[v1alpha1.PoolLabelKey] = "nowhere"
		member := nodePool("member")
		ExpectApplied(ctx, env.Client, gpuPool(nil), member, other, lost)
		Expect(store.Evaluated(member)).To(BeFalse())
		resolve()

		pool, ok := store.ForNodePool("member")
		Expect(ok).To(BeTrue())
		Expect(pool.Name()).To(Equal(poolName))
		Expect(pool.NodePools).To(Equal([]string{"member"}))
		for _, n := range []*karpv1.NodePool{member, other, lost} {
			Expect(store.Evaluated(n)).To(BeTrue(), n.Name)
		}
		for _, name := range []string{"other", "lost"} {
			_, ok := store.ForNodePool(name)
			Expect(ok).To(BeFalse(), name)
		}

		By("forgetting a NodePool that leaves")
		member.Labels = nil
		ExpectApplied(ctx, env.Client, member)
		resolve()
		_, ok = store.ForNodePool("member")
		Expect(ok).To(BeFalse())
	})

	It("should leave the NodePools of an invalid pool to stock", func() {
		member := nodePool("member")
		ExpectApplied(ctx, env.Client, gpuPool(layouts("all-9g.1gb")), member)
		resolve()
		_, ok := store.ForNodePool("member")
		Expect(ok).To(BeFalse())
		Expect(store.Evaluated(member)).To(BeTrue())
	})

	It("should not change the generation while nothing changes", func() {
		ExpectApplied(ctx, env.Client, gpuPool(layouts("all-balanced")), nodePool("member"))
		resolve()
		before := store.Generation()
		resolve()
		Expect(store.Generation()).To(Equal(before))
	})

	It("should keep layouts that NodeClaims carry, and count their GPUs", func() {
		member := nodePool("member")
		claim, node := nodeOf(member, "p5.48xlarge", map[string]string{v1alpha1.LayoutLabelKey: "all-1g.10gb"})
		ExpectApplied(ctx, env.Client, gpuPool(layouts("all-balanced")), member, claim, node)
		resolve()
		pool, _ := store.Get(poolName)
		Expect(pool.MIG.Retired).To(Equal([]string{"all-1g.10gb"}))
		Expect(store.UsedGPUs("member")).To(Equal(8))
	})

	It("should plan layouts for the pods that wait, and publish them", func() {
		ExpectApplied(ctx, env.Client, gpuPool(profiles("1g.10gb", "3g.40gb")), nodePool("member"))
		resolve()
		uniform := layoutNames("p5.48xlarge")
		Expect(uniform).To(ContainElements("all-1g.10gb", "all-3g.40gb"))

		for range 14 {
			ExpectApplied(ctx, env.Client, pending("nvidia.com/mig-3g.40gb"))
		}
		for range 7 {
			ExpectApplied(ctx, env.Client, pending("nvidia.com/mig-1g.10gb"))
		}
		resolve()
		planned, _ := lo.Difference(layoutNames("p5.48xlarge"), uniform)
		Expect(planned).To(HaveLen(1))
		Expect(configMap(nodeconfig.LayoutsName)[nodeconfig.LayoutsKey]).To(ContainSubstring(planned[0]))
		Expect(layoutNames("p5.4xlarge")).NotTo(ContainElement(planned[0]), "it is for eight GPUs")

		By("dropping it with the demand, unless a node carries it")
		var waiting corev1.PodList
		Expect(env.Client.List(ctx, &waiting)).To(Succeed())
		for i := range waiting.Items {
			ExpectDeleted(ctx, env.Client, &waiting.Items[i])
		}
		claim, node := nodeOf(nodePool("member"), "p5.48xlarge", map[string]string{v1alpha1.LayoutLabelKey: planned[0]})
		ExpectApplied(ctx, env.Client, claim, node)
		resolve()
		Expect(layoutNames("p5.48xlarge")).To(ContainElement(planned[0]))
		ExpectDeleted(ctx, env.Client, claim, node)
		resolve()
		Expect(layoutNames("p5.48xlarge")).To(Equal(uniform))
	})

	It("should keep what nodes read for as long as they do", func() {
		member := nodePool("member")
		claim, node := nodeOf(member, "p5.48xlarge", map[string]string{v1alpha1.LayoutLabelKey: "mine", v1alpha1.DevicePluginConfigLabelKey: "time-slicing-2"})
		ExpectApplied(ctx, env.Client, gpuPool(layouts("all-balanced")), member, claim, node)
		ours := map[string]string{"app.kubernetes.io/managed-by": "karpenter-gpu"}
		Expect(direct.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nodeconfig.LayoutsName, Labels: ours},
			Data: map[string]string{nodeconfig.LayoutsKey: "version: v1\nmig-configs:\n  mine: [{devices: all, mig-enabled: true, mig-devices: {7g.80gb: 1}}]\n  old: []\n"}})).To(Succeed())
		Expect(direct.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nodeconfig.PluginName, Labels: ours},
			Data: map[string]string{"time-slicing-2": "x", "time-slicing-3": "y"}})).To(Succeed())
		resolve()
		text := configMap(nodeconfig.LayoutsName)[nodeconfig.LayoutsKey]
		Expect(text).To(And(ContainSubstring("mine:"), ContainSubstring("7g.80gb"), ContainSubstring("all-balanced"), Not(ContainSubstring("old"))))
		Expect(configMap(nodeconfig.PluginName)).To(Equal(map[string]string{"default": "version: v1\n", "time-slicing-2": "x"}))
	})

	It("should publish sharing beside a configuration that shares nothing", func() {
		ExpectApplied(ctx, env.Client, gpuPool(slicing(4)), nodePool("member"))
		resolve()
		data := configMap(nodeconfig.PluginName)
		Expect(lo.Keys(data)).To(ConsistOf("default", "time-slicing-4"))
		Expect(data["time-slicing-4"]).To(ContainSubstring("replicas: 4"))
	})

	It("should publish nothing where no pool needs it", func() {
		ExpectApplied(ctx, env.Client, gpuPool(nil), nodePool("member"))
		resolve()
		var list corev1.ConfigMapList
		Expect(direct.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
		Expect(lo.Map(list.Items, func(c corev1.ConfigMap, _ int) string { return c.Name })).NotTo(ContainElement(HavePrefix("karpenter-gpu")))
	})

	It("should leave a ConfigMap alone that is not ours, say so, and resolve the pool", func() {
		ExpectApplied(ctx, env.Client, gpuPool(slicing(4)), nodePool("member"))
		Expect(direct.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nodeconfig.PluginName}, Data: map[string]string{"a": "b"}})).To(Succeed())
		resolve()
		Expect(configMap(nodeconfig.PluginName)).To(Equal(map[string]string{"a": "b"}))
		Expect(recorder.DetectedEvent("Nodes that start now may not find their layout or sharing configuration: configmap gpu-operator/karpenter-gpu-device-plugin exists and is not ours; label it app.kubernetes.io/managed-by=karpenter-gpu to hand it over, or delete it")).To(BeTrue())
		_, ok := store.Get(poolName)
		Expect(ok).To(BeTrue())
	})

	It("should say that the namespace of the GPU Operator is missing", func() {
		build("nowhere")
		ExpectApplied(ctx, env.Client, gpuPool(layouts("all-balanced")), nodePool("member"))
		resolve()
		Expect(recorder.Events()).To(ContainElement(HaveField("Message", ContainSubstring("the namespace does not exist; install the GPU Operator there, or set --gpu-operator-namespace"))))
	})
})

func selectingPod(key string, op corev1.NodeSelectorOperator, values ...string) func() *corev1.Pod {
	return func() *corev1.Pod {
		list := corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("1")}
		return coretest.UnschedulablePod(coretest.PodOptions{
			ResourceRequirements: corev1.ResourceRequirements{Requests: list, Limits: list},
			NodeRequirements:     []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}},
		})
	}
}
