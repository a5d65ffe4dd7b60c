package provisioning_test

import (
	"context"
	"errors"

	"github.com/awslabs/operatorpkg/controller"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

var _ = Describe("Warm entries", func() {
	var on context.Context
	var spaces *provisioning.Spaces

	BeforeEach(func() {
		on = options.ToContext(ctx, coretest.Options(coretest.OptionsFields{FeatureGates: coretest.FeatureGates{CapacityBuffer: lo.ToPtr(true)}}))
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 1), gpuType("gpu8", 8, 16)}
		spaces = provisioning.NewSpaces()
		ours = provisioning.NewProvisioner(inner, &provisioning.RightSizer{Client: env.Client, Cluster: cluster, Clock: env.Clock, Ledger: ledger, Spaces: spaces}, recorder, nil)
	})

	AfterEach(func() {
		Expect(env.Client.DeleteAllOf(ctx, &autoscalingv1beta1.CapacityBuffer{}, client.InNamespace("default"))).To(Succeed())
		Expect(env.Client.DeleteAllOf(ctx, &corev1.PodTemplate{}, client.InNamespace("default"))).To(Succeed())
	})

	// hold makes the buffer of an entry, and waits for its virtual pods.
	hold := func(entry string, pods int32) types.NamespacedName {
		GinkgoHelper()
		list := corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("1")}
		template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: entry, Namespace: "default"}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.PoolLabelKey: poolName, v1alpha1.WarmLabelKey: entry}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "hold", Image: "pause", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}},
		}}
		buffer := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Name: entry, Namespace: "default"},
			Spec: autoscalingv1beta1.CapacityBufferSpec{PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: entry}, Replicas: &pods}}
		apply(nil, template, buffer)
		_, err := capacitybuffer.NewController(env.Client, ours, virtual).Reconcile(on, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(buffer)})
		Expect(err).NotTo(HaveOccurred())
		return client.ObjectKeyFromObject(buffer)
	}
	warm := func(change ...func(*v1alpha1.WarmCapacity)) *v1alpha1.GPUPool {
		return gpuPool(func(s *v1alpha1.GPUPoolSpec) {
			s.Warm = []v1alpha1.WarmCapacity{{Name: "day", GPUs: lo.ToPtr[int32](8)}}
			for _, c := range change {
				c(&s.Warm[0])
			}
		})
	}
	price := func(s string) func(*v1alpha1.WarmCapacity) {
		return func(w *v1alpha1.WarmCapacity) { w.MaxPricePerHour = &s }
	}
	round := func() scheduler.Results {
		GinkgoHelper()
		results, err := ours.Provision(on)
		Expect(err).NotTo(HaveOccurred())
		return results
	}
	space := func(key types.NamespacedName) provisioning.Space {
		GinkgoHelper()
		out, ok := spaces.Of(key)
		Expect(ok).To(BeTrue())
		return out
	}
	// deploy launches what a round decided.
	deploy := func(results scheduler.Results) []*corev1.Node {
		GinkgoHelper()
		var nodes []*corev1.Node
		for _, c := range results.NewNodeClaims {
			name, err := ours.Create(ctx, c)
			Expect(err).NotTo(HaveOccurred())
			_, node := ExpectNodeClaimDeployedAndStateUpdated(ctx, env.Client, cluster, guarded, ExpectExists(ctx, env.Client, &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}))
			nodes = append(nodes, node)
		}
		return nodes
	}

	It("should tell where the space stands, what it costs, and when that changes", func() {
		apply(nil, warm(), nodePool())
		key := hold("day", 3)
		_, ok := spaces.Of(key)
		Expect(ok).To(BeFalse(), "no round has been")
		results := round()
		Expect(space(key)).To(Equal(provisioning.Space{Launching: 3}))
		Expect(spaces.Changes()).To(Receive())

		nodes := deploy(results)
		round()
		Expect(space(key).Launching).To(BeZero())
		Expect(space(key).Nodes).To(HaveLen(3))
		for _, n := range space(key).Nodes {
			Expect(n).To(And(HaveField("Pods", 1), HaveField("Room", 0), HaveField("GPUs", 1.0), HaveField("Price", v1alpha1.PriceFromFloat(1))))
			Expect(spaces.On(n.Node)).To(BeTrue())
		}
		Expect(spaces.Changes()).To(Receive())
		round()
		Expect(spaces.Changes()).NotTo(Receive(), "nothing has changed")

		By("work taking a part of it, for which the rest is bought")
		pod := gpuPods(1, 1)[0]
		ExpectApplied(ctx, env.Client, pod)
		ExpectManualBinding(ctx, env.Client, pod, nodes[0])
		Expect(cluster.UpdatePod(ctx, ExpectExists(ctx, env.Client, pod))).To(Succeed())
		round()
		Expect(space(key)).To(And(HaveField("Launching", 1), HaveField("Nodes", HaveLen(2))))
		Expect(spaces.On(nodes[0].Name)).To(BeFalse())
	})

	It("should share the price of a node among those that use it", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu8", 8, 16)}
		apply(nil, warm(), nodePool())
		key := hold("day", 3)
		node := deploy(round())[0]
		round()
		Expect(space(key).Nodes).To(ConsistOf(And(HaveField("Pods", 3), HaveField("Room", 5), HaveField("Price", v1alpha1.PriceFromFloat(16)), HaveField("GPUs", 3.0))))
		pod := gpuPods(1, 1)[0]
		ExpectApplied(ctx, env.Client, pod)
		ExpectManualBinding(ctx, env.Client, pod, node)
		Expect(cluster.UpdatePod(ctx, ExpectExists(ctx, env.Client, pod))).To(Succeed())
		round()
		Expect(space(key).Nodes).To(ConsistOf(And(HaveField("Pods", 3), HaveField("Room", 4), HaveField("Price", v1alpha1.PriceFromFloat(12)))))
	})

	It("should refuse launches that would pass the price of the entry, and say so", func() {
		apply(nil, warm(price("3")), nodePool())
		key := hold("day", 5)
		results := round()
		Expect(shapes(results.NewNodeClaims)).To(Equal([]string{"gpu1=1", "gpu1=1", "gpu1=1"}))
		s := space(key)
		Expect(s).To(And(HaveField("Launching", 3), HaveField("Waiting", 2)))
		Expect(s.Why).To(MatchError("the warm entry day spends $3.00 of maxPricePerHour=3, and the cheapest launch for it, gpu1 (on-demand), costs $1.00; raise maxPricePerHour, or hold less"))

		By("what is held counting in the next round")
		deploy(results)
		Expect(round().NewNodeClaims).To(BeEmpty())
		Expect(space(key)).To(And(HaveField("Waiting", 2), HaveField("Nodes", HaveLen(3))))
	})

	It("should not launch a dearer type than is left for the entry", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{
			gpuType("gpu1", 1, 5, offer("spot", zones[0], 1), offer("on-demand", zones[0], 5)), gpuType("gpu1b", 1, 2, offer("spot", zones[0], 1.05), offer("on-demand", zones[0], 5))}
		apply(nil, warm(price("1")), nodePool())
		hold("day", 1)
		results := round()
		Expect(results.NewNodeClaims).To(HaveLen(1))
		Expect(typesOf(results.NewNodeClaims[0])).To(Equal([]string{"gpu1"}))
		Expect(results.NewNodeClaims[0].Requirements.Get(karpv1.CapacityTypeLabelKey).Values()).To(ConsistOf("spot"))
	})

	It("should launch for work whatever the price of an entry", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu8", 8, 16)}
		apply(gpuPods(6, 1), warm(price("1")), nodePool())
		hold("day", 2)
		Expect(shapes(round().NewNodeClaims)).To(Equal([]string{"gpu8=8"}))
	})

	It("should try the capacity types of an entry in its order, and those of work in the pool's", func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 2, offer("spot", zones[0], 1), offer("on-demand", zones[0], 2))}
		tiers := func(results scheduler.Results) map[string][]string {
			out := map[string][]string{}
			for _, c := range results.NewNodeClaims {
				kind := lo.Ternary(stock.IsVirtualPod(c.Pods[0]), "warm", "work")
				out[kind] = lo.Uniq(append(out[kind], c.Requirements.Get(karpv1.CapacityTypeLabelKey).Values()...))
			}
			return out
		}
		apply(gpuPods(2, 1), warm(func(w *v1alpha1.WarmCapacity) {
			w.CapacityTypes = []v1alpha1.CapacityType{v1alpha1.CapacityTypeOnDemand, v1alpha1.CapacityTypeSpot}
		}), nodePool())
		hold("day", 2)
		got := tiers(round())
		Expect(got["warm"]).To(Equal([]string{"on-demand"}))
		Expect(got["work"]).NotTo(Equal([]string{"on-demand"}))
	})

	It("should count buffers that a limit of the pool holds back among those that wait", func() {
		apply(nil, gpuPool(func(s *v1alpha1.GPUPoolSpec) { s.Limits.GPUs = lo.ToPtr[int32](2) }), nodePool())
		key := hold("day", 3)
		round()
		Expect(space(key)).To(And(HaveField("Launching", 2), HaveField("Waiting", 1)))
		var refusal provisioning.Refusal
		Expect(errors.As(space(key).Why, &refusal)).To(BeTrue())
		Expect(refusal.Kind).To(Equal(provisioning.RefusedGPULimit))
	})

	It("should note nothing while buffers are off", func() {
		apply(nil, warm(), nodePool())
		_, err := ours.Provision(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, ok := spaces.Of(types.NamespacedName{})
		Expect(ok).To(BeFalse())
	})

	It("should make up at once for a node that is fenced, and for none that is not verified yet", func() {
		d := dependencies()
		d.Spaces = spaces
		all := lo.Must(provisioning.Replace(on, []controller.Controller{inner, stock.NewPodController(env.Client, inner, cluster), stock.NewNodeController(env.Client, inner)}, d))
		ours, trigger := all[0].(*provisioning.Provisioner), all[2].(*provisioning.NodeTrigger)
		apply(nil, warm(), nodePool())
		hold("day", 1)
		spaces.Note(map[types.NamespacedName]provisioning.Space{{Name: "day"}: {Nodes: []provisioning.HeldNode{{Node: "held"}}}})
		node := func(name, initialized string, taints ...corev1.Taint) *corev1.Node {
			return coretest.Node(coretest.NodeOptions{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{karpv1.NodeInitializedLabelKey: initialized}}, Taints: taints})
		}
		for _, n := range []*corev1.Node{node("held", "true"), node("held", "", v1alpha1.UnverifiedTaint()), node("elsewhere", "true", v1alpha1.UnverifiedTaint())} {
			Expect(trigger.Reconcile(on, n)).To(Equal(reconcile.Result{}))
		}
		Expect(reconcileBatch(on, ours)).To(Succeed())
		Expect(ExpectNodeClaims(ctx, env.Client)).To(BeEmpty())
		Expect(trigger.Reconcile(on, node("held", "true", v1alpha1.UnverifiedTaint()))).To(Equal(reconcile.Result{}))
		Expect(reconcileBatch(on, ours)).To(Succeed())
		Expect(ExpectNodeClaims(ctx, env.Client)).To(HaveLen(1))
	})

	It("should look again as soon as a node comes that was launched for space", func() {
		d := dependencies()
		d.Spaces = spaces
		all := lo.Must(provisioning.Replace(on, []controller.Controller{inner, stock.NewPodController(env.Client, inner, cluster), stock.NewNodeController(env.Client, inner)}, d))
		ours, trigger := all[0].(*provisioning.Provisioner), all[2].(*provisioning.NodeTrigger)
		apply(nil, warm(), nodePool())
		key := hold("day", 2)
		deploy(round())
		registered := func(value string, owners ...metav1.OwnerReference) *corev1.Node {
			return coretest.Node(coretest.NodeOptions{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{karpv1.NodeRegisteredLabelKey: value}, OwnerReferences: owners}})
		}
		Expect(trigger.Reconcile(on, registered(""))).To(Equal(reconcile.Result{}))
		Expect(reconcileBatch(on, ours)).To(Succeed())
		Expect(space(key).Nodes).To(BeEmpty(), "nothing has come")
		Expect(trigger.Reconcile(on, registered("true"))).To(Equal(reconcile.Result{}))
		Expect(reconcileBatch(on, ours)).To(Succeed())
		Expect(space(key).Nodes).To(HaveLen(2))

		By("a round having known a node by its NodeClaim alone")
		claim := func(name string) metav1.OwnerReference {
			return metav1.OwnerReference{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: name, UID: "u"}
		}
		spaces.Note(map[types.NamespacedName]provisioning.Space{key: {Nodes: []provisioning.HeldNode{{NodeClaim: "coming"}}}})
		Expect(spaces.Awaits(registered("true", claim("other")))).To(BeFalse())
		Expect(spaces.Awaits(registered("", claim("coming")))).To(BeFalse())
		Expect(spaces.Awaits(registered("true", claim("coming")))).To(BeTrue())
	})

	It("should refill at once when a pod takes space, and only then", func() {
		d := dependencies()
		d.Spaces = spaces
		all := lo.Must(provisioning.Replace(on, []controller.Controller{inner, stock.NewPodController(env.Client, inner, cluster), stock.NewNodeController(env.Client, inner)}, d))
		ours, trigger := all[0].(*provisioning.Provisioner), all[5].(*provisioning.UseTrigger)
		apply(nil, warm(), nodePool())
		hold("day", 1)
		spaces.Note(map[types.NamespacedName]provisioning.Space{{Name: "day"}: {Nodes: []provisioning.HeldNode{{Node: "held"}}}})
		ignored := []*corev1.Pod{
			coretest.Pod(coretest.PodOptions{NodeName: "elsewhere"}),
			coretest.Pod(coretest.PodOptions{NodeName: "held", Phase: corev1.PodSucceeded}),
			coretest.Pod(coretest.PodOptions{NodeName: "held", ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d"}}}}),
			coretest.Pod(coretest.PodOptions{NodeName: "held", ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "held", UID: "n"}}}}),
		}
		for _, pod := range ignored {
			Expect(trigger.Reconcile(on, pod)).To(Equal(reconcile.Result{}))
		}
		Expect(reconcileBatch(on, ours)).To(Succeed())
		Expect(ExpectNodeClaims(ctx, env.Client)).To(BeEmpty())
		Expect(trigger.Reconcile(on, coretest.Pod(coretest.PodOptions{NodeName: "held"}))).To(Equal(reconcile.Result{}))
		Expect(reconcileBatch(on, ours)).To(Succeed())
		Expect(ExpectNodeClaims(ctx, env.Client)).To(HaveLen(1))
	})
})
