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
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/doctor"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/printer"
)

func TestExitCodesOfOtherVerbs(t *testing.T) {
	t.Chdir("../..")
	for name, tc := range map[string]struct {
		args []string
		want int
	}{
		"nothing is wrong":                          {[]string{"doctor", "-f", "examples/doctor/good.yaml", "--fail-on", "warning"}, cli.ExitOK},
		"there are errors":                          {[]string{"doctor", "-f", "examples/doctor/broken.yaml", "-o", "yaml"}, cli.ExitUnmet},
		"a pool that nobody has joined is no error": {[]string{"doctor", "-f", "examples/gpupools"}, cli.ExitOK},
		"but a warning":                             {[]string{"doctor", "-f", "examples/gpupools", "--fail-on", "warning"}, cli.ExitUnmet},
		"the file is nowhere":                       {[]string{"doctor", "-f", "nowhere"}, cli.ExitError},
		"the kubeconfig is nowhere":                 {[]string{"doctor", "--kubeconfig", "nowhere"}, cli.ExitError},
		"the kubeconfig of status is nowhere":       {[]string{"status", "--kubeconfig", "nowhere"}, cli.ExitError},
		"something is not carried over":             {[]string{"convert", "-f", "examples/convert"}, cli.ExitUnmet},
		"what is of this time is":                   {[]string{"convert", "-f", "examples/gpupools"}, cli.ExitOK},
	} {
		t.Run(name, func(t *testing.T) {
			if out, errs, code := execute(t, "", tc.args...); code != tc.want {
				t.Errorf("exit code %d, want %d; %s%s", code, tc.want, out, errs)
			}
		})
	}
}

func TestFaultyFlagsOfOtherVerbsSayWhatToDo(t *testing.T) {
	for want, args := range map[string][]string{
		`--output: "wide" is no format; use table, json or yaml`:                              {"status", "-o", "wide"},
		`--output: "tree" is no format; use table, json or yaml`:                              {"doctor", "-o", "tree"},
		`--fail-on: "all" is no severity; use error or warning`:                               {"doctor", "--fail-on", "all"},
		"--kubeconfig and --context are for a cluster; add --from-cluster, or leave them out": {"doctor", "-f", "x", "--context", "prod"},
		"file.yaml: no such argument; give files with -f":                                     {"doctor", "file.yaml"},
		`--output: "table" is no format; use yaml or json`:                                    {"convert", "-f", "x", "-o", "table"},
		"nothing to read; give files or directories with -f":                                  {"convert"},
		"reading x, no such file or directory":                                                {"convert", "-f", "x"},
		"standard input, document 1: kind: missing; write one, such as Deployment":            {"convert", "-f", "-"},
	} {
		out, errs, code := execute(t, "metadata: {name: a}", args...)
		if d := cmp.Diff("Error: "+want+"\n", errs); d != "" || out != "" || code != cli.ExitError {
			t.Errorf("%v: exit code %d, output %q, errors:\n%s", args, code, out, d)
		}
	}
}

// TestDoctorSaysTheSameInColor: and every finding of the JSON is in the table.
func TestDoctorSaysTheSameInColor(t *testing.T) {
	out, _, _ := execute(t, "", "doctor", "-f", "../../examples/doctor/broken.yaml", "-o", "json")
	r := &doctor.Report{}
	if err := json.Unmarshal([]byte(out), r); err != nil {
		t.Fatal(err)
	}
	var plain, colored bytes.Buffer
	if err := errors.Join(printer.Doctor(&plain, r, printer.Style{}), printer.Doctor(&colored, r, printer.Colors())); err != nil {
		t.Fatal(err)
	}
	stripped := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(colored.String(), "")
	if d := cmp.Diff(plain.String(), strings.TrimLeft(stripped, "\n")); d != "" || colored.Len() == plain.Len() {
		t.Error("colors change what is said", d)
	}
	for _, f := range r.Findings {
		for _, said := range []string{f.Message, f.Command, f.From} {
			if !strings.Contains(plain.String(), said) {
				t.Errorf("%q is not in the table", said)
			}
		}
	}
	if r.Errors == 0 || r.Errors+r.Warnings != len(r.Findings) {
		t.Errorf("%d errors, %d warnings of %d findings", r.Errors, r.Warnings, len(r.Findings))
	}
}

// TestConvertReadsStandardInput: and its output is read again by the other verbs.
func TestConvertReadsStandardInput(t *testing.T) {
	text, err := os.ReadFile("../../examples/convert/tensor-fusion.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out, _, _ := execute(t, string(text), "convert", "-f", "-")
	if !strings.HasPrefix(out, "# From standard input, document 1.\n# Not carried over, or with another meaning:\n# - spec.") {
		t.Errorf("output begins %q", strings.SplitN(out, "\n", 3))
	}
	found, errs, code := execute(t, out, "doctor", "-f", "-", "--fail-on", "warning")
	if code != cli.ExitOK {
		t.Errorf("doctor: exit code %d, %s%s", code, found, errs)
	}
}
