package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

func TestDelaysAreReadAsTheyArePrinted(t *testing.T) {
	for _, text := range []string{"2s", "2s..5s", "{median: 40s, p95: 1m30s}"} {
		var d Delay
		if err := yaml.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		if d.String() != text {
			t.Errorf("%s reads as %s", text, d)
		}
	}
}

func TestDelaysThatAreNone(t *testing.T) {
	for _, text := range []string{"soon", "-2s", "5s..2s", "2s..", "{median: 40s}", "{median: 40s, p95: 30s}", "{median: 0s, p95: 1s}", "{median: 1s, p95: 2s, max: 3s}", "[1s]"} {
		var d Delay
		if err := yaml.Unmarshal([]byte(text), &d); err == nil {
			t.Errorf("%s reads as %s", text, d)
		}
	}
}

func TestDrawsDependOnSeedAndKeyAlone(t *testing.T) {
	d := Delay{Min: time.Second, Max: time.Hour}
	if first, again := d.For(1, "a"), d.For(1, "a"); first != again {
		t.Error("the same seed and key drew two delays")
	}
	if d.For(1, "a") == d.For(2, "a") || d.For(1, "a") == d.For(1, "b") {
		t.Error("another seed or key drew the same")
	}
}

func TestDrawsFollowTheDistribution(t *testing.T) {
	const n = 4000
	draw := func(d Delay) []time.Duration {
		var all []time.Duration
		for i := range n {
			all = append(all, d.For(7, fmt.Sprint("node-", i)))
		}
		slices.Sort(all)
		return all
	}
	if got := draw(Fixed(3 * time.Second)); got[0] != 3*time.Second || got[n-1] != 3*time.Second {
		t.Errorf("fixed: %s to %s", got[0], got[n-1])
	}
	uniform := draw(Delay{Min: 10 * time.Second, Max: 20 * time.Second})
	if uniform[0] < 10*time.Second || uniform[n-1] > 20*time.Second || uniform[n/2] < 14*time.Second || uniform[n/2] > 16*time.Second {
		t.Errorf("uniform: %s, %s, %s", uniform[0], uniform[n/2], uniform[n-1])
	}
	long := draw(Delay{Median: 40 * time.Second, P95: 90 * time.Second})
	if m := long[n/2]; m < 38*time.Second || m > 42*time.Second {
		t.Errorf("median %s, want near 40s", m)
	}
	if p := long[n*95/100]; p < 82*time.Second || p > 98*time.Second {
		t.Errorf("95th percentile %s, want near 90s", p)
	}
	if long[0] <= 0 {
		t.Errorf("least %s", long[0])
	}
}
