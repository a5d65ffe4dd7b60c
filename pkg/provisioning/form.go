package provisioning

import (
	"context"
	"fmt"
	"maps"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// planned is a node that should be launched.
type planned struct {
	template *template
	types    []*cloudprovider.InstanceType
	pods     []*corev1.Pod
	// pinned narrows the node: the domains of its pods, and a capacity type where the
	// pool is held to one at a time.
	pinned scheduling.Requirements
}

// former builds NodeClaims with the scheduler's own placement code.
type former struct {
	r            *round
	topology     *scheduler.Topology
	reservations *scheduler.ReservationManager
	relax        bool
}

// form makes NodeClaims of a plan, beside those of the decision that stay. It fails
// if any pod does not fit where the plan puts it. The order of pods matters to
// topology spread, so that a pod which does not fit yet is tried again for as long
// as others still find their place.
func (r *round) form(ctx context.Context, plan []planned, stay []*entry) ([]*entry, error) {
	f, err := r.newFormer(ctx, stay)
	if err != nil {
		return nil, err
	}
	out, claims := make([]*entry, len(plan)), make([]*scheduler.NodeClaim, len(plan))
	type place struct {
		pod *corev1.Pod
		at  int
	}
	var queue []place
	for i, p := range plan {
		claims[i] = f.open(p)
		out[i] = &entry{claim: claims[i], template: p.template}
		for _, pod := range p.pods {
			queue = append(queue, place{pod, i})
		}
	}
	for len(queue) > 0 {
		var again []place
		var last error
		for _, q := range queue {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := f.add(ctx, claims[q.at], q.pod); err != nil {
				again, last = append(again, q), err
			}
		}
		if len(again) == len(queue) {
			return nil, fmt.Errorf("placing pod %s/%s on a planned node, %w", again[0].pod.Namespace, again[0].pod.Name, last)
		}
		queue = again
	}
	for _, c := range claims {
		c.FinalizeScheduling()
		if c.InstanceTypeOptions, err = c.InstanceTypeOptions.Truncate(ctx, c.Requirements, scheduler.MaxInstanceTypes); err != nil {
			return nil, fmt.Errorf("truncating instance types, %w", err)
		}
	}
	return out, nil
}

func (r *round) newFormer(ctx context.Context, stay []*entry) (*former, error) {
	var opts []scheduler.Options
	if ignoresPreferences(ctx) {
		opts = append(opts, scheduler.IgnorePreferences)
	}
	var nodes []*state.StateNode
	if r.coupled(ctx) {
		nodes = r.Cluster.DeepCopyNodes().Active()
	}
	topology, err := scheduler.NewTopology(ctx, r.Client, r.Cluster, nodes, r.seen.nodePools, r.seen.types, r.allPods(), opts...)
	if err != nil {
		return nil, fmt.Errorf("tracking topology counts, %w", err)
	}
	f := &former{r: r, topology: topology, reservations: scheduler.NewReservationManager(r.seen.types),
		relax: options.FromContext(ctx).MinValuesPolicy == options.MinValuesPolicyBestEffort}
	for _, n := range r.results.ExistingNodes {
		topology.Register(corev1.LabelHostname, n.HostName())
		reqs := scheduling.NewLabelRequirements(n.Labels())
		reqs.Add(scheduling.NewRequirement(corev1.LabelHostname, corev1.NodeSelectorOpIn, n.HostName()))
		for _, pod := range n.Pods {
			topology.Record(pod, n.Taints(), reqs, scheduling.AllowUndefinedWellKnownLabels)
		}
	}
	for i, e := range stay {
		f.keep(fmt.Sprintf("stays-%d", i), e.claim)
	}
	return f, nil
}

// keep counts a NodeClaim that stays as it is.
func (f *former) keep(host string, c *scheduler.NodeClaim) {
	f.topology.Register(corev1.LabelHostname, host)
	reqs := scheduling.NewRequirements(c.Requirements.Values()...)
	reqs.Add(scheduling.NewRequirement(corev1.LabelHostname, corev1.NodeSelectorOpIn, host))
	for _, pod := range c.Pods {
		f.topology.Record(pod, c.Spec.Taints, reqs, scheduling.AllowUndefinedWellKnownLabels)
	}
	for _, o := range reservationsOf(c) {
		if f.reservations.CanReserve(host, o) {
			f.reservations.Reserve(host, o)
		}
	}
}

// reservationsOf are the reservations of which a finished NodeClaim holds a place.
func reservationsOf(c *scheduler.NodeClaim) map[string]*cloudprovider.Offering {
	ids, held := c.Requirements[cloudprovider.ReservationIDLabel], map[string]*cloudprovider.Offering{}
	if ids == nil || ids.Operator() != corev1.NodeSelectorOpIn {
		return held
	}
	for _, it := range c.InstanceTypeOptions {
		for _, o := range it.Offerings {
			if o.CapacityType() == karpv1.CapacityTypeReserved && ids.Has(o.ReservationID()) {
				held[o.ReservationID()] = o
			}
		}
	}
	return held
}

func (f *former) open(p planned) *scheduler.NodeClaim {
	t := *p.template.base
	t.Annotations, t.Labels = maps.Clone(t.Annotations), maps.Clone(t.Labels)
	t.Requirements = scheduling.NewRequirements(t.Requirements.Values()...)
	t.Requirements.Add(p.pinned.Values()...)
	groups := map[*overhead][]*cloudprovider.InstanceType{}
	var order []*overhead
	for _, it := range p.types {
		o := p.template.overhead[it]
		if groups[o] == nil {
			order = append(order, o)
		}
		groups[o] = append(groups[o], it)
	}
	daemons := lo.Map(order, func(o *overhead, _ int) scheduler.DaemonOverheadGroup {
		return scheduler.DaemonOverheadGroup{InstanceTypes: groups[o], DaemonOverhead: o.requests, HostPortUsage: o.ports}
	})
	c := scheduler.NewNodeClaim(&t, f.topology, daemons, p.types, f.reservations, scheduler.ReservedOfferingModeStrict, nil)
	c.Annotations[karpv1.NodeClaimMinValuesRelaxedAnnotationKey] = "false"
	return c
}

func (f *former) add(ctx context.Context, c *scheduler.NodeClaim, pod *corev1.Pod) error {
	volumes, err := scheduling.GetVolumes(ctx, f.r.Client, pod)
	if err != nil {
		return fmt.Errorf("reading volumes, %w", err)
	}
	data := f.r.data[pod.UID]
	relax := f.relax && len(c.Pods) == 0
	reqs, types, reserve, allocation, err := c.CanAdd(ctx, pod, data, volumes, relax, nil)
	if err != nil {
		return err
	}
	if relax && relaxed(c.Requirements, reqs) {
		c.Annotations[karpv1.NodeClaimMinValuesRelaxedAnnotationKey] = "true"
	}
	c.Add(ctx, pod, data, reqs, types, volumes, reserve, allocation, nil)
	return nil
}

func relaxed(before, after scheduling.Requirements) bool {
	return lo.SomeBy(before.Values(), func(q *scheduling.Requirement) bool {
		now := after.Get(q.Key).MinValues()
		return q.MinValues() != nil && now != nil && *now < *q.MinValues()
	})
}

// allPods are the pods of the round; those that run already are counted by the
// topology itself.
func (r *round) allPods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, c := range r.results.NewNodeClaims {
		out = append(out, c.Pods...)
	}
	for _, n := range r.results.ExistingNodes {
		out = append(out, n.Pods...)
	}
	for pod := range r.results.PodErrors {
		out = append(out, pod)
	}
	return out
}

// coupled says whether any pod of the round has a constraint with others.
func (r *round) coupled(ctx context.Context) bool {
	ignore := ignoresPreferences(ctx)
	return lo.SomeBy(r.allPods(), func(p *corev1.Pod) bool { return len(couplings(p, ignore)) > 0 })
}
