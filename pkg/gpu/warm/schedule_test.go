package warm_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the test must not depend on the machine's files

	"github.com/google/go-cmp/cmp"
	"github.com/robfig/cron/v3"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/warm"
)

func window(t *testing.T, start, duration, zone string, share int) warm.Window {
	t.Helper()
	starts, err := cron.ParseStandard(start)
	if err != nil {
		t.Fatal(err)
	}
	length, err := time.ParseDuration(duration)
	if err != nil {
		t.Fatal(err)
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return warm.Window{Starts: starts, Duration: length, Location: location, SharePercent: share}
}

func at(t *testing.T, s string) time.Time {
	t.Helper()
	out, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestShare(t *testing.T) {
	day := window(t, "0 7 * * 1-5", "12h", "Europe/Berlin", 100)
	evening := window(t, "0 19 * * 1-5", "3h", "Europe/Berlin", 50)
	lunch := window(t, "0 12 * * *", "1h", "Europe/Berlin", 20)
	for name, tc := range map[string]struct {
		schedule warm.Schedule
		at       string
		want     int
	}{
		"no windows hold always": {nil, "2026-02-01T03:00:00Z", 100},
		"before the window":      {warm.Schedule{day}, "2026-02-02T05:59:59Z", 0},
		"at its start":           {warm.Schedule{day}, "2026-02-02T06:00:00Z", 100},
		"at the last moment":     {warm.Schedule{day}, "2026-02-02T17:59:59.999999999Z", 100},
		"at its end":             {warm.Schedule{day}, "2026-02-02T18:00:00Z", 0},
		"on a Sunday":            {warm.Schedule{day}, "2026-02-01T10:00:00Z", 0},
		"in the next window, with no gap between them": {warm.Schedule{day, evening}, "2026-02-02T18:00:00Z", 50},
		"after both": {warm.Schedule{day, evening}, "2026-02-02T21:00:00Z", 0},
		"the greatest of those that overlap counts":    {warm.Schedule{lunch, day}, "2026-02-02T11:30:00Z", 100},
		"the lesser alone on Sunday":                   {warm.Schedule{lunch, day}, "2026-02-01T11:30:00Z", 20},
		"a window over midnight into the weekend":      {warm.Schedule{window(t, "0 22 * * 5", "8h", "UTC", 100)}, "2026-02-07T05:00:00Z", 100},
		"a window of a week that starts again at once": {warm.Schedule{window(t, "@weekly", "168h", "UTC", 30)}, "2026-02-08T00:00:00Z", 30},
		"half an hour off UTC":                         {warm.Schedule{window(t, "0 9 * * *", "1h", "Asia/Kolkata", 100)}, "2026-02-01T03:30:00Z", 100},
		"half an hour off UTC, before":                 {warm.Schedule{window(t, "0 9 * * *", "1h", "Asia/Kolkata", 100)}, "2026-02-01T03:29:59Z", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.schedule.Share(at(t, tc.at)); got != tc.want {
				t.Errorf("got %d %%, want %d %%", got, tc.want)
			}
		})
	}
}

// story lists the changes of a schedule between two times.
func story(t *testing.T, s warm.Schedule, from, to string) string {
	t.Helper()
	var b strings.Builder
	now := at(t, from)
	fmt.Fprintf(&b, "%3d%% at first\n", s.Share(now))
	for {
		next, ok := s.NextChange(now)
		if !ok || next.After(at(t, to)) {
			return b.String()
		}
		if !next.After(now) {
			t.Fatalf("the change after %s is at %s", now, next)
		}
		fmt.Fprintf(&b, "%3d%% from %s\n", s.Share(next), next.In(s[0].Location).Format("Mon 02 Jan 15:04 MST"))
		now = next
	}
}

func TestNextChange(t *testing.T) {
	for name, tc := range map[string]struct {
		schedule warm.Schedule
		from, to string
		want     string
	}{
		"weekdays and evenings over a weekend": {
			warm.Schedule{window(t, "0 7 * * 1-5", "12h", "Europe/Berlin", 100), window(t, "0 19 * * 1-5", "3h", "Europe/Berlin", 50)},
			"2026-02-06T00:00:00Z", "2026-02-09T20:00:00Z", `
  0% at first
100% from Fri 06 Feb 07:00 CET
 50% from Fri 06 Feb 19:00 CET
  0% from Fri 06 Feb 22:00 CET
100% from Mon 09 Feb 07:00 CET
 50% from Mon 09 Feb 19:00 CET
`},
		"the same hour on the clock in winter and in summer": {
			warm.Schedule{window(t, "0 7 * * *", "12h", "Europe/Berlin", 100)},
			"2026-03-28T00:00:00Z", "2026-03-29T20:00:00Z", `
  0% at first
100% from Sat 28 Mar 07:00 CET
  0% from Sat 28 Mar 19:00 CET
100% from Sun 29 Mar 07:00 CEST
  0% from Sun 29 Mar 19:00 CEST
`},
		"a night that spring makes shorter ends an hour later on the clock": {
			warm.Schedule{window(t, "0 22 * * *", "8h", "Europe/Berlin", 100)},
			"2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", `
  0% at first
100% from Sat 28 Mar 22:00 CET
  0% from Sun 29 Mar 07:00 CEST
`},
		"a start that spring skips comes with the change": {
			warm.Schedule{window(t, "30 2 * * *", "2h", "Europe/Berlin", 100)},
			"2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z", `
  0% at first
100% from Sun 29 Mar 03:00 CEST
  0% from Sun 29 Mar 05:00 CEST
100% from Mon 30 Mar 02:30 CEST
  0% from Mon 30 Mar 04:30 CEST
`},
		"a start that autumn shows twice comes once": {
			warm.Schedule{window(t, "30 2 * * *", "10m", "Europe/Berlin", 100)},
			"2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z", `
  0% at first
100% from Sun 25 Oct 02:30 CEST
  0% from Sun 25 Oct 02:40 CEST
100% from Mon 26 Oct 02:30 CET
  0% from Mon 26 Oct 02:40 CET
`},
		"every hour comes every hour": {
			warm.Schedule{window(t, "0 * * * *", "10m", "America/New_York", 100)},
			"2026-11-01T04:30:00Z", "2026-11-01T07:30:00Z", `
  0% at first
100% from Sun 01 Nov 01:00 EDT
  0% from Sun 01 Nov 01:10 EDT
100% from Sun 01 Nov 01:00 EST
  0% from Sun 01 Nov 01:10 EST
100% from Sun 01 Nov 02:00 EST
  0% from Sun 01 Nov 02:10 EST
`},
		"a zone that changes by half an hour": {
			warm.Schedule{window(t, "15 2 * * *", "1h", "Australia/Lord_Howe", 100)},
			"2026-10-03T12:00:00Z", "2026-10-04T15:00:00Z", `
  0% at first
100% from Sun 04 Oct 02:30 +11
  0% from Sun 04 Oct 03:30 +11
`},
		"windows that join change nothing": {
			warm.Schedule{window(t, "0 0 * * *", "24h", "UTC", 100)},
			"2026-02-01T12:00:00Z", "2026-06-01T00:00:00Z", "\n100% at first\n"},
		"a day of four years": {
			warm.Schedule{window(t, "0 0 29 2 *", "24h", "UTC", 100)},
			"2026-02-01T12:00:00Z", "2029-01-01T00:00:00Z", `
  0% at first
100% from Tue 29 Feb 00:00 UTC
  0% from Wed 01 Mar 00:00 UTC
`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), story(t, tc.schedule, tc.from, tc.to)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// minutely is the obvious version: it knows the readings of the wall clock at every minute
// of some days, and marks the minutes that follow each start.
func minutely(w warm.Window, from time.Time, minutes int) []bool {
	lead := int(w.Duration/time.Minute) + 26*60
	seen, shown := map[string]bool{}, map[string]bool{}
	reading := func(u time.Time) string { return u.In(w.Location).Format("2006-01-02 15:04") }
	for i := -lead; i < minutes; i++ {
		shown[reading(from.Add(time.Duration(i)*time.Minute))] = true
	}
	matches := func(wall time.Time) bool { return w.Starts.Next(wall.Add(-time.Minute)).Equal(wall) }
	out := make([]bool, minutes)
	mark := func(i int) {
		for j := max(0, i); j < min(minutes, i+int(w.Duration/time.Minute)); j++ {
			out[j] = true
		}
	}
	everyHour := w.Starts.(*cron.SpecSchedule).Hour&(1<<63) != 0
	for i := -lead; i < minutes; i++ {
		u := from.Add(time.Duration(i) * time.Minute)
		wall, _ := time.Parse("2006-01-02 15:04", reading(u))
		if matches(wall) && (everyHour || !seen[reading(u)]) {
			mark(i)
		}
		seen[reading(u)] = true
		// The readings between the last minute's and this one's were skipped.
		before, _ := time.Parse("2006-01-02 15:04", reading(u.Add(-time.Minute)))
		for skipped := before.Add(time.Minute); skipped.Before(wall); skipped = skipped.Add(time.Minute) {
			if matches(skipped) && !shown[skipped.Format("2006-01-02 15:04")] {
				mark(i)
			}
		}
	}
	return out
}

func TestAgreesWithEveryMinute(t *testing.T) {
	starts := []string{"0 7 * * *", "30 2 * * *", "*/20 1-3 * * *", "0 * * * *", "5 */2 * * *", "0 0 * * 0", "15 2,3 29 * *", "45 23 * * 6"}
	durations := []string{"1m", "10m", "1h", "90m", "12h", "30h"}
	days := map[string][]string{
		"Europe/Berlin":       {"2026-03-29", "2026-10-25", "2026-07-01"},
		"America/New_York":    {"2026-03-08", "2026-11-01"},
		"Australia/Lord_Howe": {"2026-04-05", "2026-10-04"},
		"America/St_Johns":    {"2026-03-08", "2026-11-01"},
		"Asia/Kathmandu":      {"2026-03-29"},
		"UTC":                 {"2026-03-29"},
	}
	random := rand.New(rand.NewPCG(7, 7))
	for zone, dates := range days {
		for _, date := range dates {
			from := at(t, date+"T00:00:00Z").Add(-30 * time.Hour)
			for range 6 {
				w := window(t, starts[random.IntN(len(starts))], durations[random.IntN(len(durations))], zone, 100)
				s := warm.Schedule{w}
				const minutes = 72 * 60
				want := minutely(w, from, minutes)
				changes := map[int]bool{}
				for now := from.Add(-time.Minute); ; {
					next, ok := s.NextChange(now)
					if !ok || !next.Before(from.Add(minutes*time.Minute)) {
						break
					}
					changes[int(next.Sub(from)/time.Minute)] = true
					now = next
				}
				for i := range want {
					u := from.Add(time.Duration(i) * time.Minute)
					if got := s.Share(u) > 0; got != want[i] {
						t.Fatalf("%s %v in %s at %s: open is %t, want %t", date, w.Starts, zone, u.In(w.Location), got, want[i])
					}
					if changed := i > 0 && want[i] != want[i-1]; i > 0 && changed != changes[i] {
						t.Fatalf("%s %s for %s at %s: change is %t, want %t", date, zone, w.Duration, u.In(w.Location), changes[i], changed)
					}
				}
			}
		}
	}
}

func TestNextChangeEnds(t *testing.T) {
	s := warm.Schedule{window(t, "* * * * *", "1m", "UTC", 100)}
	if next, ok := s.NextChange(at(t, "2026-01-01T00:00:30Z")); ok {
		t.Errorf("got a change at %s, want none: the windows join", next)
	}
}

func TestAmount(t *testing.T) {
	for name, tc := range map[string]struct{ full, share, want int }{
		"all":        {8, 100, 8},
		"none":       {8, 0, 0},
		"rounded up": {8, 51, 5},
		"one of one": {1, 1, 1},
		"negative":   {-3, 50, 0},
	} {
		if got := warm.Amount(tc.full, tc.share); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

func BenchmarkNextChange(b *testing.B) {
	starts, _ := cron.ParseStandard("* * * * *")
	berlin, _ := time.LoadLocation("Europe/Berlin")
	for name, s := range map[string]warm.Schedule{
		"windows=1/never": {{Starts: starts, Duration: time.Hour, Location: berlin, SharePercent: 100}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			now := time.Date(2026, time.March, 29, 0, 0, 0, 0, time.UTC)
			for b.Loop() {
				s.NextChange(now)
			}
		})
	}
}
