package docs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLabelsReferenceIsComplete holds docs/reference/labels.md to the constants of pkg/apis:
// keys of labels, annotations and taints, types of conditions and their reasons.
func TestLabelsReferenceIsComplete(t *testing.T) {
	var want []string
	for _, c := range sources(t)["pkg/apis/v1alpha1"].constants {
		switch {
		case c.name == "ReadinessTaintKeyPrefix": // the prefix of a key
		case strings.HasSuffix(c.name, "Key"), strings.HasPrefix(c.name, "NodeCondition"), strings.HasPrefix(c.name, "ConditionType"),
			strings.HasPrefix(c.name, "Reason"), strings.HasPrefix(c.name, "Resource"):
			want = append(want, c.value)
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	if len(want) < 40 {
		t.Fatalf("found %d constants, the test has lost some", len(want))
	}
	got := slices.Compact(firstColumn(t, "docs/reference/labels.md"))
	got = slices.DeleteFunc(got, func(name string) bool { return name == "Ready" }) // operatorpkg's
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/reference/labels.md (-pkg/apis +documented):\n%s", diff)
	}
}
