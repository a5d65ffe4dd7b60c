package health_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

const reference = "../../../docs/reference/health-checks.md"

// TestReferenceIsOfThisCode compares the tables of the reference with the code's.
// UPDATE_REFERENCE=1 writes them.
func TestReferenceIsOfThisCode(t *testing.T) {
	data, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	want := string(data)
	for name, table := range map[string]string{"checks": checkTable(), "reasons": reasonTable(), "xids": xidTable()} {
		begin, end := "<!-- "+name+" -->\n", "<!-- end "+name+" -->"
		head, rest, ok := strings.Cut(want, begin)
		_, tail, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("the reference has no table %s", name)
		}
		want = head + begin + table + end + tail
	}
	if os.Getenv("UPDATE_REFERENCE") != "" {
		if err := os.WriteFile(reference, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("reference (-code +file), UPDATE_REFERENCE=1 writes it:\n%s", diff)
	}
}

func mark(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func checkTable() string {
	var b strings.Builder
	b.WriteString("| Check | Probed | Probe hangs | Probe fails |\n|---|---|---|---|\n")
	for _, c := range Checks() {
		where, fails := "once", Warning
		if c.PerGPU {
			where = "each GPU"
		}
		if c.Core {
			fails = Fatal
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Check, where, c.Hang, fails)
	}
	return b.String()
}

func reasonTable() string {
	var b strings.Builder
	b.WriteString("| Reason | Check | Severity | Action | While booting | Must persist | Meaning |\n|---|---|---|---|---|---|---|\n")
	for _, r := range Reasons() {
		check := "any"
		severity := "as the check"
		if r.Check != "" {
			check, severity = "`"+string(r.Check)+"`", string(r.Severity)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", r.Reason, check, severity, r.Action, mark(r.Boots), mark(r.Flaps), r.Means)
	}
	return b.String()
}

func xidTable() string {
	var b strings.Builder
	b.WriteString("| XID | Class | Name | AWS repairs by | Fatal for EKS | NVSentinel | Ignored by the device plugin |\n|---|---|---|---|---|---|---|\n")
	for _, x := range DefaultXIDs() {
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s | %s |\n", x.Code, x.Class, x.Name, x.AWS, mark(x.EKS), x.NVSentinel, mark(x.Plugin))
	}
	return b.String()
}
