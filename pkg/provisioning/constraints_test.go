package provisioning_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"
)

var app = map[string]string{"app": "serve"}

func selector() *metav1.LabelSelector { return &metav1.LabelSelector{MatchLabels: app} }

func spread(key string) coretest.PodOptions {
	return coretest.PodOptions{ObjectMeta: metav1.ObjectMeta{Labels: app}, TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector()}}}
}

// zonesOf counts pods by the zone that their claim is held to.
func zonesOf(claims []*scheduler.NodeClaim) map[string]int {
	out := map[string]int{}
	for _, c := range claims {
		zone := c.Requirements.Get(corev1.LabelTopologyZone)
		Expect(zone.Len()).To(Equal(1))
		out[zone.Any()] += len(c.Pods)
	}
	return out
}

var _ = Describe("Constraints between pods", func() {
	BeforeEach(func() {
		cloud.InstanceTypes = []*cloudprovider.InstanceType{gpuType("gpu1", 1, 1), gpuType("gpu4", 4, 3.5), gpuType("gpu8", 8, 16)}
		apply(nil, gpuPool(nil), nodePool())
	})

	It("should spread over zones as stock does, for less", func() {
		apply(gpuPods(9, 1, spread(corev1.LabelTopologyZone)))
		before := lo.Must(inner.Schedule(ctx)).NewNodeClaims
		after := decide().NewNodeClaims
		Expect(zonesOf(after)).To(Equal(map[string]int{zones[0]: 3, zones[1]: 3, zones[2]: 3}))
		Expect(price(after)).To(BeNumerically("<", price(before)))
		launch(scheduler.Results{NewNodeClaims: after})
		ExpectSkew(ctx, env.Client, "default", &spread(corev1.LabelTopologyZone).TopologySpreadConstraints[0]).To(ConsistOf(3, 3, 3))
	})

	It("should count pods that run already", func() {
		apply(gpuPods(2, 1, spread(corev1.LabelTopologyZone)))
		launch(decide())
		apply(gpuPods(4, 1, spread(corev1.LabelTopologyZone)))
		launch(decide())
		ExpectSkew(ctx, env.Client, "default", &spread(corev1.LabelTopologyZone).TopologySpreadConstraints[0]).To(ConsistOf(2, 2, 2))
	})

	It("should keep pods apart that must not share a node", func() {
		anti := coretest.PodOptions{ObjectMeta: metav1.ObjectMeta{Labels: app}, PodAntiRequirements: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: selector()}}}
		apart, others := gpuPods(3, 1, anti), gpuPods(5, 1)
		apply(append(apart, others...))
		before := lo.Must(inner.Schedule(ctx)).NewNodeClaims
		after := decide().NewNodeClaims
		Expect(placed(after)).To(Equal(names(append(apart, others...))))
		Expect(price(after)).To(BeNumerically("<", price(before)))
		for _, c := range after {
			Expect(lo.CountBy(c.Pods, func(p *corev1.Pod) bool { return p.Labels["app"] == "serve" })).To(BeNumerically("<=", 1))
		}
	})

	It("should spread over nodes", func() {
		apply(gpuPods(6, 1, spread(corev1.LabelHostname)))
		after := decide().NewNodeClaims
		Expect(after).To(HaveLen(6))
		Expect(shapes(after)).To(HaveEach("gpu1=1"))
	})

	It("should keep pods together that must share a zone", func() {
		together := coretest.PodOptions{ObjectMeta: metav1.ObjectMeta{Labels: app}, PodRequirements: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelTopologyZone, LabelSelector: selector()}}}
		pods := gpuPods(10, 1, together)
		apply(pods)
		before := lo.Must(inner.Schedule(ctx)).NewNodeClaims
		after := decide().NewNodeClaims
		Expect(placed(after)).To(Equal(placed(before)))
		Expect(zonesOf(after)).To(HaveLen(1))
		Expect(price(after)).To(BeNumerically("<=", price(before)))
	})

	It("should keep pods together that must share a node, as stock put them", func() {
		together := coretest.PodOptions{ObjectMeta: metav1.ObjectMeta{Labels: app}, PodRequirements: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: selector()}}}
		pods, others := gpuPods(6, 1, together), gpuPods(2, 1, coretest.PodOptions{NodeSelector: map[string]string{corev1.LabelTopologyZone: zones[1]}})
		apply(append(pods, others...))
		after := decide().NewNodeClaims
		Expect(placed(after)).To(Equal(placed(lo.Must(inner.Schedule(ctx)).NewNodeClaims)))
		Expect(lo.CountBy(after, func(c *scheduler.NodeClaim) bool {
			return lo.SomeBy(c.Pods, func(p *corev1.Pod) bool { return p.Labels["app"] == "serve" })
		})).To(Equal(1))
	})

	It("should not put two pods with one host port on a node", func() {
		apply(gpuPods(4, 1, coretest.PodOptions{HostPorts: []int32{8080}}))
		after := decide().NewNodeClaims
		Expect(after).To(HaveLen(4))
		Expect(shapes(after)).To(HaveEach("gpu1=1"))
	})

	It("should leave the host ports of daemons alone", func() {
		ds := coretest.DaemonSet(coretest.DaemonSetOptions{PodOptions: coretest.PodOptions{HostPorts: []int32{9400}}})
		apply(gpuPods(2, 1, coretest.PodOptions{HostPorts: []int32{9400}}), ds)
		Expect(decide().NewNodeClaims).To(BeEmpty())
	})

	It("should launch where a zonal volume is", func() {
		pv := coretest.PersistentVolume(coretest.PersistentVolumeOptions{Zones: []string{zones[2]}})
		pvc := coretest.PersistentVolumeClaim(coretest.PersistentVolumeClaimOptions{VolumeName: pv.Name})
		apply(append(gpuPods(1, 1, coretest.PodOptions{PersistentVolumeClaims: []string{pvc.Name}}), gpuPods(9, 1)...), pv, pvc)
		after := decide().NewNodeClaims
		Expect(lo.SumBy(after, func(c *scheduler.NodeClaim) int { return len(c.Pods) })).To(Equal(10))
		for _, c := range after {
			if lo.SomeBy(c.Pods, func(p *corev1.Pod) bool { return len(p.Spec.Volumes) > 0 }) {
				Expect(c.Requirements.Get(corev1.LabelTopologyZone).Values()).To(ConsistOf(zones[2]))
			}
		}
		Expect(price(after)).To(BeNumerically("<=", 2*3.5+2))
	})

	It("should keep custom labels apart that one node cannot have both of", func() {
		np := nodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "teams"}})
		np.Spec.Weight = lo.ToPtr[int32](100)
		np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: "example.com/team", Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}}}
		apply(append(gpuPods(6, 1, coretest.PodOptions{NodeSelector: map[string]string{"example.com/team": "a"}}),
			gpuPods(6, 1, coretest.PodOptions{NodeSelector: map[string]string{"example.com/team": "b"}})...), np)
		after := decide().NewNodeClaims
		Expect(price(after)).To(BeNumerically("~", 2*(3.5+2), 1e-9))
		for _, c := range after {
			Expect(lo.Uniq(lo.Map(c.Pods, func(p *corev1.Pod, _ int) string { return p.Spec.NodeSelector["example.com/team"] }))).To(HaveLen(1))
		}
	})
})
