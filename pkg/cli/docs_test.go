package cli_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clock "k8s.io/utils/clock/testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/doctor"
)

var update = flag.Bool("update", false, "rewrite the outputs in the documentation")

// fixed is the clock of all commands.
var fixed = clock.NewFakeClock(time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC))

// execute runs the command as main does, from the root of the repository.
func execute(t *testing.T, stdin string, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	cmd := cli.New(cli.Streams{In: strings.NewReader(stdin), Out: &o, Err: &e}, fixed)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(context.Background())
	if err != nil && !cli.IsUnmet(err) {
		fmt.Fprintln(&e, "Error:", err)
	}
	return o.String(), e.String(), cli.ExitCode(err)
}

var example = regexp.MustCompile("(?s)```console\n\\$ kubectl gpupool ([^\n]*)\n(.*?)```")

// TestExamplesOfTheReferenceAreTrue runs every example of the reference and compares
// its whole output. With -update it writes the outputs into the page.
func TestExamplesOfTheReferenceAreTrue(t *testing.T) {
	t.Chdir("../..")
	const page = "docs/reference/kubectl-gpupool.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	got := example.ReplaceAllStringFunc(string(text), func(block string) string {
		examples++
		command := example.FindStringSubmatch(block)[1]
		out, errs, _ := execute(t, "", strings.Fields(command)...)
		return "```console\n$ kubectl gpupool " + command + "\n" + out + errs + "```"
	})
	if examples < 13 {
		t.Errorf("found %d examples only", examples)
	}
	if *update {
		if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(text), got); d != "" {
		t.Errorf("the page is not what the command says; run go test -update in this package and read the difference:\n%s", d)
	}
}

// TestReferenceListsEveryReason: the table of doctor has its reasons, each once and no other.
func TestReferenceListsEveryReason(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/kubectl-gpupool.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []doctor.Reason
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (?:cluster|both) \\|").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, doctor.Reason(m[1]))
	}
	if d := cmp.Diff(doctor.Reasons(), listed); d != "" {
		t.Error(d)
	}
}
