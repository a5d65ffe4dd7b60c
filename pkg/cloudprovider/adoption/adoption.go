package adoption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

const (
	// Window is how long after the first look an instance without a NodeClaim is
	// kept for adoption. Karpenter retries the launches of a dead controller
	// within seconds of its start.
	Window = time.Minute
	// MaxAge is the greatest age of an instance that is adopted. An older one
	// was missed by a garbage collection too, for reasons that are not ours.
	MaxAge = 10 * time.Minute
)

// Complete adds to an adopted NodeClaim what the inner provider's Create returns
// and its List does not, such as annotations that later detect drift.
type Complete func(ctx context.Context, wanted, adopted *karpv1.NodeClaim) error

var _ corecloudprovider.CloudProvider = (*decorator)(nil)

type decorator struct {
	corecloudprovider.CloudProvider
	reader   client.Reader
	clock    clock.Clock
	complete Complete

	mu sync.Mutex
	// looked is set by the first Create or List, whatever the look found.
	looked bool
	// until is when unwanted instances are shown to the garbage collection again.
	until time.Time
	// candidates are instances without a NodeClaim, by provider ID.
	candidates map[string]*karpv1.NodeClaim
	// handed are provider IDs that were returned by Create and that no NodeClaim
	// carried yet when List last looked.
	handed map[string]struct{}
}

// Decorate returns inner with adoption. reader lists NodeClaims; it must not lag
// behind the API server, so pass the manager's API reader and not its cache.
// complete may be nil.
func Decorate(inner corecloudprovider.CloudProvider, reader client.Reader, clk clock.Clock, complete Complete) corecloudprovider.CloudProvider {
	return &decorator{CloudProvider: inner, reader: reader, clock: clk, complete: complete, handed: map[string]struct{}{}}
}

// Create returns an instance that waits for adoption, or else what inner returns.
func (d *decorator) Create(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	adopted := d.adopt(ctx, nodeClaim)
	if adopted == nil {
		return d.CloudProvider.Create(ctx, nodeClaim)
	}
	log.FromContext(ctx).WithValues("NodeClaim", klog.KObj(nodeClaim), "provider-id", adopted.Status.ProviderID).
		Info("adopted an instance that an earlier controller launched")
	AdoptedTotal.Inc(map[string]string{nodePoolLabel: nodeClaim.Labels[karpv1.NodePoolLabelKey]})
	return adopted, nil
}

// List hides what still waits for adoption, and what was handed out and is not
// written down yet: the provider's garbage collection would end both.
func (d *decorator) List(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look(ctx)
	all, err := d.CloudProvider.List(ctx)
	if err != nil {
		return nil, err
	}
	if len(d.handed) > 0 {
		claimed, err := d.claimed(ctx)
		if err != nil {
			return nil, err
		}
		for id := range d.handed {
			if _, ok := claimed[id]; ok {
				delete(d.handed, id)
			}
		}
	}
	return lo.Reject(all, func(nc *karpv1.NodeClaim, _ int) bool {
		_, waits := d.candidates[nc.Status.ProviderID]
		_, handed := d.handed[nc.Status.ProviderID]
		return waits || handed
	}), nil
}

func (d *decorator) adopt(ctx context.Context, wanted *karpv1.NodeClaim) *karpv1.NodeClaim {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look(ctx)
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(wanted.Spec.Requirements...)
	// The oldest first, so that no instance waits for longer than it must.
	for _, candidate := range sorted(d.candidates) {
		if !meets(candidate, wanted, requirements) {
			continue
		}
		if d.complete != nil {
			if err := d.complete(ctx, wanted, candidate); err != nil {
				log.FromContext(ctx).Error(err, "completing an instance for adoption, launching another")
				continue
			}
		}
		delete(d.candidates, candidate.Status.ProviderID)
		d.handed[candidate.Status.ProviderID] = struct{}{}
		return candidate
	}
	return nil
}

// look finds, once, the instances that no NodeClaim knows, and forgets them after
// the window. It lists the cloud first: a NodeClaim that is written in between
// then has its instance in neither list. The first caller holds the lock until it
// is done, so that no launch of this process is under way meanwhile.
func (d *decorator) look(ctx context.Context) {
	if d.looked {
		if d.clock.Now().After(d.until) {
			d.candidates = nil
		}
		return
	}
	d.looked = true
	d.until = d.clock.Now().Add(Window)
	instances, err := d.CloudProvider.List(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing instances for adoption, going on without")
		return
	}
	claimed, err := d.claimed(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing nodeclaims for adoption, going on without")
		return
	}
	d.candidates = map[string]*karpv1.NodeClaim{}
	for _, instance := range instances {
		_, known := claimed[instance.Status.ProviderID]
		young := d.clock.Since(instance.CreationTimestamp.Time) <= MaxAge
		if !known && young && instance.DeletionTimestamp.IsZero() {
			d.candidates[instance.Status.ProviderID] = instance
		}
	}
}

func (d *decorator) claimed(ctx context.Context) (map[string]struct{}, error) {
	claims := &karpv1.NodeClaimList{}
	if err := d.reader.List(ctx, claims); err != nil {
		return nil, fmt.Errorf("listing nodeclaims, %w", err)
	}
	ids := map[string]struct{}{}
	for i := range claims.Items {
		ids[claims.Items[i].Status.ProviderID] = struct{}{}
	}
	return ids, nil
}

// meets reports whether an instance could have been launched for the NodeClaim:
// the same NodePool, and no requirement that its labels contradict. Keys that the
// instance does not carry are user labels, which Karpenter writes at registration.
func meets(instance, wanted *karpv1.NodeClaim, requirements scheduling.Requirements) bool {
	pool := wanted.Labels[karpv1.NodePoolLabelKey]
	if pool == "" || instance.Labels[karpv1.NodePoolLabelKey] != pool {
		return false
	}
	for key, requirement := range requirements {
		if value, ok := instance.Labels[key]; ok && !requirement.Has(value) {
			return false
		}
	}
	return true
}

func sorted(candidates map[string]*karpv1.NodeClaim) []*karpv1.NodeClaim {
	return slices.SortedFunc(func(yield func(*karpv1.NodeClaim) bool) {
		for _, c := range candidates {
			if !yield(c) {
				return
			}
		}
	}, func(a, b *karpv1.NodeClaim) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Status.ProviderID, b.Status.ProviderID)
	})
}
