// Package ice remembers which offerings could not be launched.
//
// Karpenter's AWS provider forgets a lack of capacity after three minutes and then
// tries the same offering again, for as long as a pod wants it: of ten types that are
// out, each is asked for twenty times an hour. Memory doubles the pause with each
// failure in a row, up to a ceiling, so that a shortage costs few calls while other
// offerings are taken at once; when the pauses end the cycle starts again. A launch
// that succeeds clears its offering. Nothing is stored: after a restart the first
// failure counts as the first.
package ice

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Offering is what capacity is sold as.
type Offering struct {
	// Type is the instance type, CapacityType as in karpenter.sh/capacity-type.
	Type, Zone, CapacityType string
}

const (
	// FirstPause is that of AWS's own cache, below which nothing would be gained.
	FirstPause = 3 * time.Minute
	// LongestPause bounds how stale the memory of a shortage can be.
	LongestPause = 24 * time.Minute
	// forget is how long after the end of a pause a failure still counts as one in a row.
	forget = time.Hour
)

// Memory is safe for concurrent use.
type Memory struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	failing map[Offering]entry
}

type entry struct {
	inARow int
	until  time.Time
}

// New returns an empty Memory.
func New(clk clock.PassiveClock) *Memory {
	return &Memory{clock: clk, failing: map[Offering]entry{}}
}

// Failed notes that a launch was refused. Failures while an offering pauses come from
// launches that were already under way, and count once.
func (m *Memory) Failed(offerings ...Offering) {
	now := m.clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range offerings {
		e := m.failing[o]
		if now.Before(e.until) {
			continue
		}
		if now.After(e.until.Add(forget)) {
			e.inARow = 0
		}
		e.inARow++
		e.until = now.Add(Pause(e.inARow))
		m.failing[o] = e
	}
}

// Pause is how long an offering rests after so many failures in a row.
func Pause(inARow int) time.Duration {
	pause := FirstPause
	for ; inARow > 1 && pause < LongestPause; inARow-- {
		pause *= 2
	}
	return min(pause, LongestPause)
}

// Succeeded forgets the failures of an offering.
func (m *Memory) Succeeded(o Offering) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.failing, o)
}

// Pausing reports whether an offering should not be tried now.
func (m *Memory) Pausing(o Offering) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.failing[o]
	return ok && m.clock.Now().Before(e.until)
}

// Any reports whether any offering pauses, and drops what is long past.
func (m *Memory) Any() bool {
	now, any := m.clock.Now(), false
	m.mu.Lock()
	defer m.mu.Unlock()
	for o, e := range m.failing {
		if now.After(e.until.Add(forget)) {
			delete(m.failing, o)
		}
		any = any || now.Before(e.until)
	}
	return any
}
