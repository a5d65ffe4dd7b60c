package trials

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// maxLevel bounds the failures in a row that are told and taken over; the wait has
// stopped growing long before.
const maxLevel = 100

// Memory is what is known of one offering whose nodes fail, set aside now or tried
// again lately: enough to go on with after a restart.
type Memory struct {
	Avoidance
	// Launched is the latest launch of a node that failed.
	Launched time.Time
}

// Memories returns what the nodes of a pool have left behind by failing, in order of
// NodeClass, type, zone and image. Where there are more than limit, those that are
// set aside the longest remain.
func (b *Book) Memories(pool string, limit int) []Memory {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	var out []Memory
	for o, r := range b.offerings {
		if r.pool == pool && r.level > 0 && now.Sub(r.until) < forgetAfter {
			out = append(out, Memory{Launched: r.launched, Avoidance: Avoidance{Offering: o, Until: r.until, Failures: min(r.level, maxLevel), Reason: r.reason}})
		}
	}
	byName := func(x, y Memory) int {
		return cmp.Or(strings.Compare(x.NodeClass, y.NodeClass), strings.Compare(x.InstanceType, y.InstanceType),
			strings.Compare(x.Zone, y.Zone), strings.Compare(x.Image, y.Image))
	}
	slices.SortFunc(out, func(x, y Memory) int { return cmp.Or(y.Until.Compare(x.Until), byName(x, y)) })
	out = out[:min(len(out), limit)]
	slices.SortFunc(out, byName)
	return out
}

// Restore takes over what an earlier process knew of a pool's offerings. Only the
// first call for a pool counts, and what this process has seen itself counts more:
// a failure of its own, or a success of a node that was launched later.
func (b *Book) Restore(pool string, memories []Memory) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.ledger(pool)
	if l.restored {
		return
	}
	l.restored = true
	now := b.clock.Now()
	for _, m := range memories {
		until := m.Until
		if latest := now.Add(MaxBackoff); until.After(latest) {
			until = latest
		}
		if m.Failures < 1 || now.Sub(until) >= forgetAfter {
			continue
		}
		r := b.record(m.Offering)
		if r.level > 0 || !m.Launched.After(r.proven) {
			continue
		}
		level := min(m.Failures, maxLevel)
		*r = record{pool: pool, proven: r.proven, launched: m.Launched, failedAt: until.Add(-backoff(level)), until: until, level: level, reason: m.Reason}
	}
}
