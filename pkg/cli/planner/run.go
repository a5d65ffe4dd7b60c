package planner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning/simulate"
)

// Options of a run.
type Options struct {
	// Cloud says what is assumed about it.
	Cloud catalogprovider.Options
	// CompareStock asks for what stock Karpenter would do, too.
	CompareStock bool
	// Clock dates objects and measures the search.
	Clock clock.Clock
}

// ErrNoNodePools says that there is nothing that could launch a node.
var ErrNoNodePools = errors.New("there is no NodePool among the input; give the file that has it, or use --from-cluster")

// Run makes the plan. It is deterministic for equal input.
func Run(ctx context.Context, in *manifest.Set, o Options) (*Plan, error) {
	if len(in.NodePools) == 0 {
		return nil, ErrNoNodePools
	}
	r := &run{Options: o, in: in, pods: map[string]*corev1.Pod{}, evaluated: map[string]string{}, plan: &Plan{
		Ignored: append([]manifest.Ignored{}, in.Ignored...), Unplaced: []Unplaced{}, Notes: []string{},
		Assumptions: Assumptions{Region: o.Cloud.Region, Zones: o.Cloud.Zones, SpotPercent: o.Cloud.SpotPercent, PriceRegion: priceRegion},
	}}
	for _, p := range in.Pods {
		r.pods[p.Namespace+"/"+p.Name] = p
	}
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	if err := r.decide(ctx); err != nil {
		return nil, err
	}
	r.note()
	return r.plan, nil
}

// priceRegion is the region of almost all prices of the catalogue.
const priceRegion = "us-east-1"

// run is one plan in the making.
type run struct {
	Options
	in    *manifest.Set
	inner corecloudprovider.CloudProvider
	ours  corecloudprovider.CloudProvider
	pools *pools.Store
	// evaluated maps each NodePool to the GPUPool that it names.
	evaluated map[string]string
	nodePools []*karpv1.NodePool
	pods      map[string]*corev1.Pod
	templates []template
	plan      *Plan
}

// open stacks the providers as the controller does.
func (r *run) open(ctx context.Context) error {
	r.nodePools = slices.Clone(r.in.NodePools)
	nodepoolutils.OrderByWeight(r.nodePools)
	var err error
	if r.inner, err = catalogprovider.New(r.Cloud, r.nodeClasses()...); err != nil {
		return err
	}
	if r.pools, err = r.resolve(); err != nil {
		return err
	}
	r.ours = cloudprovider.Decorate(r.inner, cloudprovider.Options{Pools: r.pools, Catalog: r.Cloud.Catalog})
	for _, np := range r.nodePools {
		types, err := r.ours.GetInstanceTypes(ctx, np)
		if err != nil {
			return err
		}
		t := template{NodeClaimTemplate: scheduler.NewNodeClaimTemplate(np)}
		t.types = lo.Filter(types, func(it *corecloudprovider.InstanceType, _ int) bool {
			return it.Requirements.Intersects(t.Requirements) == nil
		})
		r.templates = append(r.templates, t)
	}
	sortTemplates(r.templates)
	return nil
}

// nodeClasses adds what NodePools refer to and the input lacks.
func (r *run) nodeClasses() []*catalogprovider.NodeClass {
	classes := slices.Clone(r.in.NodeClasses)
	known := lo.SliceToMap(classes, func(c *catalogprovider.NodeClass) (string, bool) { return c.GetName(), true })
	for _, np := range r.nodePools {
		ref := np.Spec.Template.Spec.NodeClassRef
		if ref == nil || known[ref.Name] || ref.Kind != catalogprovider.NodeClassGVK.Kind {
			continue
		}
		known[ref.Name] = true
		classes = append(classes, catalogprovider.DefaultNodeClass(ref.Name))
		r.plan.Notes = append(r.plan.Notes, fmt.Sprintf("EC2NodeClass %s is not among the input: AL2023 with a disk of 20Gi and default kubelet settings is assumed", ref.Name))
	}
	return classes
}

