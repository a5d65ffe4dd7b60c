package reclaim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/reclaim"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// empty is a node that has been empty for some seconds.
func empty(name string, seconds int) reclaim.Standing {
	return reclaim.Standing{Name: name, EmptySince: noon.Add(-time.Duration(seconds) * time.Second)}
}

func kept(why reclaim.Keep, n reclaim.Standing) reclaim.Standing {
	n.Keep = why
	return n
}

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		after time.Duration
		room  int
		nodes []reclaim.Standing
		want  reclaim.Decision
	}{
		"nothing stands":                     {room: 10},
		"a node in use has no age":           {room: 10, nodes: []reclaim.Standing{{Name: "a"}}},
		"zero seconds take a node at once":   {room: 1, nodes: []reclaim.Standing{empty("a", 0)}, want: reclaim.Decision{Take: []reclaim.Standing{empty("a", 0)}}},
		"a node is due to the second":        {after: 30 * time.Second, room: 1, nodes: []reclaim.Standing{empty("a", 30)}, want: reclaim.Decision{Take: []reclaim.Standing{empty("a", 30)}}},
		"a younger one is waited for":        {after: 30 * time.Second, room: 1, nodes: []reclaim.Standing{empty("a", 29)}, want: reclaim.Decision{Next: time.Second}},
		"the next of several tells the time": {after: 30 * time.Second, room: 9, nodes: []reclaim.Standing{empty("a", 5), empty("b", 20), empty("c", 10)}, want: reclaim.Decision{Next: 10 * time.Second}},
		"the longest empty goes first": {room: 2, nodes: []reclaim.Standing{empty("a", 1), empty("b", 3), empty("c", 2)},
			want: reclaim.Decision{Take: []reclaim.Standing{empty("b", 3), empty("c", 2)}, OverBudget: []reclaim.Standing{empty("a", 1)}}},
		"names break ties": {room: 1, nodes: []reclaim.Standing{empty("b", 1), empty("a", 1)},
			want: reclaim.Decision{Take: []reclaim.Standing{empty("a", 1)}, OverBudget: []reclaim.Standing{empty("b", 1)}}},
		"no room takes none":         {room: 0, nodes: []reclaim.Standing{empty("a", 1)}, want: reclaim.Decision{OverBudget: []reclaim.Standing{empty("a", 1)}}},
		"room below zero is none":    {room: -3, nodes: []reclaim.Standing{empty("a", 1)}, want: reclaim.Decision{OverBudget: []reclaim.Standing{empty("a", 1)}}},
		"warm nodes are not told of": {room: 1, nodes: []reclaim.Standing{kept(reclaim.KeepWarm, empty("a", 1)), kept(reclaim.KeepInUse, empty("b", 1))}},
		"a forbidden one takes no room": {room: 1, nodes: []reclaim.Standing{kept(reclaim.KeepForbidden, empty("a", 2)), empty("b", 1)},
			want: reclaim.Decision{Take: []reclaim.Standing{empty("b", 1)}, Forbidden: []reclaim.Standing{kept(reclaim.KeepForbidden, empty("a", 2))}}},
		"a forbidden one that is not due is not told of": {after: time.Minute, room: 1, nodes: []reclaim.Standing{kept(reclaim.KeepForbidden, empty("a", 2))}, want: reclaim.Decision{Next: 58 * time.Second}},
		"a clock that was set back makes nodes younger":  {after: time.Second, room: 1, nodes: []reclaim.Standing{empty("a", -60)}, want: reclaim.Decision{Next: 61 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, reclaim.Decide(noon, tc.after, tc.room, tc.nodes), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The order in which nodes are given decides nothing, no node is told of twice, and room is
// never passed.
func TestDecideDependsOnNoOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	keeps := []reclaim.Keep{reclaim.KeepNot, reclaim.KeepNot, reclaim.KeepNot, reclaim.KeepInUse, reclaim.KeepWarm, reclaim.KeepForbidden}
	for round := range 200 {
		var nodes []reclaim.Standing
		for i := range random.IntN(30) {
			n := kept(keeps[random.IntN(len(keeps))], empty(fmt.Sprint("node-", i), random.IntN(20)))
			if random.IntN(4) == 0 {
				n.EmptySince = time.Time{}
			}
			nodes = append(nodes, n)
		}
		room, after := random.IntN(12), time.Duration(random.IntN(15))*time.Second
		want := reclaim.Decide(noon, after, room, nodes)
		random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		if diff := cmp.Diff(want, reclaim.Decide(noon, after, room, nodes)); diff != "" {
			t.Fatalf("round %d: another order gives another decision (-want +got):\n%s", round, diff)
		}
		if len(want.Take) > room {
			t.Fatalf("round %d: %d nodes taken with room for %d", round, len(want.Take), room)
		}
		seen := map[string]bool{}
		for _, list := range [][]reclaim.Standing{want.Take, want.Forbidden, want.OverBudget} {
			for _, n := range list {
				if seen[n.Name] || n.EmptySince.IsZero() || noon.Sub(n.EmptySince) < after {
					t.Fatalf("round %d: %+v is told of twice, holds work or is too young", round, n)
				}
				seen[n.Name] = true
			}
		}
	}
}
