package trials

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// The measures of backoff and storms.
const (
	// FirstBackoff is how long an offering is set aside after its first failure.
	FirstBackoff = time.Minute
	// MaxBackoff is the longest that one failure sets it aside.
	MaxBackoff = 16 * time.Minute
	// forgetAfter is how long after the end of a backoff its level is remembered.
	forgetAfter = time.Hour
	// StormFailures is how many nodes must fail in the same way to make a storm.
	StormFailures = 3
	// admissionTTL is how long an admitted launch counts before it shows up as a
	// NodeClaim that was launched.
	admissionTTL = 5 * time.Minute
)

// Offering is what a node was launched as.
type Offering struct {
	// NodeClass is the name of the NodeClass, Image the image's ID; empty when unknown.
	NodeClass, InstanceType, Zone, Image string
}

// Trial is one node from its launch on.
type Trial struct {
	UID      types.UID
	Pool     string
	Offering Offering
	Launched time.Time
}

// Avoidance is an offering that is set aside.
type Avoidance struct {
	Offering
	// Until is when it may be tried again, Failures how many tries failed in a row.
	Until    time.Time
	Failures int
	// Reason is that of the last failure.
	Reason string
}

// Storm is a fault that all new nodes of a pool share.
type Storm struct {
	// Reason and Message are those of the last failure, Failures how many nodes failed so.
	Reason, Message string
	Failures        int
	// Since is when a storm that was resumed had been told of: only a node that was launched
	// later ends it. It is zero for a storm that this process saw begin.
	Since time.Time
}

// Book keeps outcomes. All methods may be called at once.
type Book struct {
	clock clock.PassiveClock

	mu        sync.Mutex
	pools     map[string]*ledger
	offerings map[Offering]*record
	verified  map[types.UID]bool
}

// ledger is what is known of one pool.
type ledger struct {
	// proven is the latest launch of a node that was verified.
	proven time.Time
	// failures are nodes launched after proven that failed or are about to.
	failures []failure
	resumed  *Storm
	admitted map[types.UID]time.Time
	// restored says that what an earlier process knew has been taken over.
	restored bool
}

type failure struct {
	uid             types.UID
	launched        time.Time
	reason, message string
	final           bool
}

// record is what is known of one offering.
type record struct {
	// pool is that of the last node that failed.
	pool string
	// proven is the latest launch of a node that was verified, launched of one that failed.
	proven, launched time.Time
	// failedAt is when the last failure was told, until when the offering may be tried again.
	failedAt, until time.Time
	level           int
	reason          string
}

// NewBook returns an empty Book.
func NewBook(clk clock.PassiveClock) *Book {
	return &Book{clock: clk, pools: map[string]*ledger{}, offerings: map[Offering]*record{}, verified: map[types.UID]bool{}}
}

func (b *Book) ledger(pool string) *ledger {
	l := b.pools[pool]
	if l == nil {
		l = &ledger{admitted: map[types.UID]time.Time{}}
		b.pools[pool] = l
	}
	return l
}

// Verified records that a node passed. Telling it again changes nothing.
func (b *Book) Verified(t Trial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verified[t.UID] = true
	l := b.ledger(t.Pool)
	delete(l.admitted, t.UID)
	if l.resumed != nil && t.Launched.After(l.resumed.Since) {
		l.resumed = nil
	}
	if t.Launched.After(l.proven) {
		l.proven = t.Launched
	}
	l.failures = slices.DeleteFunc(l.failures, func(f failure) bool { return f.uid == t.UID || !f.launched.After(l.proven) })
	b.settleImage(t)
	r := b.record(t.Offering)
	if t.Launched.After(r.proven) {
		r.proven = t.Launched
	}
	if !t.Launched.Before(r.launched) {
		*r = record{proven: r.proven}
	}
}

// IsVerified tells whether the node was recorded as verified.
func (b *Book) IsVerified(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.verified[uid]
}

