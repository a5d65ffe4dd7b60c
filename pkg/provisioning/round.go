package provisioning

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// round is one decision: what stock decided, and all that it was decided on.
type round struct {
	*RightSizer
	pools     map[string]*pool
	seen      *Catalogue
	templates map[string]*template
	results   scheduler.Results
	entries   []*entry
	data      map[types.UID]*scheduler.PodData
	refusals  map[types.UID]refused
	usage     map[string]charge // of the pool, without this round
	saved     float64           // per hour
	start     time.Time
}

// entry is a NodeClaim of the decision as it stands. The claim is ours to change:
// a copy of stock's, or one that was formed here.
type entry struct {
	claim *scheduler.NodeClaim
	// template is nil for a NodePool that has joined no pool.
	template *template
	// refusal is why the claim may not be launched; nil if it may.
	refusal *Refusal
}

// template is a NodePool that has joined a pool.
type template struct {
	nodePool *karpv1.NodePool
	pool     *pool
	base     *scheduler.NodeClaimTemplate
	types    []*cloudprovider.InstanceType
	overhead map[*cloudprovider.InstanceType]*overhead
	gpus     GPUs
}

func (s *RightSizer) newRound(ctx context.Context, results scheduler.Results, seen *Catalogue) (*round, error) {
	r := &round{RightSizer: s, results: results, seen: seen, templates: map[string]*template{},
		data: map[types.UID]*scheduler.PodData{}, refusals: map[types.UID]refused{}, usage: map[string]charge{}, start: s.Clock.Now()}
	var err error
	if r.pools, err = listPools(ctx, s.Client); err != nil {
		return nil, err
	}
	if len(r.pools) == 0 {
		return r, nil
	}
	daemons, err := listDaemons(ctx, s.Client, s.Cluster)
	if err != nil {
		return nil, err
	}
	for _, np := range seen.nodePools {
		if p := poolOf(np, r.pools); p != nil {
			r.templates[np.Name] = s.newTemplate(np, p, seen.types[np.Name], daemons)
		}
	}
	for _, claim := range results.NewNodeClaims {
		r.entries = append(r.entries, &entry{claim: copyClaim(claim), template: r.templates[claim.NodePoolName]})
	}
	return r, r.resolvePods(ctx)
}

func (s *RightSizer) newTemplate(np *karpv1.NodePool, p *pool, all []*cloudprovider.InstanceType, daemons []daemon) *template {
	t := &template{nodePool: np, pool: p, base: scheduler.NewNodeClaimTemplate(np), gpus: s.gpus()}
	t.types = lo.Filter(all, func(it *cloudprovider.InstanceType, _ int) bool {
		return it.Requirements.Intersects(t.base.Requirements) == nil
	})
	t.overhead = overheads(t.base, t.types, daemons)
	return t
}

// physicalGPUs is how many GPUs a node of the type has, however they are shared.
func (t *template) physicalGPUs(it *cloudprovider.InstanceType) int {
	return t.gpus.Physical(it, t.pool.Spec.Partitioning)
}

// load is what requests take on a node of the type together with its daemons.
func (t *template) load(it *cloudprovider.InstanceType, requests corev1.ResourceList) corev1.ResourceList {
	o := t.overhead[it]
	if o == nil || len(o.requests) == 0 {
		return requests
	}
	return resources.Merge(requests, o.requests)
}

// copyClaim copies what this package changes of a NodeClaim; the rest is shared.
func copyClaim(c *scheduler.NodeClaim) *scheduler.NodeClaim {
	out := *c
	out.Requirements = maps.Clone(c.Requirements)
	out.InstanceTypeOptions = slices.Clone(c.InstanceTypeOptions)
	out.Annotations = maps.Clone(c.Annotations)
	out.Labels = maps.Clone(c.Labels)
	return &out
}

// resolvePods computes for each pod of the pools what the scheduler computes. The
// pods are as stock relaxed them, so that the preferences which it could keep stay.
func (r *round) resolvePods(ctx context.Context) error {
	volumes := scheduler.NewVolumeTopology(r.Client)
	ignore := ignoresPreferences(ctx)
	for _, e := range r.entries {
		if e.template == nil {
			continue
		}
		for _, pod := range e.claim.Pods {
			strict := scheduling.NewStrictPodRequirements(pod)
			d := &scheduler.PodData{Requests: resources.RequestsForPods(pod), Requirements: strict, StrictRequirements: strict,
				HasResourceClaimRequests: podutils.HasDRARequirements(pod)}
			if !ignore {
				d.Requirements = scheduling.NewPodRequirements(pod)
			}
			if len(pod.Spec.Volumes) > 0 {
				reqs, err := volumes.GetRequirements(ctx, pod)
				if err != nil {
					return fmt.Errorf("getting volume topology of pod %s/%s, %w", pod.Namespace, pod.Name, err)
				}
				d.VolumeRequirements = reqs
			}
			r.data[pod.UID] = d
		}
	}
	return nil
}

func (r *round) requests(pods []*corev1.Pod) corev1.ResourceList {
	return resources.Merge(lo.Map(pods, func(p *corev1.Pod, _ int) corev1.ResourceList { return r.data[p.UID].Requests })...)
}

var errDiffers = errors.New("computing daemon overhead, the result differs from the scheduler's")

// agrees checks the model against stock's decision: where all types of a claim have
// the same daemons, its requests must be those of the pods and the daemons. An
// upgrade of Karpenter that counts otherwise turns repacking off, and no node is
// ever planned too full.
func (r *round) agrees() error {
	for _, e := range r.entries {
		if e.template == nil || len(e.claim.InstanceTypeOptions) == 0 {
			continue
		}
		first := e.claim.InstanceTypeOptions[0]
		o := e.template.overhead[first]
		if o == nil {
			return fmt.Errorf("reading instance type %s, not among those of NodePool %s", first.Name, e.claim.NodePoolName)
		}
		same := lo.EveryBy(e.claim.InstanceTypeOptions, func(it *cloudprovider.InstanceType) bool { return e.template.overhead[it] == o })
		want := e.template.load(first, r.requests(e.claim.Pods))
		if same && (!resources.Fits(want, e.claim.Spec.Resources.Requests) || !resources.Fits(e.claim.Spec.Resources.Requests, want)) {
			return errDiffers
		}
	}
	return nil
}
