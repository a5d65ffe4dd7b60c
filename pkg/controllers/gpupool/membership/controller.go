// Package membership resolves which NodePools belong to which GPUPool, and what
// the nodes of each pool can be, for the decorated CloudProvider.
//
// One reconcile looks at all pools, because they share the ConfigMaps that
// mig-manager and the device plugin read. These are written before the resolved
// pools take effect, so that no node starts with a layout that nobody knows.
// The controller writes nothing else to the cluster; conditions are the status
// controller's.
package membership

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/nodeconfig"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// republish is how soon a ConfigMap that could not be written is tried again, and
// how often one that somebody else may have changed is looked at.
const republish = time.Minute

// Publisher writes what the software of nodes reads.
type Publisher interface {
	Publish(ctx context.Context, c nodeconfig.Content) error
}

// Controller fills the Store.
type Controller struct {
	kubeClient client.Client
	recorder   events.Recorder
	store      *pools.Store
	catalog    *catalog.Catalog
	publisher  Publisher
}

// NewController returns a controller that fills the store.
func NewController(kubeClient client.Client, recorder events.Recorder, store *pools.Store, catalog *catalog.Catalog, publisher Publisher) *Controller {
	return &Controller{kubeClient: kubeClient, recorder: recorder, store: store, catalog: catalog, publisher: publisher}
}

// Name is the controller's name in logs and metrics.
func (c *Controller) Name() string { return "gpupool.membership" }

// world is what one reconcile looks at.
type world struct {
	gpuPools  v1alpha1.GPUPoolList
	nodePools karpv1.NodePoolList
	claims    karpv1.NodeClaimList
	demand    mig.Demand
}

// Reconcile resolves all pools, whatever the request.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	w, err := c.observe(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	members, evaluated := w.membership()
	resolved := c.resolve(ctx, w, members)
	content := nodeconfig.Content{Pools: resolved, Layouts: w.inUse(v1alpha1.LayoutLabelKey), PluginConfigs: w.inUse(v1alpha1.DevicePluginConfigLabelKey)}
	published := c.publisher.Publish(ctx, content)
	before := c.store.Generation()
	c.store.SetUsedGPUs(w.usedGPUs(c.catalog))
	if after := c.store.Swap(resolved, evaluated); after != before {
		log.FromContext(ctx).WithValues("pools", len(resolved), "generation", after).Info("resolved gpu pools")
	}
	if published != nil {
		// The pools hold all the same: nodes of named layouts and without sharing need no ConfigMap of ours.
		log.FromContext(ctx).Error(published, "publishing configuration for nodes")
		for _, p := range resolved {
			if p.MIG != nil || p.Sharing.Enabled() {
				c.recorder.Publish(NotPublishedEvent(p.GPUPool, published))
			}
		}
	}
	return reconcile.Result{RequeueAfter: republish}, nil
}

func (c *Controller) observe(ctx context.Context) (*world, error) {
	w := &world{demand: mig.Demand{}}
	for what, list := range map[string]client.ObjectList{"gpu pools": &w.gpuPools, "nodepools": &w.nodePools, "nodeclaims": &w.claims} {
		if err := c.kubeClient.List(ctx, list); err != nil {
			return nil, fmt.Errorf("listing %s, %w", what, err)
		}
	}
	if !slices.ContainsFunc(w.gpuPools.Items, fromDemand) {
		return w, nil
	}
	var pods corev1.PodList
	if err := c.kubeClient.List(ctx, &pods, client.MatchingFields{"spec.nodeName": ""}); err != nil {
		return nil, fmt.Errorf("listing pending pods, %w", err)
	}
	for i := range pods.Items {
		if podutils.IsProvisionable(&pods.Items[i]) {
			w.demand = w.demand.Plus(partitionsOf(&pods.Items[i]))
		}
	}
	return w, nil
}

func fromDemand(p v1alpha1.GPUPool) bool {
	return p.Spec.Partitioning.Kind() == v1alpha1.PartitioningMIG && p.Spec.Partitioning.MIG.FromDemand()
}

// partitionsOf are the MIG partitions that a pod asks for. Names that are no
// profile are left to the event that says so.
func partitionsOf(pod *corev1.Pod) mig.Demand {
	asked := map[string]int{}
	for name, q := range resources.RequestsForPods(pod) {
		asked[string(name)] = int(min(max(q.Value(), 0), mig.MaxDemand))
	}
	demand, _ := mig.DemandFromResources(asked)
	return demand
}

// membership sorts the NodePools by pool label. Every NodePool counts as evaluated,
// also where its pool does not exist.
func (w *world) membership() (members map[string][]string, evaluated map[string]string) {
	members, evaluated = map[string][]string{}, map[string]string{}
	for i := range w.nodePools.Items {
		n := &w.nodePools.Items[i]
		label := n.Labels[v1alpha1.PoolLabelKey]
		evaluated[n.Name] = label
		if label != "" {
			members[label] = append(members[label], n.Name)
		}
	}
	return members, evaluated
}

func (c *Controller) resolve(ctx context.Context, w *world, members map[string][]string) []*pools.Pool {
	var resolved []*pools.Pool
	for i := range w.gpuPools.Items {
		p := &w.gpuPools.Items[i]
		if !p.DeletionTimestamp.IsZero() {
			continue
		}
		previous, _ := c.store.Get(p.Name)
		pool, err := pools.Resolve(pools.Request{
			GPUPool: p, NodePools: members[p.Name], Catalog: c.catalog, Demand: w.demand,
			Carried: w.carried(members[p.Name]), Previous: previous,
		})
		if err != nil {
			log.FromContext(ctx).V(1).Info("ignoring gpu pool, its spec is invalid", "GPUPool", p.Name, "error", err.Error())
			continue
		}
		resolved = append(resolved, pool)
	}
	return resolved
}

// carried are the layouts of the NodeClaims of some NodePools.
func (w *world) carried(nodePools []string) []string {
	names := map[string]bool{}
	for i := range w.claims.Items {
		claim := &w.claims.Items[i]
		if layout := claim.Labels[v1alpha1.LayoutLabelKey]; layout != "" && slices.Contains(nodePools, claim.Labels[karpv1.NodePoolLabelKey]) {
			names[layout] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// inUse are the values of a label on all NodeClaims.
func (w *world) inUse(key string) []string {
	values := map[string]bool{}
	for i := range w.claims.Items {
		if v := w.claims.Items[i].Labels[key]; v != "" {
			values[v] = true
		}
	}
	return slices.Sorted(maps.Keys(values))
}

func (w *world) usedGPUs(c *catalog.Catalog) map[string]int {
	used := map[string]int{}
	for i := range w.claims.Items {
		labels := w.claims.Items[i].Labels
		if shape, ok := c.Shape(labels[corev1.LabelInstanceTypeStable]); ok {
			used[labels[karpv1.NodePoolLabelKey]] += shape.GPUs
		}
	}
	return used
}

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		Watches(&v1alpha1.GPUPool{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&karpv1.NodePool{}, all, builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.GenerationChangedPredicate{}))).
		Watches(&karpv1.NodeClaim{}, all, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.Pod{}, all, builder.WithPredicates(predicate.NewPredicateFuncs(waitsForPartitions))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(c)
}

func waitsForPartitions(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && pod.Spec.NodeName == "" && len(partitionsOf(pod)) > 0
}
