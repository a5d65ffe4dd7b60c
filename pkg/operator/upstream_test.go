package operator_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// update rewrites the recorded lists. Run it only after having decided, for each
// line that changed, what the change means for us (designs/0001-drop-in.md).
var update = flag.Bool("update", false, "rewrite the recorded upstream lists")

// TestUpstreamHasNoNewStep compares what upstream does at start with the list
// that pkg/operator was written against: the calls of the provider's main, the
// constructors in both NewControllers, and the watches of the controller that
// gpupool/reclaim.Holder registers in place of its own.
func TestUpstreamHasNoNewStep(t *testing.T) {
	aws := moduleDir(t, "github.com/aws/karpenter-provider-aws")
	core := moduleDir(t, "sigs.k8s.io/karpenter")
	for name, tc := range map[string]struct{ file, function string }{
		"aws_main.txt":         {filepath.Join(aws, "cmd/controller/main.go"), "main"},
		"aws_controllers.txt":  {filepath.Join(aws, "pkg/controllers/controllers.go"), "NewControllers"},
		"core_controllers.txt": {filepath.Join(core, "pkg/controllers/controllers.go"), "NewControllers"},
		"core_disruption.txt":  {filepath.Join(core, "pkg/controllers/nodeclaim/disruption/controller.go"), "Register"},
	} {
		t.Run(name, func(t *testing.T) {
			compareWithRecord(t, name, calls(t, tc.file, tc.function))
		})
	}
}

// TestUpstreamCloudProviderMethods makes a method that upstream adds to the
// CloudProvider interface a decision: pass it through, or decorate it.
func TestUpstreamCloudProviderMethods(t *testing.T) {
	iface := reflect.TypeFor[corecloudprovider.CloudProvider]()
	var methods []string
	for i := range iface.NumMethod() {
		m := iface.Method(i)
		methods = append(methods, m.Name+strings.TrimPrefix(m.Type.String(), "func"))
	}
	compareWithRecord(t, "cloudprovider_methods.txt", methods)
}

func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("finding the source of %s: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}

// calls returns, in source order, every call pkg.Name(...) within one function.
func calls(t *testing.T, file, function string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	type call struct {
		pos  token.Pos
		name string
	}
	var found []call
	for _, decl := range parsed.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Name.Name != function {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				if name := callee(c.Fun); name != "" {
					found = append(found, call{c.Pos(), name})
				}
			}
			return true
		})
	}
	if len(found) == 0 {
		t.Fatalf("no call found in %s of %s: upstream moved it, look where it went", function, file)
	}
	slices.SortStableFunc(found, func(a, b call) int { return int(a.pos - b.pos) })
	names := make([]string, len(found))
	for i, c := range found {
		names[i] = c.name
	}
	return names
}

func callee(fun ast.Expr) string {
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
		return "." + f.Sel.Name
	case *ast.IndexExpr:
		return callee(f.X)
	}
	return ""
}

func compareWithRecord(t *testing.T, name string, got []string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	text := strings.Join(got, "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("upstream differs from what pkg/operator was written against (-recorded +upstream).\n"+
			"Decide what each line means for the drop-in, then run: go test ./pkg/operator -update\n%s", diff)
	}
}
