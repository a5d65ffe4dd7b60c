package provisioning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
)

// group is a set of NodeClaims whose pods are packed together: those of NodePools of
// one pool with equal weight, so that a weight still decides, and with the same
// requirements on labels that no instance type defines, so that all can share nodes.
type group struct {
	pool    *pool
	weight  int32
	custom  string
	entries []*entry
}

// groups are the parts of the decision that may be packed anew, in a fixed order.
// Claims with devices of DRA are in none: the allocation that stock made belongs to
// the claim.
func (r *round) groups() []*group {
	by, known := map[string]*group{}, r.knownKeys()
	for _, e := range r.entries {
		if e.template == nil || !e.template.pool.repacks() || lo.SomeBy(e.claim.Pods, func(p *corev1.Pod) bool { return r.data[p.UID].HasResourceClaimRequests }) {
			continue
		}
		custom := customKey(e, known, r)
		key := fmt.Sprintf("%s|%05d|%s", e.template.pool.Name, e.claim.NodePoolWeight, custom)
		if by[key] == nil {
			by[key] = &group{pool: e.template.pool, weight: e.claim.NodePoolWeight, custom: custom}
		}
		by[key].entries = append(by[key].entries, e)
	}
	keys := lo.Keys(by)
	slices.Sort(keys)
	return lo.Map(keys, func(k string, _ int) *group { return by[k] })
}

// uncoupled is the part of a group without constraints between pods; nil if that is
// none of it or all.
func (g *group) uncoupled(ignore bool) *group {
	out := *g
	out.entries = lo.Filter(g.entries, func(e *entry, _ int) bool {
		return lo.EveryBy(e.claim.Pods, func(p *corev1.Pod) bool { return len(couplings(p, ignore)) == 0 })
	})
	if len(out.entries) == 0 || len(out.entries) == len(g.entries) {
		return nil
	}
	return &out
}

func (r *round) knownKeys() map[string]bool {
	known := map[string]bool{}
	for _, t := range r.templates {
		for _, it := range t.types {
			for key := range it.Requirements {
				known[key] = true
			}
			for _, o := range it.Offerings {
				for key := range o.Requirements {
					known[key] = true
				}
			}
		}
	}
	return known
}

func customKey(e *entry, known map[string]bool, r *round) string {
	var parts []string
	for _, pod := range e.claim.Pods {
		for key, q := range r.data[pod.UID].Requirements {
			if !known[key] {
				parts = append(parts, q.String())
			}
		}
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), ";")
}

var (
	errNotCheaper = errors.New("comparing with stock, the plan is not cheaper")
	errIncomplete = errors.New("comparing with stock, the plan leaves a pod out that stock places")
)

// repack replaces the claims of a group by a cheaper set that places every pod which
// they place. On an error the decision is as before.
func (r *round) repack(ctx context.Context, g *group) error {
	stay, _ := lo.Difference(r.entries, g.entries)
	before, refused := r.admit(g.pool, g.entries, stay)
	plan, err := r.plan(ctx, g, stay)
	if err != nil {
		return err
	}
	formed, err := r.form(ctx, plan, stay)
	if err != nil {
		return err
	}
	if err := r.withinNodePoolLimits(formed, stay); err != nil {
		return err
	}
	after, _ := r.admit(g.pool, formed, stay)
	if missing, _ := lo.Difference(uids(before), uids(after)); len(missing) > 0 {
		return errIncomplete
	}
	was, now := r.priceOf(before), r.priceOf(after)
	if len(uids(after)) == len(uids(before)) && now > was-1e-9 {
		return errNotCheaper
	}
	r.refuseUnplaced(refused, formed)
	if gain := was - now; gain > 0 && !math.IsInf(gain, 0) {
		r.saved += gain
		savedPrice.Add(gain, map[string]string{poolLabel: g.pool.Name})
	}
	r.entries = append(stay, formed...)
	return nil
}

// refuseUnplaced tells the pods of refused claims that the new ones do not place.
func (r *round) refuseUnplaced(refused, formed []*entry) {
	placed := lo.Keyify(uids(formed))
	for _, e := range refused {
		for _, pod := range e.claim.Pods {
			if _, ok := placed[string(pod.UID)]; !ok {
				r.refuse(pod, r.alone(e, pod))
			}
		}
	}
}

func uids(entries []*entry) []string {
	return lo.FlatMap(entries, func(e *entry, _ int) []string {
		return lo.Map(e.claim.Pods, func(p *corev1.Pod, _ int) string { return string(p.UID) })
	})
}

// plan asks pkg/gpu/fleet for the cheapest nodes.
func (r *round) plan(ctx context.Context, g *group, stay []*entry) ([]planned, error) {
	templates := lo.FilterMap(r.seen.nodePools, func(np *karpv1.NodePool, _ int) (*template, bool) {
		t := r.templates[np.Name]
		return t, t != nil && t.pool == g.pool && lo.FromPtr(np.Spec.Weight) == g.weight
	})
	items, apart := r.items(g, ignoresPreferences(ctx))
	p := r.newPacking(templates, items, apart, r.reservedBy(stay))
	if len(p.problem.Classes) == 0 {
		return nil, errIncomplete
	}
	p.problem.Limits = r.fleetLimits(g.pool, stay)
	return p.solve(ctx, r)
}

func ignoresPreferences(ctx context.Context) bool {
	return options.FromContext(ctx).PreferencePolicy == options.PreferencePolicyIgnore
}

