package health_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	. "github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// randomSample breaks a healthy node in up to four ways.
func randomSample(rng *rand.Rand) Sample {
	s := sample(1 + rng.IntN(8))
	for range rng.IntN(5) {
		g := &s.GPUs[rng.IntN(len(s.GPUs))]
		breakages := []func(){
			func() { g.Lost = true },
			func() { g.MIG.Pending = true },
			func() { g.ECC.SRAMThreshold = true },
			func() { g.Rows.RemapFailed = true },
			func() { g.NVLink.Active = rng.IntN(19) },
			func() { g.Fabric.State = FabricState(rng.IntN(4)) },
			func() { g.Throttle = ptr(rng.Uint64()) },
			func() { g.Recovery = ptr(rng.IntN(9)) },
			func() { g.PCIe.Width = rng.IntN(17) },
			func() {
				s.XIDs = append(s.XIDs, XIDEvent{Code: rng.IntN(200), GPU: g.Index, GI: rng.IntN(9) - 1, At: start})
			},
			func() {
				s.Probes = append(s.Probes, Probe{Checks()[rng.IntN(len(Checks()))].Check, g.Index, TimedOut, ""})
			},
			func() { s.Driver = []DriverState{DriverAbsent, DriverMismatched, DriverBroken}[rng.IntN(3)] },
		}
		breakages[rng.IntN(len(breakages))]()
	}
	return s
}

func TestJudgeProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		var m Memory
		now, changed := start, time.Time{}
		var last State
		for range 20 {
			s := randomSample(rng)
			now = now.Add(time.Duration(rng.IntN(180)) * time.Second)
			before := m
			v, next := Judge(s, Policy{}, m, now)
			again, _ := Judge(shuffled(rng, s), Policy{}, before, now)
			if diff := cmp.Diff(v, again); diff != "" {
				t.Fatalf("the order of a sample changes the verdict:\n%s", diff)
			}
			if v.State != last {
				last, changed = v.State, now
			}
			if !v.Since.Equal(changed) {
				t.Fatalf("since %s, the state changed at %s", v.Since, changed)
			}
			checkVerdict(t, v)
			checkDecoded(t, encode(t, NewReport(s, v, next)))
			m = next
		}
		// Whatever happened, a reboot into a healthy node is ready.
		s := sample(8)
		s.BootID = "fresh"
		if v, _ := Judge(s, Policy{}, m, now.Add(time.Second)); v.State != Ready {
			t.Fatalf("a healthy reboot is %s: %s", v.State, v.Message)
		}
	}
}

func checkVerdict(t *testing.T, v Verdict) {
	t.Helper()
	fatal := 0
	for _, f := range v.Findings {
		if f.Severity == Fatal {
			fatal++
		}
	}
	if (fatal == 0) != (v.State == Ready) || (v.State == Ready) != (v.Reason == ReasonVerified) {
		t.Fatalf("%d fatal faults, state %s, reason %s", fatal, v.State, v.Reason)
	}
}

// shuffled is the same sample with its unordered lists in another order.
func shuffled(rng *rand.Rand, s Sample) Sample {
	s.XIDs = append([]XIDEvent(nil), s.XIDs...)
	s.Probes = append([]Probe(nil), s.Probes...)
	rng.Shuffle(len(s.XIDs), func(i, j int) { s.XIDs[i], s.XIDs[j] = s.XIDs[j], s.XIDs[i] })
	rng.Shuffle(len(s.Probes), func(i, j int) { s.Probes[i], s.Probes[j] = s.Probes[j], s.Probes[i] })
	return s
}

func TestTablesAreWhole(t *testing.T) {
	owners := map[Check]bool{}
	seen := map[Reason]bool{}
	for _, r := range Reasons() {
		if seen[r.Reason] {
			t.Errorf("reason %s is there twice", r.Reason)
		}
		seen[r.Reason] = true
		owners[r.Check] = true
	}
	for _, c := range Checks() {
		if !owners[c.Check] {
			t.Errorf("check %s has no reason", c.Check)
		}
	}
}
