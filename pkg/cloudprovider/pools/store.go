package pools

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/sharing"
)

// Pool is a valid GPUPool with what was resolved from it. It is immutable once
// it is in a Store.
type Pool struct {
	// GPUPool is a copy of the object. Readers must not change it.
	GPUPool *v1alpha1.GPUPool
	// NodePools are the names of the NodePools that have joined, sorted.
	NodePools []string
	// Sharing is how each GPU is shared; the zero value shares nothing.
	Sharing sharing.Sharing
	// MIG is how GPUs are partitioned; nil for pools without MIG.
	MIG *MIG
	// Version names the content: pools of equal content have equal versions, in
	// this process and the next.
	Version string
}

// Name is the name of the GPUPool.
func (p *Pool) Name() string { return p.GPUPool.Name }

// snapshot is what a Store holds at one moment.
type snapshot struct {
	generation uint64
	byName     map[string]*Pool
	byNodePool map[string]*Pool
	// evaluated maps each NodePool that was looked at to the value that its pool
	// label had then, empty for none.
	evaluated map[string]string
}

// Store is where resolved pools are found. Its zero value is empty and has
// evaluated nothing. All methods may be called at once.
type Store struct {
	current atomic.Pointer[snapshot]
	used    atomic.Pointer[map[string]int]
	bypass  atomic.Bool
	swap    sync.Mutex
}

// NewStore returns a store that holds the pools and has evaluated their
// NodePools.
func NewStore(pools ...*Pool) *Store {
	s := &Store{}
	evaluated := map[string]string{}
	for _, p := range pools {
		for _, n := range p.NodePools {
			evaluated[n] = p.Name()
		}
	}
	s.Swap(pools, evaluated)
	return s
}

// Swap replaces everything. evaluated maps each NodePool that was looked at to
// the value of its pool label, empty for none; it may name NodePools that are in
// no pool. The generation that it returns grows when pools have changed, and
// stays where they are equal by Version and members.
func (s *Store) Swap(pools []*Pool, evaluated map[string]string) uint64 {
	s.swap.Lock()
	defer s.swap.Unlock()
	next := &snapshot{byName: map[string]*Pool{}, byNodePool: map[string]*Pool{}, evaluated: maps.Clone(evaluated)}
	for _, p := range pools {
		next.byName[p.Name()] = p
		for _, n := range p.NodePools {
			next.byNodePool[n] = p
		}
	}
	last := s.current.Load()
	switch {
	case last == nil:
		next.generation = 1
	case sameVersions(last.byNodePool, next.byNodePool):
		next.generation = last.generation
	default:
		next.generation = last.generation + 1
	}
	s.current.Store(next)
	return next.generation
}

func sameVersions(a, b map[string]*Pool) bool {
	return maps.EqualFunc(a, b, func(x, y *Pool) bool { return x.Name() == y.Name() && x.Version == y.Version })
}

// ForNodePool finds the pool that a NodePool has joined. It is false for a
// NodePool in none, in one that is invalid, or not evaluated yet.
func (s *Store) ForNodePool(name string) (*Pool, bool) {
	if c := s.current.Load(); c != nil {
		p, ok := c.byNodePool[name]
		return p, ok
	}
	return nil, false
}

// ForNodeClaim finds the pool of a NodeClaim: that of its NodePool, or, for a
// NodeClaim without one, the pool that its own label names.
func (s *Store) ForNodeClaim(nodeClaim *karpv1.NodeClaim) (*Pool, bool) {
	if name, ok := nodeClaim.Labels[karpv1.NodePoolLabelKey]; ok {
		return s.ForNodePool(name)
	}
	return s.Get(nodeClaim.Labels[v1alpha1.PoolLabelKey])
}

// Get finds a pool by its own name.
func (s *Store) Get(name string) (*Pool, bool) {
	if c := s.current.Load(); c != nil {
		p, ok := c.byName[name]
		return p, ok
	}
	return nil, false
}

// Pools returns all pools by name. The caller owns the slice.
func (s *Store) Pools() []*Pool {
	c := s.current.Load()
	if c == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(c.byName), func(a, b *Pool) int { return strings.Compare(a.Name(), b.Name()) })
}

// Evaluated tells whether the controller has seen the NodePool with the pool
// label that it has now. A NodePool without the label needs no evaluation.
func (s *Store) Evaluated(nodePool *karpv1.NodePool) bool {
	label := nodePool.Labels[v1alpha1.PoolLabelKey]
	if label == "" || s.bypass.Load() {
		return true
	}
	c := s.current.Load()
	if c == nil {
		return false
	}
	seen, ok := c.evaluated[nodePool.Name]
	return ok && seen == label
}

// Bypass makes every NodePool count as evaluated, for clusters in which GPUPool is
// not installed: nobody will ever evaluate the label there.
func (s *Store) Bypass() { s.bypass.Store(true) }

// Generation grows whenever the pools change; zero before the first Swap.
func (s *Store) Generation() uint64 {
	if c := s.current.Load(); c != nil {
		return c.generation
	}
	return 0
}

// SetUsedGPUs replaces the physical GPUs of the launched NodeClaims by NodePool.
// It is apart from Swap because it changes with every launch.
func (s *Store) SetUsedGPUs(used map[string]int) {
	s.used.Store(lo.ToPtr(maps.Clone(used)))
}

// UsedGPUs returns the physical GPUs of the launched NodeClaims of a NodePool.
// They are more than nvidia.com/gpu of its nodes where GPUs are partitioned.
func (s *Store) UsedGPUs(nodePool string) int {
	if used := s.used.Load(); used != nil {
		return (*used)[nodePool]
	}
	return 0
}
