package cloudprovider

import (
	"reflect"
	"sync"
	"sync/atomic"

	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// memo remembers, by view, what is to become of each instance type, because Karpenter
// asks for all types of all NodePools many times a minute and a provider's answer
// seldom changes. An entry is found by the identity of the inner requirements.
type memo struct {
	mu    sync.Mutex
	turn  atomic.Uint64
	views map[string]*viewMemo
}

// keptViews is how many views are kept beyond those in use. Views come and go with
// edits of pools.
const keptViews = 64

// Bounds of a view's entries. Providers make new requirements from time to time, so
// that old entries are of no use; which ones is not worth the bookkeeping. A full
// view is emptied, or, where that would come too often, allowed to grow.
const (
	firstLimit = 8192
	seldom     = 256 // turns
)

func newMemo() *memo { return &memo{views: map[string]*viewMemo{}} }

// of returns the entries of a view. The caller releases them after the last get.
func (m *memo) of(v *view) *viewMemo {
	turn := m.turn.Add(1)
	m.mu.Lock()
	known, ok := m.views[v.key]
	if !ok {
		m.forget(turn)
		known = &viewMemo{entries: map[uintptr]entry{}, limit: firstLimit}
		m.views[v.key] = known
	}
	known.used = turn
	m.mu.Unlock()
	known.mu.RLock()
	return known
}

// forget drops views that were not used for a long time.
func (m *memo) forget(turn uint64) {
	if len(m.views) < keptViews {
		return
	}
	for key, v := range m.views {
		if v.used+16*keptViews < turn {
			delete(m.views, key)
		}
	}
}

// viewMemo are the recipes of a view by the address of the inner requirements.
// Its methods want the read lock, which memo.of takes and release gives back.
type viewMemo struct {
	used uint64 // guarded by memo.mu

	turn    atomic.Uint64
	mu      sync.RWMutex
	entries map[uintptr]entry
	limit   int
	emptied uint64 // turn
}

// entry holds the little that most types need, so that a look at it touches one
// place in memory. Holding the inner requirements keeps their address from being
// used again.
type entry struct {
	name                string
	inner, requirements scheduling.Requirements
	recipe              *recipe // nil for types without GPUs
}

func (m *viewMemo) release() {
	m.turn.Add(1)
	m.mu.RUnlock()
}

func (m *viewMemo) get(it *corecloudprovider.InstanceType) (entry, bool) {
	e, ok := m.entries[addressOf(it.Requirements)]
	return e, ok && e.name == it.Name
}

func (m *viewMemo) put(it *corecloudprovider.InstanceType, e entry) {
	m.mu.RUnlock()
	defer m.mu.RLock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.turn.Load(); len(m.entries) >= m.limit {
		if now-m.emptied < seldom {
			m.limit *= 2
		} else {
			clear(m.entries)
			m.emptied = now
		}
	}
	m.entries[addressOf(it.Requirements)] = e
}

// result is a shown type with what it was made from.
type result struct {
	inner     corecloudprovider.InstanceType
	addresses [3]uintptr
	overlaid  bool
	offerings []offeringState
	out       *corecloudprovider.InstanceType
}

// offeringState is what may change in an offering.
type offeringState struct {
	offering    *corecloudprovider.Offering
	price       float64
	available   bool
	reservation int
}

// shown returns the type as the view has it. It is the same object as before where
// the inner type has not changed, which also spares Karpenter from computing its
// allocatable again.
func (r *recipe) shown(v *view, it *corecloudprovider.InstanceType) *corecloudprovider.InstanceType {
	addresses := [3]uintptr{addressOf(it.Capacity), addressOf(it.Overhead), addressOf(it.VolumeAttachmentLimits)}
	if last := r.last.Load(); last != nil && last.same(it, addresses) {
		return last.out
	}
	out := r.cook(v, it)
	if dynamic(it) {
		return out
	}
	now := &result{addresses: addresses, overlaid: it.IsCapacityOverlayApplied(), out: out, offerings: make([]offeringState, len(it.Offerings))}
	// The maps are held so that their addresses are not used again.
	now.inner.Capacity, now.inner.Overhead, now.inner.VolumeAttachmentLimits = it.Capacity, it.Overhead, it.VolumeAttachmentLimits
	for i, o := range it.Offerings {
		now.offerings[i] = offeringState{o, o.Price, o.Available, o.ReservationCapacity}
	}
	r.last.Store(now)
	return out
}

func (r *result) same(it *corecloudprovider.InstanceType, addresses [3]uintptr) bool {
	if r.addresses != addresses || len(r.offerings) != len(it.Offerings) || r.overlaid != it.IsCapacityOverlayApplied() || dynamic(it) {
		return false
	}
	for i := range r.offerings {
		s, o := &r.offerings[i], it.Offerings[i]
		if s.offering != o || s.price != o.Price || s.available != o.Available || s.reservation != o.ReservationCapacity {
			return false
		}
	}
	return true
}

// dynamic says that the type has DRA devices, which providers attach anew each time.
func dynamic(it *corecloudprovider.InstanceType) bool {
	return len(it.DynamicResources.ResourceSliceTemplates) > 0
}

// addressOf is the address of what a map or pointer refers to.
func addressOf(of any) uintptr { return reflect.ValueOf(of).Pointer() }
