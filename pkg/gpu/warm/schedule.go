package warm

import (
	"slices"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	// slack is more than any change of a zone's offset moves a wall clock, and more than the
	// two offsets on either side of one differ.
	slack = 2 * time.Hour
	// maxEdges bounds how many openings and closings NextChange looks at. Windows that
	// follow one another every minute would make it look forever.
	maxEdges = 256
)

// Window is a span of time that recurs. The location of the zone must not be nil.
type Window struct {
	// Starts gives the times at which the window opens, on a wall clock: it is asked and
	// answers in UTC, whatever Location is.
	Starts cron.Schedule
	// Duration is how long the window stays open, more than zero.
	Duration time.Duration
	// Location is the zone of the wall clock.
	Location *time.Location
	// SharePercent is what the window holds of the full amount, from 1 to 100.
	SharePercent int
}

// Schedule is a set of windows. The empty Schedule holds the full amount always.
type Schedule []Window

// Share is the share in percent that is held at a time: the greatest of the open windows, 0
// while none is open, 100 with no windows at all.
func (s Schedule) Share(at time.Time) int {
	if len(s) == 0 {
		return 100
	}
	share := 0
	for _, w := range s {
		if w.SharePercent > share && w.open(at) {
			share = w.SharePercent
		}
	}
	return share
}

// NextChange is the first time after at when Share changes. It is false if it never does, or
// not within the next 256 openings and closings.
func (s Schedule) NextChange(at time.Time) (time.Time, bool) {
	if len(s) == 0 {
		return time.Time{}, false
	}
	now := s.Share(at)
	edges := make([]time.Time, len(s))
	for range maxEdges {
		for i, w := range s {
			if !edges[i].After(at) {
				edges[i] = w.nextEdge(at)
			}
		}
		at = slices.MinFunc(edges, time.Time.Compare)
		if s.Share(at) != now {
			return at, true
		}
	}
	return time.Time{}, false
}

// Amount is a share of an amount, rounded up.
func Amount(full, sharePercent int) int {
	return (max(0, full)*max(0, sharePercent) + 99) / 100
}

// open reports whether the window is open: there is a start after at-Duration that is not
// after at. One that started just Duration ago has ended.
func (w Window) open(at time.Time) bool {
	return !w.nextStart(at.Add(-w.Duration)).After(at)
}

// nextEdge is the first opening or closing after at.
func (w Window) nextEdge(at time.Time) time.Time {
	end := w.nextStart(at.Add(-w.Duration)).Add(w.Duration)
	if start := w.nextStart(at); start.Before(end) {
		return start
	}
	return end
}

// nextStart is the first start after a time. A schedule that never starts again, which
// validation refuses, starts in a century.
func (w Window) nextStart(after time.Time) time.Time {
	wall := wallOf(after, w.Location)
	from, to := after.In(w.Location).ZoneBounds()
	if (from.IsZero() || after.Sub(from) > slack) && (to.IsZero() || to.Sub(after) > slack) {
		if next := w.Starts.Next(wall); !next.IsZero() {
			if start := after.Add(next.Sub(wall)); to.IsZero() || to.Sub(start) > slack {
				return start
			}
		}
	}
	return w.nextStartNearChange(after, wall)
}

// nextStartNearChange looks at every wall time around a change of the zone. Wall times are
// in order, the instants that they stand for need not be.
func (w Window) nextStartNearChange(after, wall time.Time) time.Time {
	best := time.Time{}
	for next := w.Starts.Next(wall.Add(-slack)); !next.IsZero(); next = w.Starts.Next(next) {
		if !best.IsZero() && next.After(wallOf(best, w.Location).Add(slack)) {
			return best
		}
		for _, start := range instants(next, w.Location, countsHours(w.Starts)) {
			if start.After(after) && (best.IsZero() || start.Before(best)) {
				best = start
			}
		}
	}
	if best.IsZero() {
		return after.AddDate(100, 0, 0)
	}
	return best
}

// wallOf is what a wall clock shows, written as if it were UTC.
func wallOf(at time.Time, location *time.Location) time.Time {
	local := at.In(location)
	_, offset := local.Zone()
	return local.Add(time.Duration(offset) * time.Second).UTC()
}

// instants are the times at which a wall clock shows a reading. A reading that is skipped
// stands for the moment of the change, one that comes twice for the first time, or for both.
func instants(wall time.Time, location *time.Location, both bool) []time.Time {
	// No zone is further than this from UTC, and none changes twice in a day.
	first := wall.Add(-offsetAt(wall.Add(-14*time.Hour), location))
	second := wall.Add(-offsetAt(wall.Add(12*time.Hour), location))
	if first.Equal(second) {
		return []time.Time{first}
	}
	shownFirst, shownSecond := wallOf(first, location).Equal(wall), wallOf(second, location).Equal(wall)
	switch {
	case shownFirst && shownSecond && both:
		return []time.Time{first, second}
	case shownFirst:
		return []time.Time{first}
	case shownSecond:
		return []time.Time{second}
	}
	change, _ := first.In(location).ZoneBounds()
	return []time.Time{change.UTC()}
}

func offsetAt(at time.Time, location *time.Location) time.Duration {
	_, offset := at.In(location).Zone()
	return time.Duration(offset) * time.Second
}

// countsHours reports whether a cron line has * for the hour, by the bit that the parser
// sets for it.
func countsHours(s cron.Schedule) bool {
	spec, ok := s.(*cron.SpecSchedule)
	return ok && spec.Hour&(1<<63) != 0
}
