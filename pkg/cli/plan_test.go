package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/planner"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/printer"
)

func TestExitCodes(t *testing.T) {
	t.Chdir("../..")
	for name, tc := range map[string]struct {
		args []string
		want int
	}{
		"every pod has a node":      {[]string{"plan", "-f", "examples/plan/inference.yaml"}, cli.ExitOK},
		"some pod has none":         {[]string{"plan", "-f", "examples/plan/unplaced.yaml"}, cli.ExitUnmet},
		"the input is faulty":       {[]string{"plan", "-f", "pkg/cli/testdata/faults.yaml"}, cli.ExitError},
		"a flag is unknown":         {[]string{"plan", "--fast"}, cli.ExitError},
		"the verb is unknown":       {[]string{"plot"}, cli.ExitError},
		"help is no error":          {[]string{"plan", "--help"}, cli.ExitOK},
		"the kubeconfig is nowhere": {[]string{"plan", "--from-cluster", "--kubeconfig", "nowhere"}, cli.ExitError},
		"nothing at all is asked":   {nil, cli.ExitOK},
	} {
		t.Run(name, func(t *testing.T) {
			if _, errs, code := execute(t, "", tc.args...); code != tc.want {
				t.Errorf("exit code %d, want %d; %s", code, tc.want, errs)
			}
		})
	}
}

func TestCorrectionsOfTheCatalogueCount(t *testing.T) {
	t.Chdir("../..")
	plan := []string{"plan", "-f", "examples/plan/inference.yaml"}
	before, _, _ := execute(t, "", plan...)
	after, errs, code := execute(t, "", append(plan, "--gpu-catalog-file", "pkg/cli/testdata/catalog.yaml")...)
	if code != cli.ExitOK || !strings.Contains(before, "g6.xlarge ") || strings.Contains(after, "g6.xlarge ") {
		t.Errorf("exit code %d %s; with g6.xlarge at $9.99:\n%s", code, errs, after)
	}
}

func TestFaultyFlagsSayWhatToDo(t *testing.T) {
	for want, args := range map[string][]string{
		"nothing to read; give files or directories with -f, or --from-cluster":                  {},
		`--output: "wide" is no format; use table, json or yaml`:                                 {"-f", "x", "-o", "wide"},
		`--compare: "karpenter" cannot be compared with; use stock`:                              {"-f", "x", "--compare", "karpenter"},
		"--kubeconfig and --context are for --from-cluster; add it, or leave them out":           {"-f", "x", "--context", "prod"},
		"file.yaml: no such argument; give files with -f":                                        {"file.yaml"},
		"the spot price is 0 percent of on-demand; use 1 to 100":                                 {"-f", "x", "--spot-price-percent", "0"},
		`zones are ["a" ""]; name at least one and no empty one, such as us-east-1a`:             {"-f", "x", "--zones", "a,"},
		"--gpu-catalog-file: reading the file, open nowhere: no such file or directory":          {"-f", "x", "--gpu-catalog-file", "nowhere"},
		"reading x, no such file or directory":                                                   {"-f", "x"},
		"there is no NodePool among the input; give the file that has it, or use --from-cluster": {"-f", "-"},
	} {
		out, errs, code := execute(t, "", append([]string{"plan"}, args...)...)
		if d := cmp.Diff("Error: "+want+"\n", errs); d != "" || out != "" || code != cli.ExitError {
			t.Errorf("%v: exit code %d, output %q, errors:\n%s", args, code, out, d)
		}
	}
}

func TestStandardInputIsRead(t *testing.T) {
	text, err := os.ReadFile("../../examples/plan/inference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out, errs, code := execute(t, string(text), "plan", "-f", "-", "-o", "json")
	var p planner.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != cli.ExitOK {
		t.Fatalf("exit code %d, %v, %s", code, err, errs)
	}
	if len(p.Decision.Nodes) != 10 || p.Stock != nil {
		t.Errorf("%d nodes, stock %v", len(p.Decision.Nodes), p.Stock)
	}
}

// TestColorsChangeNothingThatIsSaid: nor does a buffer get any.
func TestColorsChangeNothingThatIsSaid(t *testing.T) {
	out, _, _ := execute(t, "", "plan", "-f", "../../examples/plan/unplaced.yaml", "--compare", "stock")
	if strings.Contains(out, "\x1b") {
		t.Error("there are escape sequences in a buffer")
	}
	text, _, _ := execute(t, "", "plan", "-f", "../../examples/plan/unplaced.yaml", "--compare", "stock", "-o", "json")
	var p planner.Plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	var plain, colored bytes.Buffer
	if err := errors.Join(printer.Plan(&plain, &p, printer.Style{}), printer.Plan(&colored, &p, printer.Colors())); err != nil {
		t.Fatal(err)
	}
	stripped := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(colored.String(), "")
	if d := cmp.Diff(plain.String(), strings.TrimLeft(stripped, "\n")); d != "" || colored.Len() == plain.Len() {
		t.Error("colors change what is said", d)
	}
}
