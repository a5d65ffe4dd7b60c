package provisioning

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// holdTime is how long a refusal is remembered. Pods that wait are decided on again
// every triggerAgain, so that one which still holds is renewed well before.
const holdTime = 3 * triggerAgain

// Holds remembers which pools have a rule that holds launches back at present, and how
// many rounds have decided. A nil Holds knows of none. Safe for concurrent use.
type Holds struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	pools  map[string]map[RefusalKind]hold
	rounds int
}

type hold struct {
	refusal Refusal
	until   time.Time
}

// NewHolds returns an empty record.
func NewHolds(clk clock.PassiveClock) *Holds {
	return &Holds{clock: clk, pools: map[string]map[RefusalKind]hold{}}
}

// note replaces what is known by the refusals of one round: a pool without one in a
// round that looked at all pending pods is held back by nothing.
func (h *Holds) note(refused []RefusedPod) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rounds++
	h.pools = map[string]map[RefusalKind]hold{}
	for _, r := range refused {
		kinds := h.pools[r.Refusal.Pool]
		if kinds == nil {
			kinds = map[RefusalKind]hold{}
			h.pools[r.Refusal.Pool] = kinds
		}
		// The first pod's refusal speaks for all: its message stays the same from
		// round to round, since pods are in order.
		if _, ok := kinds[r.Refusal.Kind]; !ok {
			kinds[r.Refusal.Kind] = hold{refusal: r.Refusal, until: h.clock.Now().Add(holdTime)}
		}
	}
}

// Rounds is how many rounds of scheduling have come to a decision. While a launch is
// open, or nothing waits, there are none: what a round would have said is not known.
func (h *Holds) Rounds() int {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rounds
}

// Of returns the refusal that holds back launches of a pool, the first of kinds that
// does, and false where none does.
func (h *Holds) Of(pool string, kinds ...RefusalKind) (Refusal, bool) {
	if h == nil {
		return Refusal{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kind := range kinds {
		if held, ok := h.pools[pool][kind]; ok && !h.clock.Now().After(held.until) {
			return held.refusal, true
		}
	}
	return Refusal{}, false
}
