package realnode

import "testing"

func TestMachineIsOfOneInstanceAtATime(t *testing.T) {
	l := NewLauncher(nil, nil)
	for i, step := range []struct {
		instance string
		ours     bool
	}{{"i-1", true}, {"i-2", false}, {"i-1", true}, {"", false}, {"i-2", false}, {"i-3", true}, {"i-3", true}, {"i-4", false}} {
		if step.instance == "" { // the machine's instance is terminated
			l.instance = ""
			continue
		}
		if got := l.take(step.instance); got != step.ours {
			t.Errorf("step %d: the machine is that of %s: %t", i, step.instance, got)
		}
	}
}
