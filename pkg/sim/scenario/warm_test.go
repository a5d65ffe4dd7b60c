package scenario

import (
	"strings"
	"testing"
	"time"
)

func TestStartupIsTheMedianOfTheQuickest(t *testing.T) {
	s := &Snapshot{
		Pods: []Pod{
			{Labels: map[string]string{"app": "a"}, Phase: "Running", Startup: 30 * time.Second},
			{Labels: map[string]string{"app": "a"}, Phase: "Running", Startup: time.Second},
			{Labels: map[string]string{"app": "a"}, Phase: "Running", Startup: 2 * time.Second},
			{Labels: map[string]string{"app": "a"}, Phase: "Pending"},
			{Labels: map[string]string{"app": "b"}, Phase: "Running", Startup: time.Hour},
		},
		GonePods: []Pod{{Labels: map[string]string{"app": "a"}, Phase: "Succeeded", Startup: 4 * time.Second}},
	}
	for name, tc := range map[string]struct {
		quickest int
		limit    time.Duration
		want     string
	}{
		"of all, gone ones included":     {0, 3 * time.Second, ""},
		"of all, too long":               {0, 2999 * time.Millisecond, "pods app=a: median startup 3s, want at most 2.999s"},
		"of the two quickest":            {2, 1500 * time.Millisecond, ""},
		"of the two quickest, too long":  {2, time.Second, "pods app=a: median startup 1.5s, want at most 1s"},
		"of more than there are, as all": {9, 3 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := PodExpectation{PodSelection: PodSelection{Selector: "app=a"}, Count: *Exactly(4), Startup: &Startup{Name: "m", Quickest: tc.quickest, Median: Duration(tc.limit)}}
			if got := x.check(s); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCostBetweenCutsInstances(t *testing.T) {
	until := origin.Add(time.Hour)
	instances := []Instance{
		{Price: 1, Start: origin.Add(-time.Hour)},
		{Price: 2, Start: origin.Add(30 * time.Minute)},
		{Price: 4, Start: origin.Add(-time.Hour), End: origin.Add(15 * time.Minute)},
		{Price: 8, Start: until, End: until.Add(time.Hour)},
		{Price: 16, Start: origin.Add(-time.Hour), End: origin},
	}
	if got := costBetween(instances, origin, until); got != 1+1+1 {
		t.Errorf("got $%g, want $3", got)
	}
}

func TestWarmHoursAreToldInOneLine(t *testing.T) {
	var b strings.Builder
	r := &Result{WarmHours: &WarmHoursCost{HeldSeconds: 90, Cost: 2.5, ColdSeconds: 95, WarmSeconds: 21.5}}
	r.writeWarmHours(&b)
	want := "warm capacity: held for 90 s at $2.5000 ($100.00 an hour); the burst took 21.5 s in place of 95.0 s, 73.5 s were saved\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestTimesAreWrittenFromNowOn(t *testing.T) {
	for name, tc := range map[string]struct {
		now  time.Time
		text string
		want string
	}{
		"the next full minute":       {origin.Add(30 * time.Second), `start: "${cron +30s}"`, `start: "1 12 30 11 *"`},
		"not earlier than asked for": {origin.Add(31 * time.Second), `start: "${cron +30s}"`, `start: "2 12 30 11 *"`},
		"over midnight":              {origin.Add(11*time.Hour + 59*time.Minute), `${cron +1m} ${cron +2m}`, `0 0 1 12 * 1 0 1 12 *`},
		"in UTC":                     {origin.In(time.FixedZone("east", 3600)), `${cron +0s}`, `0 12 30 11 *`},
		"no duration":                {origin, `${cron +soon}`, `${cron +soon}`},
		"nothing to write":           {origin, `${HOME}`, `${HOME}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := expandTimes(tc.text, tc.now); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
