package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/rbac"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

// ErrUnneeded says that the charts grant what no scenario needed and no exception explains; the
// grants have been printed.
var ErrUnneeded = errors.New("the charts grant what nothing needs")

type rulesOptions struct {
	*root
	all bool
}

func newRules(r *root) *cobra.Command {
	o := &rulesOptions{root: r}
	cmd := &cobra.Command{
		Use:   "rules RESULTS...",
		Short: "Tell which of the charts' RBAC rules the scenarios needed",
		Long: `Tell which of the charts' RBAC rules the scenarios needed.

RESULTS are files that sandbox run --results wrote, of all scenarios together. A rule is taken apart
into verbs and resources. One that nothing used must be an exception with a reason, in
pkg/sim/rbac/unused.yaml.`,
		Args: cobra.MinimumNArgs(1),
		Example: `  sandbox run test/scenarios/*.yaml --results bin/results.json
  sandbox rules bin/results.json`,
		RunE: func(_ *cobra.Command, files []string) error { return o.run(files) },
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "list the rules that were used or excepted too")
	return cmd
}

func (o *rulesOptions) run(files []string) error {
	objects, err := rbac.Objects()
	if err != nil {
		return err
	}
	grants, err := rbac.Grants(objects)
	if err != nil {
		return err
	}
	except, err := rbac.Exceptions()
	if err != nil {
		return err
	}
	used, err := usedRules(files)
	if err != nil {
		return err
	}
	v := rbac.Judge(grants, used, except)
	if err := o.write(o.Out, v, len(grants)); err != nil {
		return err
	}
	if !v.OK() {
		return ErrUnneeded
	}
	return nil
}

// usedRules are those of all results.
func usedRules(files []string) ([]string, error) {
	var used []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("reading results, %w", err)
		}
		var results []scenario.Result
		if err := json.Unmarshal(data, &results); err != nil {
			return nil, fmt.Errorf("reading results of %s, %w", f, err)
		}
		for _, r := range results {
			used = append(used, r.UsedRules...)
		}
	}
	if len(used) == 0 {
		return nil, errors.New("the results have no rule that was used: play the scenarios with sandbox run --results, without --admin")
	}
	return used, nil
}

func (o *rulesOptions) write(w io.Writer, v rbac.Verdict, total int) error {
	lists := []struct {
		title string
		rules []string
		shown bool
	}{
		{"used", v.Used, o.all},
		{"excepted with a reason, in pkg/sim/rbac/unused.yaml", v.Excepted, o.all},
		{"excepted and used all the same: remove the exception unless it depends on timing", v.Idle, true},
		{"faults of the exceptions", v.Faults, true},
		{"granted and never used: remove the rule from the chart, play a scenario that needs it, or except it with a reason", v.Unneeded, true},
	}
	if _, err := fmt.Fprintf(w, "RBAC: %d grants, %d used, %d excepted, %d unneeded\n", total, len(v.Used), len(v.Excepted), len(v.Unneeded)); err != nil {
		return err
	}
	for _, l := range lists {
		if !l.shown || len(l.rules) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s\n", l.title); err != nil {
			return err
		}
		for _, r := range l.rules {
			if _, err := fmt.Fprintf(w, "  %s\n", r); err != nil {
				return err
			}
		}
	}
	return nil
}
