package app

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/rbac"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

// resultsOf writes a file of one scenario's results for each list of rules that it used.
func resultsOf(t *testing.T, used ...[]string) string {
	t.Helper()
	var results []scenario.Result
	for _, u := range used {
		results = append(results, scenario.Result{UsedRules: u})
	}
	data, err := json.Marshal(results)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "results.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// needed are all grants but the excepted ones.
func needed(t *testing.T) []string {
	t.Helper()
	objects, err := rbac.Objects()
	if err != nil {
		t.Fatal(err)
	}
	grants, err := rbac.Grants(objects)
	if err != nil {
		t.Fatal(err)
	}
	except, err := rbac.Exceptions()
	if err != nil {
		t.Fatal(err)
	}
	return rbac.Judge(grants, nil, except).Unneeded
}

func TestRulesAreTakenFromAllResults(t *testing.T) {
	all := needed(t)
	half := len(all) / 2
	out, _, err := command(t, "rules", resultsOf(t, all[:1], all[1:half]), resultsOf(t, all[half:]))
	if err != nil || !strings.Contains(out, " 0 unneeded\n") {
		t.Errorf("got %v and\n%s", err, out)
	}
	if strings.Contains(out, all[0]) {
		t.Errorf("a rule that is used is listed without --all:\n%s", out)
	}
	out, _, err = command(t, "rules", "--all", resultsOf(t, all))
	if err != nil || !strings.Contains(out, "used\n  "+all[0]+"\n") || !strings.Contains(out, "excepted with a reason, in pkg/sim/rbac/unused.yaml\n") {
		t.Errorf("--all: got %v and\n%s", err, out)
	}
}

func TestARuleThatNothingNeedsIsToldWithTheWayOut(t *testing.T) {
	all := needed(t)
	out, _, err := command(t, "rules", resultsOf(t, all[1:]))
	if !errors.Is(err, ErrUnneeded) {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{" 1 unneeded\n", "remove the rule from the chart, play a scenario that needs it, or except it with a reason\n  " + all[0] + "\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestResultsWithoutRulesAreNoVerdict(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		resultsOf(t, nil): "the results have no rule that was used: play the scenarios with sandbox run --results, without --admin",
		broken:            "reading results of " + broken,
		broken + ".none":  "reading results, open",
	} {
		_, _, err := command(t, "rules", file)
		if err == nil || errors.Is(err, ErrUnneeded) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
