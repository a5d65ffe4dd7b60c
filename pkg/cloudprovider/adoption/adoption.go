package adoption

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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
	// MaxAge is the greatest age of an instance that is adopted, or withheld from List
	// because its NodeClaim may not be written yet. An older one was missed by a
	// garbage collection too, for reasons that are not ours.
	MaxAge = 10 * time.Minute
)

// Complete adds to an adopted NodeClaim what the inner provider's Create returns
// and its List does not, such as annotations that later detect drift.
type Complete func(ctx context.Context, wanted, adopted *karpv1.NodeClaim) error

var _ corecloudprovider.CloudProvider = (*decorator)(nil)

type decorator struct {
	corecloudprovider.CloudProvider
	Options

	mu sync.Mutex
	// looked is set by the first Create or List, whatever the look found.
	looked bool
	// until is when unwanted instances are shown to the garbage collection again.
	until time.Time
	// candidates are instances without a NodeClaim, by provider ID.
	candidates map[string]*karpv1.NodeClaim
	// handed are provider IDs that were returned by Create and that no NodeClaim
	// in the cache carried yet when List last looked.
	handed map[string]handOut
	// launching counts the calls of Create that wait for inner, by NodePool.
	launching map[string]int
}

// handOut is when an instance was returned by Create, and for which NodeClaim.
type handOut struct {
	at  time.Time
	uid types.UID
}

// Options are what Decorate needs besides a CloudProvider.
type Options struct {
	// Reader lists NodeClaims for the one look at the start. It must not lag behind
	// the API server: pass the manager's API reader.
	Reader client.Reader
	// Cache lists NodeClaims as the garbage collections see them: pass the manager's
	// client, whose cache they read.
	Cache client.Reader
	Clock clock.Clock
	// Complete may be nil.
	Complete Complete
}

// Decorate returns inner with adoption, and with instances whose launch is not
// written down yet withheld from List.
func Decorate(inner corecloudprovider.CloudProvider, o Options) corecloudprovider.CloudProvider {
	return &decorator{CloudProvider: inner, Options: o, handed: map[string]handOut{}, launching: map[string]int{}}
}

// Create returns an instance that waits for adoption, or else what inner returns.
func (d *decorator) Create(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	adopted := d.adopt(ctx, nodeClaim)
	if adopted == nil {
		return d.launch(ctx, nodeClaim)
	}
	log.FromContext(ctx).WithValues("NodeClaim", klog.KObj(nodeClaim), "provider-id", adopted.Status.ProviderID).
		Info("adopted an instance that an earlier controller launched")
	AdoptedTotal.Inc(map[string]string{nodePoolLabel: nodeClaim.Labels[karpv1.NodePoolLabelKey]})
	return adopted, nil
}

// launch remembers the launch from before inner is asked until a NodeClaim carries
// its instance, so that List knows of it at every moment in between. A panic in inner,
// which controller-runtime recovers from, ends the launch too.
func (d *decorator) launch(ctx context.Context, nodeClaim *karpv1.NodeClaim) (created *karpv1.NodeClaim, err error) {
	pool := nodeClaim.Labels[karpv1.NodePoolLabelKey]
	d.mu.Lock()
	d.launching[pool]++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.launching[pool]--; d.launching[pool] == 0 {
			delete(d.launching, pool)
		}
		if err == nil && created != nil {
			d.handed[created.Status.ProviderID] = handOut{at: d.Clock.Now(), uid: nodeClaim.UID}
		}
	}()
	return d.CloudProvider.Create(ctx, nodeClaim)
}

// List hides what still waits for adoption, and what was launched or handed out and
// no NodeClaim carries yet: a garbage collection would end both.
//
// Karpenter's own collection reads the cache before it calls List, the provider's
// after it. The cache only moves forward, so that what it shows as written in
// between is so for the provider's, and what it does not show had no provider ID for
// Karpenter's either.
func (d *decorator) List(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	d.lookOnce(ctx)
	all, err := d.CloudProvider.List(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.handed)+len(d.launching) == 0 && len(d.candidates) == 0 {
		return all, nil
	}
	claimed, err := claimed(ctx, d.Cache)
	if err != nil {
		return nil, err
	}
	// Karpenter launches for NodeClaims that it read from the cache: one that the cache does
	// not have is gone, and will never carry its instance.
	maps.DeleteFunc(d.handed, func(id string, h handOut) bool {
		return claimed.ids.Has(id) || !claimed.uids.Has(h.uid) || d.Clock.Since(h.at) > MaxAge
	})
	return lo.Reject(all, func(nc *karpv1.NodeClaim, _ int) bool {
		if claimed.ids.Has(nc.Status.ProviderID) {
			return false
		}
		_, waits := d.candidates[nc.Status.ProviderID]
		_, handed := d.handed[nc.Status.ProviderID]
		return waits || handed || d.mayBeLaunching(nc)
	}), nil
}

// mayBeLaunching tells of an unclaimed instance whether a call of Create that has not
// returned yet may be about to return it.
func (d *decorator) mayBeLaunching(instance *karpv1.NodeClaim) bool {
	return d.launching[instance.Labels[karpv1.NodePoolLabelKey]] > 0 && d.Clock.Since(instance.CreationTimestamp.Time) <= MaxAge
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
		if d.Complete != nil {
			if err := d.Complete(ctx, wanted, candidate); err != nil {
				log.FromContext(ctx).Error(err, "completing an instance for adoption, launching another")
				continue
			}
		}
		delete(d.candidates, candidate.Status.ProviderID)
		d.handed[candidate.Status.ProviderID] = handOut{at: d.Clock.Now(), uid: wanted.UID}
		return candidate
	}
	return nil
}

func (d *decorator) lookOnce(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look(ctx)
}

// look finds, once, the instances that no NodeClaim knows, and forgets them after
// the window. It lists the cloud first: a NodeClaim that is written in between
// then has its instance in neither list. The first caller holds the lock until it
// is done, so that no launch of this process is under way meanwhile.
func (d *decorator) look(ctx context.Context) {
	if d.looked {
		if d.Clock.Now().After(d.until) {
			d.candidates = nil
		}
		return
	}
	d.looked = true
	d.until = d.Clock.Now().Add(Window)
	instances, err := d.CloudProvider.List(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing instances for adoption, going on without")
		return
	}
	known, err := claimed(ctx, d.Reader)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing nodeclaims for adoption, going on without")
		return
	}
	d.candidates = map[string]*karpv1.NodeClaim{}
	for _, instance := range instances {
		taken := known.ids.Has(instance.Status.ProviderID)
		young := d.Clock.Since(instance.CreationTimestamp.Time) <= MaxAge
		if !taken && young && instance.DeletionTimestamp.IsZero() {
			d.candidates[instance.Status.ProviderID] = instance
		}
	}
}

// claims are the NodeClaims that there are, and the provider IDs that they carry.
type claims struct {
	ids  sets.Set[string]
	uids sets.Set[types.UID]
}

func claimed(ctx context.Context, reader client.Reader) (claims, error) {
	list := &karpv1.NodeClaimList{}
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return claims{}, fmt.Errorf("listing nodeclaims, %w", err)
	}
	found := claims{ids: sets.New[string](), uids: sets.New[types.UID]()}
	for i := range list.Items {
		found.ids.Insert(list.Items[i].Status.ProviderID)
		found.uids.Insert(list.Items[i].UID)
	}
	return found, nil
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
