package docs_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// variable are the packages whose events take their reason from a set, and the set.
var variable = map[string]func(map[string]source) []string{
	"pkg/provisioning": func(all map[string]source) (reasons []string) {
		for _, c := range all["pkg/provisioning"].constants {
			if c.of == "RefusalKind" {
				reasons = append(reasons, c.value)
			}
		}
		return reasons
	},
	// Filling is no event: nodes are on their way.
	"pkg/controllers/gpupool/warm": func(all map[string]source) []string {
		return slices.DeleteFunc(reasonsOf(all, "WarmCapacityReady"), func(r string) bool { return r == "Filling" })
	},
}

// reasonsOf are the reasons with which a condition is False, by their comments.
func reasonsOf(all map[string]source, condition string) (reasons []string) {
	for _, c := range all["pkg/apis/v1alpha1"].constants {
		if strings.HasPrefix(c.name, "Reason") && strings.Contains(c.doc, " "+condition+"=False") {
			reasons = append(reasons, c.value)
		}
	}
	return reasons
}

// TestEveryEventIsDocumented finds the reasons of all events that the code publishes.
func TestEveryEventIsDocumented(t *testing.T) {
	all := sources(t)
	published := map[string]bool{}
	literals := 0
	for dir, s := range all {
		for name, file := range s.files {
			ast.Inspect(file, func(n ast.Node) bool {
				expr := reasonOfEvent(n)
				if expr == nil {
					return true
				}
				literals++
				if reason, ok := s.text(expr); ok {
					published[reason] = true
					return true
				}
				set, ok := variable[dir]
				if !ok {
					t.Errorf("%s/%s publishes an event whose reason is no constant", dir, name)
					return true
				}
				for _, reason := range set(all) {
					published[reason] = true
				}
				return true
			})
		}
	}
	if literals < 12 {
		t.Fatalf("found %d events in the code, the test has lost some", literals)
	}
	want := make([]string, 0, len(published))
	for reason := range published {
		want = append(want, reason)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, firstColumn(t, "docs/reference/events.md")); diff != "" {
		t.Errorf("reasons in docs/reference/events.md (-published +documented):\n%s", diff)
	}
}

// reasonOfEvent returns the field Reason of a composite literal that is an event: of type
// events.Event, or an element of a list of them, which has an InvolvedObject.
func reasonOfEvent(n ast.Node) (reason ast.Expr) {
	literal, ok := n.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	involved := false
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return nil
		}
		switch key, _ := pair.Key.(*ast.Ident); {
		case key == nil:
			return nil
		case key.Name == "InvolvedObject":
			involved = true
		case key.Name == "Reason":
			reason = pair.Value
		}
	}
	if !involved {
		return nil
	}
	return reason
}

// firstColumn are the names in code in the first column of the tables of a file, sorted.
func firstColumn(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(data), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}