// Suspect records that a node in trial shows a fault that waiting does not cure. It
// counts towards a storm and not towards a backoff: the node still has its time.
func (b *Book) Suspect(t Trial, reason, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.verified[t.UID] {
		b.ledger(t.Pool).fail(failure{uid: t.UID, launched: t.Launched, reason: reason, message: message})
	}
}

// Failed records that a node in trial has been given up.
func (b *Book) Failed(t Trial, reason, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.ledger(t.Pool)
	delete(l.admitted, t.UID)
	l.fail(failure{uid: t.UID, launched: t.Launched, reason: reason, message: message, final: true})
	b.settleImage(t)
	b.record(t.Offering).fail(t, b.clock.Now(), reason)
}

// Forget drops a node that went without a verdict, or long after one.
func (b *Book) Forget(pool string, uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.verified, uid)
	l := b.ledger(pool)
	delete(l.admitted, uid)
	l.failures = slices.DeleteFunc(l.failures, func(f failure) bool { return f.uid == uid && !f.final })
}

// fail keeps one entry for each node, and no more than a few.
func (l *ledger) fail(f failure) {
	if !f.launched.After(l.proven) {
		return
	}
	if i := slices.IndexFunc(l.failures, func(o failure) bool { return o.uid == f.uid }); i >= 0 {
		f.final = f.final || l.failures[i].final
		l.failures = slices.Delete(l.failures, i, i+1)
	}
	l.failures = append(l.failures, f)
	if n := len(l.failures) - 8*StormFailures; n > 0 {
		l.failures = slices.Delete(l.failures, 0, n)
	}
}

func (b *Book) record(o Offering) *record {
	r := b.offerings[o]
	if r == nil {
		r = &record{}
		b.offerings[o] = r
	}
	return r
}

// fail raises the level for a retry only: nodes that were launched together and fail
// together are one try.
func (r *record) fail(t Trial, now time.Time, reason string) {
	if !t.Launched.After(r.proven) {
		return
	}
	if r.level == 0 || !t.Launched.Before(r.failedAt) {
		r.level++
	}
	if t.Launched.After(r.launched) {
		r.launched = t.Launched
	}
	r.pool, r.failedAt, r.until, r.reason = t.Pool, now, now.Add(backoff(r.level)), reason
}

// backoff is how long an offering is set aside after so many failures in a row.
func backoff(level int) time.Duration {
	return min(FirstBackoff<<min(level-1, 16), MaxBackoff)
}

// settleImage drops what is known of other images of the same type from before the launch
// of t: the NodeClass has moved on, and what failed with the old image says nothing of the
// new one. Of images that were launched later, an older node that is told again says nothing.
func (b *Book) settleImage(t Trial) {
	o := t.Offering
	if o.Image == "" {
		return
	}
	maps.DeleteFunc(b.offerings, func(k Offering, r *record) bool {
		return k.NodeClass == o.NodeClass && k.InstanceType == o.InstanceType && k.Image != o.Image &&
			t.Launched.After(r.launched) && t.Launched.After(r.proven)
	})
}

// Avoided returns what is set aside of a NodeClass now, in order of type, zone and
// image.
func (b *Book) Avoided(nodeClass string) []Avoidance {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	var out []Avoidance
	for o, r := range b.offerings {
		switch {
		case r.level > 0 && now.Before(r.until):
			if o.NodeClass == nodeClass {
				out = append(out, Avoidance{Offering: o, Until: r.until, Failures: r.level, Reason: r.reason})
			}
		case now.Sub(r.until) >= forgetAfter && now.Sub(r.proven) >= forgetAfter:
			delete(b.offerings, o)
		}
	}
	slices.SortFunc(out, func(x, y Avoidance) int {
		return cmp.Or(strings.Compare(x.InstanceType, y.InstanceType), strings.Compare(x.Zone, y.Zone), strings.Compare(x.Image, y.Image))
	})
	return out
}
