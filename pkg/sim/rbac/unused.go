package rbac

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed unused.yaml
var exceptions []byte

// Exception says why a chart grants what no scenario needs.
type Exception struct {
	// Reason is for the reader, and needed.
	Reason string `json:"reason"`
	// Grants are those excepted, as Grant.String writes them.
	Grants []string `json:"grants"`
}

// Exceptions returns those of unused.yaml.
func Exceptions() ([]Exception, error) {
	var list []Exception
	if err := yaml.UnmarshalStrict(exceptions, &list); err != nil {
		return nil, fmt.Errorf("reading unused.yaml, %w", err)
	}
	return list, nil
}

// Verdict says which grants are justified, and by what.
type Verdict struct {
	Used, Excepted []string
	// Unneeded are grants that nothing used and no exception explains: faults.
	Unneeded []string
	// Faults are those of the exceptions themselves.
	Faults []string
	// Idle are exceptions of grants that were used, so that they may go. They are no fault: what a
	// scenario needs may depend on its timing.
	Idle []string
}

// OK reports whether each grant is used or excepted, and each exception sound.
func (v Verdict) OK() bool { return len(v.Unneeded) == 0 && len(v.Faults) == 0 }

// Judge compares what the charts grant with what was used. All lists of the result are sorted.
func Judge(grants []Grant, used []string, except []Exception) Verdict {
	var v Verdict
	reasons := map[string]string{}
	for i, e := range except {
		if strings.TrimSpace(e.Reason) == "" {
			v.Faults = append(v.Faults, fmt.Sprintf("exception %d gives no reason: say why the chart grants what no scenario needs", i+1))
		}
		for _, g := range e.Grants {
			if _, twice := reasons[g]; twice {
				v.Faults = append(v.Faults, fmt.Sprintf("%s is excepted twice: remove one", g))
			}
			reasons[g] = e.Reason
			if !slices.ContainsFunc(grants, func(known Grant) bool { return known.String() == g }) {
				v.Faults = append(v.Faults, fmt.Sprintf("%s is excepted and no chart grants it: remove the exception", g))
			}
		}
	}
	for _, g := range grants {
		name := g.String()
		_, excepted := reasons[name]
		switch {
		case slices.Contains(used, name) && excepted:
			v.Idle = append(v.Idle, name)
			v.Used = append(v.Used, name)
		case slices.Contains(used, name):
			v.Used = append(v.Used, name)
		case excepted:
			v.Excepted = append(v.Excepted, name)
		default:
			v.Unneeded = append(v.Unneeded, name)
		}
	}
	slices.Sort(v.Faults)
	return v
}