// resolve resolves the GPUPools that NodePools have joined.
func (r *run) resolve() (*pools.Store, error) {
	demand, err := demandOf(r.in.Pods)
	if err != nil {
		r.plan.Notes = append(r.plan.Notes, err.Error())
	}
	members := map[string][]string{}
	for _, np := range r.nodePools {
		name := np.Labels[v1alpha1.PoolLabelKey]
		r.evaluated[np.Name] = name
		members[name] = append(members[name], np.Name)
	}
	var resolved []*pools.Pool
	for _, p := range r.in.GPUPools {
		pool, err := pools.Resolve(pools.Request{GPUPool: p, NodePools: members[p.Name], Catalog: r.Cloud.Catalog, Demand: demand})
		if err != nil {
			return nil, fmt.Errorf("resolving GPUPool %s, %w", p.Name, err)
		}
		resolved = append(resolved, pool)
		if len(members[p.Name]) == 0 {
			r.plan.Notes = append(r.plan.Notes, fmt.Sprintf("no NodePool has joined GPUPool %s: a NodePool joins by the label %s: %s", p.Name, v1alpha1.PoolLabelKey, p.Name))
		}
		delete(members, p.Name)
	}
	delete(members, "")
	for _, name := range lo.Uniq(lo.FilterMap(r.nodePools, func(np *karpv1.NodePool, _ int) (string, bool) {
		name := np.Labels[v1alpha1.PoolLabelKey]
		return name, len(members[name]) > 0
	})) {
		r.plan.Notes = append(r.plan.Notes, fmt.Sprintf("GPUPool %s is not among the input: NodePools that name it (%s) are planned as plain Karpenter", name, strings.Join(members[name], ", ")))
	}
	store := pools.NewStore()
	store.Swap(resolved, r.evaluated)
	return store, nil
}

// demandOf counts the MIG partitions that pods ask for.
func demandOf(pods []*corev1.Pod) (mig.Demand, error) {
	asked := map[string]int{}
	for _, p := range pods {
		for name, q := range resources.RequestsForPods(p) {
			asked[string(name)] += int(min(q.Value(), mig.MaxDemand))
		}
	}
	return mig.DemandFromResources(asked)
}

func (r *run) decide(ctx context.Context) error {
	decision, err := r.simulate(ctx, r.in.GPUPools, r.ours, (*simulate.World).RightSized)
	if err != nil {
		return err
	}
	r.plan.Decision = r.convert(decision, r.pools)
	if err := r.bound(); err != nil {
		return err
	}
	r.plan.Unplaced = r.explain(decision)
	if !r.CompareStock {
		return nil
	}
	none := pools.NewStore()
	none.Swap(nil, r.evaluated)
	// Not the inner provider itself: in this process Karpenter knows labels that it
	// does not know in stock, and the decorator says that no node has them.
	stock, err := r.simulate(ctx, nil, cloudprovider.Decorate(r.inner, cloudprovider.Options{Pools: none, Catalog: r.Cloud.Catalog}), (*simulate.World).Stock)
	if err != nil {
		return fmt.Errorf("running stock Karpenter, %w", err)
	}
	r.plan.Stock = lo.ToPtr(r.convert(stock, none))
	return nil
}

func (r *run) simulate(ctx context.Context, gpuPools []*v1alpha1.GPUPool, provider corecloudprovider.CloudProvider,
	decide func(*simulate.World, context.Context) (simulate.Decision, error)) (simulate.Decision, error) {
	w, err := simulate.New(ctx, simulate.Input{NodePools: r.nodePools, GPUPools: gpuPools, Objects: r.in.Objects, InstanceTypes: provider.GetInstanceTypes, Catalog: r.Cloud.Catalog, Clock: r.Clock})
	if err != nil {
		return simulate.Decision{}, err
	}
	if err := w.Add(ctx, r.in.Pods...); err != nil {
		return simulate.Decision{}, err
	}
	return decide(w, ctx)
}

// bound is over the pods for which nodes would be launched.
func (r *run) bound() error {
	var placed []*corev1.Pod
	for _, n := range r.plan.Decision.Nodes {
		for _, p := range n.Pods {
			placed = append(placed, r.pods[p.Name])
		}
	}
	if len(placed) == 0 {
		return nil
	}
	slices.SortFunc(placed, func(a, b *corev1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	price, err := lowerBound(r.templates, placed)
	r.plan.LowerBound = lo.ToPtr(money(price))
	return err
}

func money(dollars float64) float64 { return math.Round(dollars*1e6) / 1e6 }

// note says what the reader should know about requirements that were not checked.
func (r *run) note() {
	unknown := map[string][]string{}
	for _, c := range r.in.NodeClasses {
		for _, text := range c.Unused {
			r.plan.Notes = append(r.plan.Notes, fmt.Sprintf("EC2NodeClass %s: %s", c.GetName(), text))
		}
	}
	for _, t := range r.templates {
		for _, key := range catalogprovider.UnknownLabels() {
			if t.Requirements.Has(key) {
				unknown[key] = append(unknown[key], "NodePool "+t.NodePoolName)
			}
		}
	}
	for _, p := range r.in.Pods {
		reqs := scheduling.NewStrictPodRequirements(p)
		for _, key := range catalogprovider.UnknownLabels() {
			if reqs.Has(key) {
				unknown[key] = append(unknown[key], p.Annotations[manifest.WorkloadAnnotation])
			}
		}
	}
	for _, key := range catalogprovider.UnknownLabels() {
		if who := lo.Uniq(unknown[key]); len(who) > 0 {
			r.plan.Notes = append(r.plan.Notes, fmt.Sprintf("%s is not known offline: what %s asks of it excludes nothing here", key, strings.Join(who, ", ")))
		}
	}
}
