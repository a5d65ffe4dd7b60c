package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Operators of selectors by Kubernetes' names.
const (
	OpIn           = "In"
	OpNotIn        = "NotIn"
	OpExists       = "Exists"
	OpDoesNotExist = "DoesNotExist"
	OpGt           = "Gt"
	OpLt           = "Lt"
	OpGte          = "Gte"
	OpLte          = "Lte"
)

// Selector is one requirement on a label.
type Selector struct {
	Key      string
	Operator string
	Values   []string
}

// String prints the selector as a reader of events expects it.
func (s Selector) String() string {
	if len(s.Values) == 0 {
		return s.Key + " " + s.Operator
	}
	return fmt.Sprintf("%s %s [%s]", s.Key, s.Operator, strings.Join(s.Values, ", "))
}

// Matches tells whether a set of labels satisfies the selector.
func (s Selector) Matches(labels map[string]string) bool {
	value, ok := labels[s.Key]
	switch s.Operator {
	case OpIn:
		return ok && slices.Contains(s.Values, value)
	case OpNotIn:
		return !ok || !slices.Contains(s.Values, value)
	case OpExists:
		return ok
	case OpDoesNotExist:
		return !ok
	}
	return ok && s.compares(value)
}

// compares applies the four numeric operators.
func (s Selector) compares(value string) bool {
	have, err := strconv.ParseInt(value, 10, 64)
	if err != nil || len(s.Values) != 1 {
		return false
	}
	want, err := strconv.ParseInt(s.Values[0], 10, 64)
	if err != nil {
		return false
	}
	switch s.Operator {
	case OpGt:
		return have > want
	case OpGte:
		return have >= want
	case OpLt:
		return have < want
	case OpLte:
		return have <= want
	}
	return false
}

// Suggestion is what an impossible selector most likely meant.
type Suggestion struct {
	// Key is the selector's key, or the nearest key where no node has that one.
	Key string
	// Value is the nearest possible value of Key; empty where the selector asks
	// for no value in particular.
	Value string
}

// String completes a sentence of an event, such as "nearest possible is
// nvidia.com/gpu.product=NVIDIA-A10G".
func (s Suggestion) String() string {
	if s.Value == "" {
		return "nearest possible is the label " + s.Key
	}
	return "nearest possible is " + s.Key + "=" + s.Value
}

// Nearest looks for what a selector may have meant among the labels of possible
// nodes, as Labels predicts them. It finds nothing where some node satisfies the
// selector, and where no node has labels. Ties go to the smaller value.
func Nearest(sel Selector, nodes []map[string]string) (Suggestion, bool) {
	values := map[string][]string{}
	for _, labels := range nodes {
		if sel.Matches(labels) {
			return Suggestion{}, false
		}
		for k, v := range labels {
			values[k] = append(values[k], v)
		}
	}
	if len(values) == 0 || sel.Operator == OpDoesNotExist {
		return Suggestion{}, false
	}
	key := sel.Key
	if _, ok := values[key]; !ok {
		key = closest(slices.Collect(maps.Keys(values)), []string{sel.Key})
	}
	return Suggestion{Key: key, Value: nearestValue(sel, values[key])}, true
}

func nearestValue(sel Selector, possible []string) string {
	switch sel.Operator {
	case OpExists, OpNotIn:
		return ""
	case OpIn:
		if len(sel.Values) == 0 {
			return ""
		}
		if v, ok := closestNumber(possible, sel.Values); ok {
			return v
		}
		return closest(possible, sel.Values)
	}
	if v, ok := closestNumber(possible, sel.Values); ok {
		return v
	}
	return closest(possible, sel.Values)
}

// closestNumber finds the number at the least distance from any wanted number.
// It fails where either side has none.
func closestNumber(possible, wanted []string) (string, bool) {
	have, want := numbers(possible), numbers(wanted)
	if len(have) == 0 || len(want) == 0 {
		return "", false
	}
	best := slices.MinFunc(have, func(a, b int64) int {
		return cmp.Or(cmp.Compare(distance(a, want), distance(b, want)), cmp.Compare(a, b))
	})
	return strconv.FormatInt(best, 10), true
}

// distance is exact over all of int64, as a difference of two fits in uint64.
func distance(n int64, want []int64) uint64 {
	best := uint64(1<<64 - 1)
	for _, w := range want {
		best = min(best, uint64(max(n, w))-uint64(min(n, w))) //nolint:gosec // two's complement: the difference is right
	}
	return best
}

func numbers(texts []string) []int64 {
	var out []int64
	for _, t := range texts {
		if n, err := strconv.ParseInt(t, 10, 64); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// closest finds the text nearest to any wanted one: first a text that contains
// it, else by edit distance, both without regard to case.
func closest(possible, wanted []string) string {
	type rank struct {
		apart, edits int
	}
	ranks := map[string]rank{}
	for _, p := range possible {
		if _, ok := ranks[p]; ok {
			continue
		}
		best := rank{2, 0}
		for _, w := range wanted {
			r := rank{1, edits(strings.ToLower(p), strings.ToLower(w))}
			if w != "" && strings.Contains(strings.ToLower(p), strings.ToLower(w)) {
				r.apart = 0
			}
			if r.apart < best.apart || r.apart == best.apart && r.edits < best.edits {
				best = r
			}
		}
		ranks[p] = best
	}
	return slices.MinFunc(slices.Collect(maps.Keys(ranks)), func(a, b string) int {
		return cmp.Or(cmp.Compare(ranks[a].apart, ranks[b].apart), cmp.Compare(ranks[a].edits, ranks[b].edits), strings.Compare(a, b))
	})
}

// maxEdited bounds the work on hostile input: label values are at most 63
// characters long, keys 317.
const maxEdited = 400

// edits is the Levenshtein distance of the first maxEdited bytes.
func edits(a, b string) int {
	a, b = a[:min(len(a), maxEdited)], b[:min(len(b), maxEdited)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