func (p *packing) solve(ctx context.Context, r *round) ([]planned, error) {
	search := fleet.Options{Seed: 1, Iterations: r.Iterations, Stop: func() bool { return ctx.Err() != nil || r.late() }}
	out, err := fleet.Solve(p.problem, search)
	if err != nil {
		return nil, fmt.Errorf("packing pods, %w", err)
	}
	if p.wastesGPU(out) {
		p.leaveGPUs()
		if out, err = fleet.Solve(p.problem, search); err != nil {
			return nil, fmt.Errorf("packing pods, %w", err)
		}
	}
	return p.nodes(out), nil
}

// wastesGPU says whether a plan opens an accelerated node for pods that ask for none.
func (p *packing) wastesGPU(plan fleet.Plan) bool {
	return lo.SomeBy(plan.Nodes, func(n fleet.Node) bool {
		return p.r.gpus().accelerated(p.shapes[n.Shape].it) && lo.EveryBy(n.Pods, func(s fleet.Share) bool { return !asksGPU(p.classes[s.Class].requests) })
	})
}

// nodes hands out the pods of each class to the nodes of the plan.
func (p *packing) nodes(plan fleet.Plan) []planned {
	next := make([]int, len(p.classes))
	var out []planned
	for _, n := range plan.Nodes {
		for range n.Count {
			node := planned{template: p.shapes[n.Shape].template, pinned: scheduling.NewRequirements()}
			reqs := scheduling.NewRequirements(node.template.base.Requirements.Values()...)
			for _, s := range n.Pods {
				c := p.classes[s.Class]
				node.pods = append(node.pods, c.pods[next[s.Class]:next[s.Class]+s.Count]...)
				next[s.Class] += s.Count
				reqs.Add(p.kinds[c.kind].reqs.Values()...)
			}
			p.pin(&node, n.Shape, reqs)
			node.types = p.alternatives(n.Shape, reqs, node)
			out = append(out, node)
		}
	}
	return out
}

// pin keeps a node in the domains in which stock balanced its pods, and in one
// capacity type where the pool has an order or a price to keep.
func (p *packing) pin(node *planned, at int, reqs scheduling.Requirements) {
	if _, held := node.template.pool.order(node.pods...); held {
		node.pinned.Add(scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, p.shapes[at].tier))
	}
	for _, c := range p.apart {
		if c.key != corev1.LabelHostname && lo.SomeBy(node.pods, c.counts) && reqs.Has(c.key) {
			node.pinned.Add(reqs.Get(c.key))
		}
	}
}

// alternatives are the types that a node may be: those no dearer than the planned
// one by more than the tolerance, under the pool's cap, and as many more, cheapest
// first, as minValues needs.
func (p *packing) alternatives(at int, reqs scheduling.Requirements, node planned) []*cloudprovider.InstanceType {
	t, tier := p.shapes[at].template, p.shapes[at].tier
	requests := p.r.requests(node.pods)
	type option struct {
		it    *cloudprovider.InstanceType
		price float64
	}
	var all []option
	plain := !asksGPU(requests) && !p.r.gpus().accelerated(p.shapes[at].it)
	for _, it := range t.types {
		if it.Requirements.Intersects(reqs) != nil || plain && p.r.gpus().accelerated(it) || t.oversized(it, reqs, requests) {
			continue
		}
		offers := lo.Filter(t.launchable(it, reqs, requests), func(o *cloudprovider.Offering, _ int) bool { return o.CapacityType() == tier })
		if len(offers) > 0 {
			all = append(all, option{it, offers.Cheapest().Price})
		}
	}
	slices.SortStableFunc(all, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.price, b.price), strings.Compare(a.it.Name, b.it.Name))
	})
	var out cloudprovider.InstanceTypes
	for _, o := range all {
		if o.price > p.problem.Shapes[at].Price*t.pool.tolerance+1e-9 {
			if _, _, err := out.SatisfiesMinValues(reqs); err == nil {
				break
			}
		}
		out = append(out, o.it)
	}
	return out
}

func (t *template) oversized(it *cloudprovider.InstanceType, reqs scheduling.Requirements, requests corev1.ResourceList) bool {
	limit := t.pool.maxUnused()
	return limit != nil && t.unused(it, reqs, requests) > *limit
}

// items are the pods of a group, and the constraints that bind them per node.
func (r *round) items(g *group, ignore bool) (items []item, apart []coupling) {
	seen := map[string]bool{}
	for _, e := range g.entries {
		for _, pod := range e.claim.Pods {
			it := item{pod: pod, pinned: scheduling.NewRequirements()}
			for _, c := range couplings(pod, ignore) {
				if c.key != corev1.LabelHostname {
					if q, ok := e.claim.Requirements[c.key]; ok {
						it.pinned.Add(q)
					}
					c.perNode = 0
				}
				if !seen[c.name] {
					seen[c.name] = true
					apart = append(apart, c)
				}
			}
			items = append(items, it)
		}
	}
	slices.SortStableFunc(apart, func(a, b coupling) int { return strings.Compare(a.name, b.name) })
	return items, apart
}

// reservedBy counts the places of reservations that claims hold.
func (r *round) reservedBy(entries []*entry) map[string]int {
	out := map[string]int{}
	for _, e := range entries {
		for id := range reservationsOf(e.claim) {
			out[id]++
		}
	}
	return out
}
