package provisioning

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// Usage is what a pool has of what its limits bound.
type Usage struct {
	// Nodes is the number of NodeClaims, launched or not.
	Nodes int
	// GPUs are physical ones.
	GPUs int
	// Price is per hour. A NodeClaim that is not launched yet counts with the dearest
	// offering that it allows.
	Price v1alpha1.Price
	// Unpriced is how many NodeClaims have an instance type whose price nobody knows;
	// they count as free.
	Unpriced int
}

// reservationTime is how long a NodeClaim that was created counts without having
// been seen; the cache shows it within seconds, unless it is gone already.
const reservationTime = time.Minute

// Ledger counts what pools use of their limits: the NodeClaims of their NodePools as
// the cache shows them, and those created a moment ago that it does not show yet.
// Safe for concurrent use.
type Ledger struct {
	client client.Reader
	clock  clock.PassiveClock
	gpus   GPUs

	mu      sync.Mutex
	created map[string]*createdClaim // by name
}

type createdClaim struct {
	claim *karpv1.NodeClaim
	until time.Time
}

// NewLedger returns a Ledger over what the client shows, which counts GPUs by gpus.
func NewLedger(c client.Reader, clk clock.PassiveClock, gpus GPUs) *Ledger {
	return &Ledger{client: c, clock: clk, gpus: gpus, created: map[string]*createdClaim{}}
}

// Created notes a NodeClaim that the API server has accepted.
func (l *Ledger) Created(claim *karpv1.NodeClaim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.created[claim.Name] = &createdClaim{claim: claim.DeepCopy(), until: l.clock.Now().Add(reservationTime)}
}

// nodeClaims are those of some NodePools, oldest first, ties by name.
func (l *Ledger) nodeClaims(ctx context.Context, nodePools map[string]bool) ([]*karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	if err := l.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing nodeclaims, %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*karpv1.NodeClaim
	for i := range list.Items {
		delete(l.created, list.Items[i].Name)
		out = append(out, &list.Items[i])
	}
	for name, c := range l.created {
		if l.clock.Now().After(c.until) {
			delete(l.created, name)
			continue
		}
		out = append(out, c.claim)
	}
	out = lo.Filter(out, func(n *karpv1.NodeClaim, _ int) bool { return nodePools[n.Labels[karpv1.NodePoolLabelKey]] })
	slices.SortFunc(out, func(a, b *karpv1.NodeClaim) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out, nil
}

// Usage counts a pool whose NodePools have these instance types, by NodePool.
func (l *Ledger) Usage(ctx context.Context, p *v1alpha1.GPUPool, types map[string][]*cloudprovider.InstanceType) (Usage, error) {
	nodePools := lo.MapValues(types, func([]*cloudprovider.InstanceType, string) bool { return true })
	claims, err := l.nodeClaims(ctx, nodePools)
	if err != nil {
		return Usage{}, err
	}
	out := Usage{Nodes: len(claims)}
	for _, n := range claims {
		c, known := l.chargeOfClaim(n, types[n.Labels[karpv1.NodePoolLabelKey]], p.Spec.Partitioning)
		out.GPUs, out.Price = out.GPUs+c.gpus, out.Price.Add(c.price)
		if !known {
			out.Unpriced++
		}
	}
	return out, nil
}

// chargeOfClaim is what a NodeClaim takes of the limits: once launched, its instance
// type and offering; before, the worst that it allows.
func (l *Ledger) chargeOfClaim(n *karpv1.NodeClaim, types []*cloudprovider.InstanceType, partitioning *v1alpha1.Partitioning) (out charge, known bool) {
	if name := n.Labels[corev1.LabelInstanceTypeStable]; name != "" {
		return l.chargeOfLaunched(n, name, types, partitioning)
	}
	reqs := scheduling.NewNodeSelectorRequirementsWithMinValues(n.Spec.Requirements...)
	for _, it := range types {
		if it.Requirements.Intersects(reqs) != nil {
			continue
		}
		for _, o := range it.Offerings {
			if o.Available && reqs.IsCompatible(o.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
				known = true
				out.gpus = max(out.gpus, l.gpus.Physical(it, partitioning))
				out.price = max(out.price, v1alpha1.PriceFromFloat(o.Price))
			}
		}
	}
	return out, known
}

func (l *Ledger) chargeOfLaunched(n *karpv1.NodeClaim, name string, types []*cloudprovider.InstanceType, partitioning *v1alpha1.Partitioning) (charge, bool) {
	zone, tier := n.Labels[corev1.LabelTopologyZone], n.Labels[karpv1.CapacityTypeLabelKey]
	if it, ok := lo.Find(types, func(it *cloudprovider.InstanceType) bool { return it.Name == name }); ok {
		out := charge{gpus: l.gpus.Physical(it, partitioning)}
		if price, ok := it.OfferingPrice(zone, tier); ok {
			out.price = v1alpha1.PriceFromFloat(price)
			return out, true
		}
		for _, o := range it.Offerings {
			out.price = max(out.price, v1alpha1.PriceFromFloat(o.Price))
		}
		return out, len(it.Offerings) > 0
	}
	if s, ok := l.gpus.shape(name); ok {
		return charge{gpus: s.GPUs, price: v1alpha1.PriceFromFloat(s.PricePerHour)}, s.PricePerHour > 0
	}
	gpus := quantity(n.Status.Capacity, v1alpha1.ResourceGPU) + quantity(n.Status.Capacity, v1alpha1.ResourceGPUShared)
	return charge{gpus: int(gpus / int64(max(1, partitioning.Replicas())))}, false
}

// readUsage counts the pools with limits before this round, with all NodePools that
// carry their label: those that are not ready have nodes as well.
func (r *round) readUsage(ctx context.Context) error {
	if r.Ledger == nil || !lo.SomeBy(lo.Values(r.pools), func(p *pool) bool { return p.bounded() }) {
		return nil
	}
	var nodePools karpv1.NodePoolList
	if err := r.Client.List(ctx, &nodePools); err != nil {
		return fmt.Errorf("listing nodepools, %w", err)
	}
	for name, p := range r.pools {
		if !p.bounded() {
			continue
		}
		types := map[string][]*cloudprovider.InstanceType{}
		for i := range nodePools.Items {
			if np := &nodePools.Items[i]; poolOf(np, r.pools) == p {
				types[np.Name] = r.seen.types[np.Name]
			}
		}
		usage, err := r.Ledger.Usage(ctx, p.GPUPool, types)
		if err != nil {
			return err
		}
		r.usage[name] = charge{gpus: usage.GPUs, price: usage.Price}
	}
	return nil
}
