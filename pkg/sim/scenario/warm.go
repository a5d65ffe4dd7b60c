package scenario

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/samber/lo"
)

// WarmHoursCost is what capacity cost that was held ready, and what it saved.
type WarmHoursCost struct {
	// HeldSeconds is how long it was held, and Cost what the cloud asked for in that time, in
	// dollars.
	HeldSeconds float64 `json:"heldSeconds"`
	Cost        float64 `json:"cost"`
	// ColdSeconds and WarmSeconds are what the bursts took.
	ColdSeconds float64 `json:"coldSeconds"`
	WarmSeconds float64 `json:"warmSeconds"`
}

// warmHours is nil where the play did not come that far.
func (r *play) warmHours(ctx context.Context, w *WarmHours) *WarmHoursCost {
	from, until := r.began[w.From], r.began[w.Until]
	figure := func(name string) (float64, bool) {
		f, ok := lo.Find(r.result.Measures, func(f Figure) bool { return f.Name == name })
		return f.Seconds, ok
	}
	cold, met := figure(w.Cold)
	warm, burst := figure(w.Warm)
	s, err := r.world.Observe(ctx, nil)
	if from.IsZero() || until.IsZero() || !met || !burst || err != nil {
		return nil
	}
	return &WarmHoursCost{HeldSeconds: seconds(until.Sub(from)), Cost: costBetween(s.Cloud.Instances, from, until), ColdSeconds: cold, WarmSeconds: warm}
}

// costBetween accounts for the running time of instances between two moments, by the second. The
// least time that is billed falls to whoever launched them, and is left out.
func costBetween(instances []Instance, from, until time.Time) (dollars float64) {
	for _, i := range instances {
		start, end := i.Start, i.End
		if start.Before(from) {
			start = from
		}
		if end.IsZero() || end.After(until) {
			end = until
		}
		if end.After(start) {
			dollars += end.Sub(start).Hours() * i.Price
		}
	}
	return dollars
}

func (r *Result) writeWarmHours(w io.Writer) {
	c := r.WarmHours
	if c == nil {
		return
	}
	fmt.Fprintf(w, "warm capacity: held for %.0f s at $%.4f ($%.2f an hour); the burst took %.1f s in place of %.1f s, %.1f s were saved\n",
		c.HeldSeconds, c.Cost, c.Cost/max(c.HeldSeconds, 1)*3600, c.WarmSeconds, c.ColdSeconds, c.ColdSeconds-c.WarmSeconds)
}

// relativeTime is a cron line that a manifest leaves to the engine: ${cron +90s}.
var relativeTime = regexp.MustCompile(`\$\{cron \+([0-9a-z]+)\}`)

// expandTimes writes cron lines, in UTC, for times that are given from now on: the first full minute
// that is not earlier. A wrong duration is left as it stands, and the API server refuses it.
func expandTimes(text string, now time.Time) string {
	return relativeTime.ReplaceAllStringFunc(text, func(match string) string {
		after, err := time.ParseDuration(relativeTime.FindStringSubmatch(match)[1])
		if err != nil {
			return match
		}
		at := now.UTC().Add(after + time.Minute - time.Nanosecond).Truncate(time.Minute)
		return fmt.Sprintf("%d %d %d %d *", at.Minute(), at.Hour(), at.Day(), int(at.Month()))
	})
}
