package provisioning_test

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coreapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	stock "sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

var (
	ctx      context.Context
	env      *coretest.Environment
	cloud    *fake.CloudProvider
	guarded  cloudprovider.CloudProvider
	cluster  *state.Cluster
	recorder *coretest.EventRecorder
	inner    *stock.Provisioner
	ledger   *provisioning.Ledger
	ours     *provisioning.Provisioner
	virtual  *virtualpods.Cache
)

func TestProvisioning(t *testing.T) {
	testenv.UseAssets(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Provisioning")
}

var _ = BeforeSuite(func() {
	ctx = options.ToContext(context.Background(), coretest.Options())
	env = coretest.NewEnvironment(coretest.WithCRDs(coreapis.CRDs...), coretest.WithCRDs(testv1alpha1.CRDs...), coretest.WithCRDs(apis.CRDs...))
	cloud = fake.NewCloudProvider()
	start()
})

// start builds what the process builds at its start: nothing of before is in it.
func start() { startWith(provisioning.GPUs{}) }

func startWith(gpus provisioning.GPUs) {
	recorder = coretest.NewEventRecorder()
	ledger = provisioning.NewLedger(env.Client, env.Clock, gpus)
	guarded = provisioning.Guard(cloud, provisioning.GuardOptions{Client: env.Client, Clock: env.Clock, Ledger: ledger})
	cluster = state.NewCluster(env.Clock, env.Client, guarded)
	virtual = virtualpods.NewVirtualPodCache(env.Client)
	inner = stock.NewProvisioner(env.Client, recorder, guarded, cluster, env.Clock, deviceallocation.NewController(env.Client), virtual)
	ours = provisioning.NewProvisioner(inner, &provisioning.RightSizer{Client: env.Client, Cluster: cluster, Clock: env.Clock, Ledger: ledger}, recorder, nil)
}

var _ = BeforeEach(func() {
	cloud.Reset()
	start()
})

var _ = AfterEach(func() {
	ExpectCleanedUp(ctx, env.Client)
	Expect(env.Client.DeleteAllOf(ctx, &v1alpha1.GPUPool{})).To(Succeed())
	cluster.Reset()
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

const poolName = "inference"

var zones = []string{"test-zone-1", "test-zone-2", "test-zone-3"}

// gpuType has 4 CPUs and 32Gi for each GPU, and is sold in three zones on demand.
func gpuType(name string, gpus int, price float64, offers ...cloudprovider.Offering) *cloudprovider.InstanceType {
	return machine(name, gpus, max(1, gpus)*4, max(1, gpus)*32, price, offers...)
}

func machine(name string, gpus, cpu, memory int, price float64, offers ...cloudprovider.Offering) *cloudprovider.InstanceType {
	if len(offers) == 0 {
		offers = lo.Map(zones, func(z string, _ int) cloudprovider.Offering { return offer("on-demand", z, price) })
	}
	list := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(fmt.Sprint(cpu)),
		corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dGi", memory)),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	if gpus > 0 {
		list[v1alpha1.ResourceGPU] = resource.MustParse(fmt.Sprint(gpus))
	}
	return fake.NewInstanceType(name, fake.WithResources(list), fake.WithOfferings(offers...))
}

func offer(capacityType, zone string, price float64) cloudprovider.Offering {
	return cloudprovider.Offering{Available: true, Price: price, Requirements: scheduling.NewLabelRequirements(map[string]string{
		karpv1.CapacityTypeLabelKey: capacityType, corev1.LabelTopologyZone: zone})}
}

func gpuPool(change func(*v1alpha1.GPUPoolSpec)) *v1alpha1.GPUPool {
	p := &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: poolName}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

// nodePool is a member of the pool, with no limits unless they are given.
func nodePool(over ...karpv1.NodePool) *karpv1.NodePool {
	base := karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.PoolLabelKey: poolName}},
		Spec: karpv1.NodePoolSpec{Limits: karpv1.Limits{}}}
	return coretest.NodePool(append([]karpv1.NodePool{base}, over...)...)
}

func gpuPods(n, gpus int, over ...coretest.PodOptions) []*corev1.Pod {
	base := coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("8Gi")},
		Limits:   corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse(fmt.Sprint(gpus))},
	}}
	return lo.Times(n, func(int) *corev1.Pod {
		return coretest.UnschedulablePod(append([]coretest.PodOptions{base}, over...)...)
	})
}

func apply(pods []*corev1.Pod, objects ...client.Object) {
	GinkgoHelper()
	ExpectApplied(ctx, env.Client, objects...)
	for _, p := range pods {
		ExpectApplied(ctx, env.Client, p)
	}
}

// decide is one round of ours without launches.
func decide() scheduler.Results {
	GinkgoHelper()
	results, err := ours.Provision(ctx)
	Expect(err).NotTo(HaveOccurred())
	return results
}

// stockPrice and price are of the cheapest launch of each claim.
func price(claims []*scheduler.NodeClaim) (total float64) {
	for _, c := range claims {
		total += lo.Min(lo.FlatMap(c.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) []float64 {
			return lo.Map(it.Offerings.Launchable().Compatible(c.Requirements), func(o *cloudprovider.Offering, _ int) float64 { return o.Price })
		}))
	}
	return total
}

// shapes lists for each claim its cheapest type and its number of pods.
func shapes(claims []*scheduler.NodeClaim) []string {
	out := lo.Map(claims, func(c *scheduler.NodeClaim, _ int) string {
		return fmt.Sprintf("%s=%d", slices.Clone(c.InstanceTypeOptions).OrderByPrice(c.Requirements)[0].Name, len(c.Pods))
	})
	sort.Strings(out)
	return out
}

func placed(claims []*scheduler.NodeClaim) []string {
	out := lo.FlatMap(claims, func(c *scheduler.NodeClaim, _ int) []string {
		return lo.Map(c.Pods, func(p *corev1.Pod, _ int) string { return p.Name })
	})
	sort.Strings(out)
	return out
}

func names(pods []*corev1.Pod) []string {
	out := lo.Map(pods, func(p *corev1.Pod, _ int) string { return p.Name })
	sort.Strings(out)
	return out
}

// launch creates the claims of a decision and the nodes for them, and binds the pods.
func launch(results scheduler.Results) []*corev1.Node {
	GinkgoHelper()
	var nodes []*corev1.Node
	for _, c := range results.NewNodeClaims {
		name, err := ours.Create(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		_, node := ExpectNodeClaimDeployedAndStateUpdated(ctx, env.Client, cluster, guarded, claim)
		nodes = append(nodes, node)
		for _, p := range c.Pods {
			pod := ExpectExists(ctx, env.Client, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}})
			ExpectManualBinding(ctx, env.Client, pod, node)
			Expect(cluster.UpdatePod(ctx, ExpectExists(ctx, env.Client, pod))).To(Succeed())
		}
	}
	return nodes
}

func messages(reason provisioning.RefusalKind) string {
	var out []string
	recorder.ForEachEvent(func(e events.Event) {
		if e.Reason == string(reason) {
			out = append(out, e.Message)
		}
	})
	sort.Strings(out)
	return strings.Join(out, "\n")
}

const minute = time.Minute

func metaOf(name, nodePool string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{karpv1.NodePoolLabelKey: nodePool}}
}

func firstNodePool() (*karpv1.NodePool, error) {
	var list karpv1.NodePoolList
	if err := env.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	return &list.Items[0], nil
}

func requirementIn(key string, values ...string) *scheduling.Requirement {
	return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
}
