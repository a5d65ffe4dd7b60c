package ice_test

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning/ice"
)

var (
	p5   = ice.Offering{Type: "p5.48xlarge", Zone: "us-east-1a", CapacityType: "spot"}
	p5b  = ice.Offering{Type: "p5.48xlarge", Zone: "us-east-1b", CapacityType: "spot"}
	zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func TestPause(t *testing.T) {
	for name, tc := range map[string]struct {
		inARow int
		want   time.Duration
	}{
		"no failure rests as the first": {0, 3 * time.Minute},
		"the first rests as AWS does":   {1, 3 * time.Minute},
		"each further one doubles":      {3, 12 * time.Minute},
		"the ceiling is reached":        {4, 24 * time.Minute},
		"and never passed":              {1 << 40, 24 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ice.Pause(tc.inARow); got != tc.want {
				t.Errorf("Pause(%d) = %v, want %v", tc.inARow, got, tc.want)
			}
		})
	}
}

// TestCycle counts the launches that a shortage of six hours costs: one that is tried
// whenever it may be.
func TestCycle(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(zero)
	m, tries := ice.New(clk), 0
	for range 6 * 60 {
		if !m.Pausing(p5) {
			tries++
			m.Failed(p5)
		}
		clk.SetTime(clk.Now().Add(time.Minute))
	}
	if tries < 15 || tries > 20 {
		t.Errorf("%d launches in six hours, want 15 to 20 in place of the 120 of a pause of three minutes", tries)
	}
	if m.Pausing(p5b) {
		t.Error("a zone pauses for the failures of another")
	}
}

func TestMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		play func(m *ice.Memory, step func(time.Duration))
		want bool
	}{
		"a failure makes it pause": {func(m *ice.Memory, _ func(time.Duration)) { m.Failed(p5) }, true},
		"the pause ends":           {func(m *ice.Memory, step func(time.Duration)) { m.Failed(p5); step(3 * time.Minute) }, false},
		"a second failure pauses for longer": {func(m *ice.Memory, step func(time.Duration)) {
			m.Failed(p5)
			step(3 * time.Minute)
			m.Failed(p5)
			step(4 * time.Minute)
		}, true},
		"failures during a pause count once": {func(m *ice.Memory, step func(time.Duration)) {
			m.Failed(p5, p5, p5)
			m.Failed(p5)
			step(3 * time.Minute)
		}, false},
		"success ends the pause": {func(m *ice.Memory, _ func(time.Duration)) { m.Failed(p5); m.Succeeded(p5) }, false},
		"an hour after the pause a failure is the first": {func(m *ice.Memory, step func(time.Duration)) {
			m.Failed(p5)
			step(64 * time.Minute)
			m.Failed(p5)
			step(3 * time.Minute)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(zero)
			m := ice.New(clk)
			tc.play(m, func(d time.Duration) { clk.SetTime(clk.Now().Add(d)) })
			if got := m.Pausing(p5); got != tc.want || m.Any() != tc.want {
				t.Errorf("Pausing() = %v and Any() = %v, want %v", got, m.Any(), tc.want)
			}
		})
	}
}
