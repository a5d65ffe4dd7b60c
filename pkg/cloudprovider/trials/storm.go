package trials

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Storm tells whether nodes of the pool fail for a reason that they share. Of several
// such reasons the commonest is told, the first by name where they tie.
func (b *Book) Storm(pool string) (Storm, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.pools[pool]
	if l == nil {
		return Storm{}, false
	}
	return l.storm()
}

func (l *ledger) storm() (Storm, bool) {
	counts := map[string]int{}
	for _, f := range l.failures {
		counts[f.reason]++
	}
	var worst Storm
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		if counts[reason] > worst.Failures {
			worst = Storm{Reason: reason, Failures: counts[reason]}
		}
	}
	if worst.Failures >= StormFailures {
		for _, f := range l.failures {
			if f.reason == worst.Reason {
				worst.Message = f.message
			}
		}
		return worst, true
	}
	if l.resumed != nil {
		return *l.resumed, true
	}
	return Storm{}, false
}

// Resume takes up a storm that was going on before this process started. It ends with the
// first node that is verified and was launched after the storm was told of: nodes that were
// verified before it are told to the Book again after a restart. Once Restore was called
// for the pool, it does nothing: what its status tells then is this process's own account.
func (b *Book) Resume(pool string, s Storm) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.ledger(pool)
	if !l.restored && l.resumed == nil && !l.proven.After(s.Since) {
		l.resumed = &s
	}
}

// Admit decides about the launch of one more node during a storm: inTrial are the nodes
// that were launched and are not verified, and no more than limit may be in trial
// together with those that were admitted and do not show yet. Without a storm every
// launch is admitted. Asking again for an admitted node admits it again.
func (b *Book) Admit(pool string, uid types.UID, limit int, inTrial []types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.ledger(pool)
	now := b.clock.Now()
	maps.DeleteFunc(l.admitted, func(id types.UID, at time.Time) bool { return now.Sub(at) >= admissionTTL || b.verified[id] })
	if _, storm := l.storm(); storm && !slices.Contains(inTrial, uid) {
		busy := map[types.UID]bool{}
		for _, id := range inTrial {
			busy[id] = !b.verified[id]
		}
		for id := range l.admitted {
			busy[id] = true
		}
		maps.DeleteFunc(busy, func(_ types.UID, counts bool) bool { return !counts })
		if !busy[uid] && len(busy) >= limit {
			return false
		}
	}
	l.admitted[uid] = now
	return true
}

// Release undoes an admission whose launch came to nothing.
func (b *Book) Release(pool string, uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ledger(pool).admitted, uid)
}
