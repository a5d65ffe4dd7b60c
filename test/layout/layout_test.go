// Package layout_test checks the shape of the repository: which packages may
// import which, and that AGENTS.md maps every directory and command that exists.
package layout_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/karpenter-gpu/karpenter-gpu/"

// layers is the import order, lowest first. A package may import its own layer
// and lower ones.
var layers = []string{
	"pkg/apis",
	"pkg/gpu",
	"pkg/cloudprovider",
	"pkg/provisioning",
	"pkg/controllers",
	"pkg/operator",
	"cmd",
}

// pureOutside are the prefixes that pkg/gpu must not import: it takes values and
// returns values.
var pureOutside = []string{
	"context", "log", "k8s.io/", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/karpenter", "github.com/aws/",
	"github.com/go-logr/", "go.uber.org/zap", "github.com/NVIDIA/",
}

func TestImportsPointOneWay(t *testing.T) {
	for file, imports := range goFiles(t, false) {
		from := layer(file)
		for _, path := range imports {
			local, ok := strings.CutPrefix(path, module)
			if !ok {
				continue
			}
			if to := layer(local); from >= 0 && to > from {
				t.Errorf("%s imports %s: %s lies above %s", file, local, layers[to], layers[from])
			}
			if strings.HasPrefix(local, "pkg/sim") && !strings.HasPrefix(file, "pkg/sim") && !strings.HasPrefix(file, "cmd/sandbox") && !strings.HasPrefix(file, "test/") {
				t.Errorf("%s imports %s: the product does not know its simulator", file, local)
			}
		}
	}
}

func TestDomainIsPure(t *testing.T) {
	for file, imports := range goFiles(t, false) {
		if !strings.HasPrefix(file, "pkg/gpu/") {
			continue
		}
		for _, path := range imports {
			for _, bad := range pureOutside {
				if path == bad || strings.HasSuffix(bad, "/") && strings.HasPrefix(path, bad) || strings.HasPrefix(path, bad+"/") {
					t.Errorf("%s imports %s: pkg/gpu has no client, clock, context or logger", file, path)
				}
			}
		}
	}
}

func TestOnlyNVMLUsesCgo(t *testing.T) {
	for file, imports := range goFiles(t, true) {
		if slices.Contains(imports, "C") || slices.ContainsFunc(imports, func(p string) bool { return strings.HasPrefix(p, "github.com/NVIDIA/go-nvml") }) {
			if !strings.HasPrefix(file, "pkg/agent/nvml/") {
				t.Errorf("%s needs cgo: only pkg/agent/nvml may", file)
			}
		}
	}
}

func TestAgentsMapIsComplete(t *testing.T) {
	text := read(t, "AGENTS.md")
	for _, dir := range directories(t) {
		if !strings.Contains(text, "`"+dir+"`") {
			t.Errorf("AGENTS.md does not map `%s`", dir)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(m[1], "make ") {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("AGENTS.md maps `%s`, which does not exist", m[1])
		}
	}
}

func TestAgentsCommandsExist(t *testing.T) {
	makefile := read(t, "Makefile")
	text := read(t, "AGENTS.md")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`make ([a-z0-9-]+)").FindAllStringSubmatch(text, -1) {
		named[m[1]] = true
		if !regexp.MustCompile("(?m)^" + m[1] + ":").MatchString(makefile) {
			t.Errorf("AGENTS.md names `make %s`, which the Makefile lacks", m[1])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^([a-z0-9-]+):.*## ").FindAllStringSubmatch(makefile, -1) {
		if !named[m[1]] {
			t.Errorf("the Makefile offers %q, which AGENTS.md does not name", m[1])
		}
	}
}

// TestRelativeLinksResolve follows every relative link of the Markdown files.
func TestRelativeLinksResolve(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	walk(t, func(path string, d fs.DirEntry) {
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return
		}
		for _, m := range link.FindAllStringSubmatch(read(t, path), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, m[1])
			}
		}
	})
}

const root = "../.."

func layer(path string) int {
	return slices.IndexFunc(layers, func(l string) bool { return path == l || strings.HasPrefix(path, l+"/") })
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func walk(t *testing.T, visit func(path string, d fs.DirEntry)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() && (rel == "bin" || rel == ".git" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		visit(filepath.ToSlash(rel), d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// directories are those of the first two levels that hold a tracked kind of file.
func directories(t *testing.T) []string {
	t.Helper()
	var dirs []string
	walk(t, func(path string, d fs.DirEntry) {
		depth := strings.Count(path, "/")
		if d.IsDir() && path != "." && depth <= 1 && !strings.HasPrefix(path, ".") {
			dirs = append(dirs, path)
		}
	})
	return dirs
}

func goFiles(t *testing.T, tests bool) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	walk(t, func(path string, d fs.DirEntry) {
		if d.IsDir() || filepath.Ext(path) != ".go" || (!tests && strings.HasSuffix(path, "_test.go")) {
			return
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = []string{}
		for _, spec := range parsed.Imports {
			value, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			files[path] = append(files[path], value)
		}
	})
	if len(files) == 0 {
		t.Fatal("no Go file found: the test looks in the wrong place")
	}
	return files
}
