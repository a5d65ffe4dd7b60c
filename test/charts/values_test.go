package charts_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	yamlv3 "gopkg.in/yaml.v3"
	"sigs.k8s.io/yaml"
)

// value is one documented key of a values.yaml.
type value struct {
	path, doc string
	// standard is the default in compact JSON.
	standard string
}

// values reads the keys that a "# --" comment documents. A key without one must hold keys
// that have one.
func values(t *testing.T, chart string) (found []value) {
	t.Helper()
	var document yamlv3.Node
	if err := yamlv3.Unmarshal([]byte(readFile(t, filepath.Join(chart, "values.yaml"))), &document); err != nil {
		t.Fatal(err)
	}
	var visit func(prefix string, node *yamlv3.Node)
	visit = func(prefix string, node *yamlv3.Node) {
		for i := 0; i < len(node.Content); i += 2 {
			key, content := node.Content[i], node.Content[i+1]
			path := strings.TrimPrefix(prefix+"."+key.Value, ".")
			_, doc, documented := strings.Cut(key.HeadComment, "# -- ")
			switch {
			case documented:
				found = append(found, value{path, strings.ReplaceAll(doc, "\n# ", " "), compact(t, content)})
			case content.Kind == yamlv3.MappingNode && len(content.Content) > 0:
				visit(path, content)
			default:
				t.Errorf("%s: %s has no comment that starts with \"# --\"", chart, path)
			}
		}
	}
	visit("", document.Content[0])
	return found
}

func compact(t *testing.T, node *yamlv3.Node) string {
	t.Helper()
	var v any
	if err := node.Decode(&v); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const (
	tableStart = "<!-- values -->\n"
	tableEnd   = "<!-- end values -->\n"
)

func TestGeneratedREADMEsTellEveryValue(t *testing.T) {
	for _, chart := range ourCharts {
		path := filepath.Join(chart, "README.md")
		text := readFile(t, path)
		before, rest, ok := strings.Cut(text, tableStart)
		_, after, closed := strings.Cut(rest, tableEnd)
		if !ok || !closed {
			t.Fatalf("%s lacks the lines %q and %q", path, tableStart, tableEnd)
		}
		table := "| Key | Default | Meaning |\n|---|---|---|\n"
		for _, v := range values(t, chart) {
			table += fmt.Sprintf("| `%s` | `%s` | %s |\n", v.path, v.standard, strings.ReplaceAll(v.doc, "|", "\\|"))
		}
		want := before + tableStart + table + tableEnd + after
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
			text = want
		}
		if diff := cmp.Diff(want, text); diff != "" {
			t.Errorf("%s is not up to date, %s (-want +got):\n%s", path, rewrite, diff)
		}
	}
}

// load reads YAML as Helm does.
func load(t *testing.T, path string) (tree map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(readFile(t, path)), &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// leaves flattens a tree: scalars, lists and empty objects by their path.
func leaves(tree map[string]any) map[string]any {
	flat := map[string]any{}
	for key, v := range tree {
		if child, ok := v.(map[string]any); ok && len(child) > 0 {
			for path, leaf := range leaves(child) {
				flat[key+"."+path] = leaf
			}
			continue
		}
		flat[key] = v
	}
	return flat
}

// at returns what lies at a path, and whether anything does. Keys may hold dots.
func at(tree map[string]any, path string) (any, bool) {
	if v, ok := tree[path]; ok {
		return v, true
	}
	key, rest, nested := strings.Cut(path, ".")
	v, ok := tree[key]
	if !nested || !ok {
		return v, ok
	}
	child, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	return at(child, rest)
}

// Every key of Karpenter's own chart is in ours, with the same default unless listed here.
func TestValuesAreASuperset(t *testing.T) {
	ours := load(t, filepath.Join(controller, "values.yaml"))
	changed := []string{"controller.image.repository", "controller.image.tag", "controller.image.digest", "initContainers"}
	for path, want := range leaves(load(t, filepath.Join(stock(t, "karpenter"), "values.yaml"))) {
		got, ok := at(ours, path)
		if !ok {
			t.Errorf("%s is missing", path)
			continue
		}
		if different := !cmp.Equal(want, got); different != slices.Contains(changed, path) {
			t.Errorf("%s: Karpenter's chart has %v, ours %v", path, want, got)
		}
	}
}

// TestFullValuesChangeEveryDefault makes sure that what is tested with testdata/*-full.yaml is
// tested with every option. Two of them exclude others, and are tested by themselves.
func TestFullValuesChangeEveryDefault(t *testing.T) {
	for _, chart := range ourCharts {
		full := load(t, fullValues(chart))
		tree := load(t, filepath.Join(chart, "values.yaml"))
		for _, v := range values(t, chart) {
			if slices.Contains([]string{"settings.enableDRA", "settings.featureGates.terminateFirstRepair"}, v.path) {
				continue
			}
			standard, _ := at(tree, v.path)
			if set, ok := at(full, v.path); !ok || cmp.Equal(standard, set) {
				t.Errorf("%s does not change %s", fullValues(chart), v.path)
			}
		}
	}
}

func fullValues(chart string) string {
	return filepath.Join("testdata", filepath.Base(chart)+"-full.yaml")
}

// valuesSchema is as much of a JSON schema as the test looks at.
type valuesSchema struct {
	Properties           map[string]valuesSchema `json:"properties"`
	AdditionalProperties any                     `json:"additionalProperties"`
}

// Every object with keys of ours is closed, and its keys are those of values.yaml.
func TestSchemasHaveTheKeysOfTheValues(t *testing.T) {
	for _, chart := range ourCharts {
		var s valuesSchema
		if err := json.Unmarshal([]byte(readFile(t, filepath.Join(chart, "values.schema.json"))), &s); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Properties["global"]; !ok {
			t.Errorf("%s: a parent chart could not use it, global is unknown", chart)
		}
		delete(s.Properties, "global") // Helm's own
		var visit func(path string, s valuesSchema, tree map[string]any)
		visit = func(path string, s valuesSchema, tree map[string]any) {
			if s.AdditionalProperties != false {
				t.Errorf("%s: %q takes any key", chart, path)
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(tree)), slices.Sorted(maps.Keys(s.Properties))); diff != "" {
				t.Errorf("%s: keys of %q (-values.yaml +schema):\n%s", chart, path, diff)
			}
			for key, child := range s.Properties {
				if subtree, ok := tree[key].(map[string]any); ok && len(child.Properties) > 0 && len(subtree) > 0 {
					visit(strings.TrimPrefix(path+"."+key, "."), child, subtree)
				}
			}
		}
		visit("", s, load(t, filepath.Join(chart, "values.yaml")))
	}
}
