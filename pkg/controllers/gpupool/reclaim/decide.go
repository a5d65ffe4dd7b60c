package reclaim

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Keep says why an empty node stays, whatever its age.
type Keep string

const (
	// KeepNot is that of a node that may go.
	KeepNot Keep = ""
	// KeepInUse is that of a node that somebody counts on, or is busy with, for a while: a
	// pending pod is nominated for it, it reboots, or Karpenter is about to remove it.
	KeepInUse Keep = "InUse"
	// KeepWarm is that of a node that holds warm capacity, or may hold some.
	KeepWarm Keep = "Warm"
	// KeepForbidden is that of a node that may not be disrupted: the node, its NodeClaim or a
	// pod on it has the annotation, or a PodDisruptionBudget lets a pod on it not go.
	KeepForbidden Keep = "Forbidden"
)

// Standing is a node of a NodePool as the decision sees it.
type Standing struct {
	// Name breaks ties, and is unique.
	Name string
	// EmptySince is since when the node has held no pods that count; zero while it holds any.
	EmptySince time.Time
	// Keep is why it stays.
	Keep Keep
	// Detail says more about Keep, for people.
	Detail string
}

// Decision says what becomes of the nodes of a NodePool.
type Decision struct {
	// Take are the nodes to remove, those that have been empty for longest first.
	Take []Standing
	// Forbidden are those that would go if they were not forbidden to.
	Forbidden []Standing
	// OverBudget are those that would go if the budget were larger.
	OverBudget []Standing
	// Next is how long it takes until another node is due; zero means that none will be.
	Next time.Duration
}

// Decide picks the nodes that have been empty for long enough, as many of them as room
// allows. Nodes that stay take no room. A clock that was set back makes nodes younger, never
// older.
func Decide(now time.Time, after time.Duration, room int, nodes []Standing) Decision {
	var d Decision
	for _, n := range byAge(nodes) {
		if n.EmptySince.IsZero() {
			continue
		}
		if wait := after - now.Sub(n.EmptySince); wait > 0 {
			if d.Next == 0 || wait < d.Next {
				d.Next = wait
			}
			continue
		}
		switch {
		case n.Keep == KeepForbidden:
			d.Forbidden = append(d.Forbidden, n)
		case n.Keep != KeepNot:
		case len(d.Take) >= room:
			d.OverBudget = append(d.OverBudget, n)
		default:
			d.Take = append(d.Take, n)
		}
	}
	return d
}

// byAge sorts a copy: the longest empty first, then by name.
func byAge(nodes []Standing) []Standing {
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b Standing) int {
		return cmp.Or(a.EmptySince.Compare(b.EmptySince), strings.Compare(a.Name, b.Name))
	})
	return sorted
}
