package charts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// excluded are options that do not go without others, with what the charts say about it. A value of
// null stands for an option that is not set at all.
var excluded = map[string]string{
	"driver.access":        "driver.library is \"\"",
	"driver.library":       "driver.library is \"\"",
	"settings.clusterName": "settings.clusterName is empty",
}

// TestEveryOptionAlone renders each chart with one value changed and all others at their defaults,
// and with all changed but one: an option that leans on another without saying so fails here.
func TestEveryOptionAlone(t *testing.T) {
	t.Parallel()
	helm := newRunner(t, "")
	for _, chart := range ourCharts {
		full := load(t, fullValues(chart))
		for _, v := range values(t, chart) {
			set, ok := at(full, v.path)
			if !ok {
				continue // excludes others; TestObjectsReplaceThoseOfKarpentersChart has it
			}
			var standard any
			if err := json.Unmarshal([]byte(v.standard), &standard); err != nil {
				t.Fatal(err)
			}
			t.Run(filepath.Base(chart)+" "+v.path, func(t *testing.T) {
				t.Parallel()
				mustRender(t, helm, chart, v.path, "--values="+valueFile(t, v.path, set))
				mustRender(t, helm, chart, v.path, "--values="+fullValues(chart), "--values="+valueFile(t, v.path, standard))
			})
		}
	}
}

// mustRender renders, and looks for a sign of an object; an excluded option has to be refused in
// the words of the chart.
func mustRender(t *testing.T, helm runner, chart, path string, args ...string) {
	t.Helper()
	args = append(required(t, chart), args...)
	out, err := helm.run(t, template(chart, args...)...)
	if refusal, ok := excluded[path]; ok && err != nil {
		if !strings.Contains(err.Error(), refusal) {
			t.Errorf("%q is not in the message:\n%v", refusal, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	if len(parse(t, out)) == 0 {
		t.Errorf("%v renders nothing", args)
	}
}

// valueFile writes a file that sets one key.
func valueFile(t *testing.T, path string, value any) string {
	t.Helper()
	for keys := strings.Split(path, "."); len(keys) > 0; keys = keys[:len(keys)-1] {
		value = map[string]any{keys[len(keys)-1]: value}
	}
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestEveryKeyRefusesAWrongType sets each documented key to something of another shape. The message
// has to lead to the key.
func TestEveryKeyRefusesAWrongType(t *testing.T) {
	t.Parallel()
	helm := newRunner(t, "")
	for _, chart := range ourCharts {
		for _, v := range values(t, chart) {
			wrong := any(map[string]any{"no-such-key": []any{[]any{1}}})
			if strings.HasPrefix(v.standard, "{") {
				wrong = "text"
			}
			t.Run(filepath.Base(chart)+" "+v.path, func(t *testing.T) {
				t.Parallel()
				_, err := helm.run(t, template(chart, append(required(t, chart), "--values="+valueFile(t, v.path, wrong))...)...)
				if err == nil {
					t.Fatalf("it takes %v", wrong)
				}
				if key := "/" + strings.ReplaceAll(v.path, ".", "/"); !strings.Contains(err.Error(), key) {
					t.Errorf("%s is not in the message:\n%v", key, err)
				}
			})
		}
	}
}

// required are arguments without which a chart does not render; later files win over them.
func required(t *testing.T, chart string) []string {
	t.Helper()
	if chart != controller {
		return nil
	}
	return []string{"--values=" + valueFile(t, "settings.clusterName", "test")}
}
