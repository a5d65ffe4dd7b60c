package charts_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent/access"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
)

const rewrite = "run `go test ./test/charts -run Generated -update`"

// generated are the files of the charts that have their source elsewhere, by path.
func generated(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{
		filepath.Join(definitions, "files", "karpenter-gpu.dev_gpupools.yaml"): string(apis.GPUPoolCRD),
		filepath.Join(agentChart, "templates", "access.yaml"):                  access.Template(),
	}
	dir := filepath.Join(moduleDir(t, awsModule), "pkg", "apis", "crds")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		files[filepath.Join(definitions, "files", e.Name())] = readFile(t, filepath.Join(dir, e.Name()))
	}
	return files
}

// Karpenter's definitions are those that its AWS provider of the pinned version embeds: it
// extends the NodePool and NodeClaim of Karpenter's core.
func TestGeneratedFilesAreThoseOfTheirSource(t *testing.T) {
	files := generated(t)
	for path, want := range files {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, readFile(t, path)); diff != "" {
			t.Errorf("%s is not that of its source, %s (-want +got):\n%s", path, rewrite, diff)
		}
	}
	entries, err := os.ReadDir(filepath.Join(definitions, "files"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := files[filepath.Join(definitions, "files", e.Name())]; !ok && e.Name() != "SOURCE.md" {
			t.Errorf("files/%s has no source", e.Name())
		}
	}
}

func TestPinnedVersionIsTold(t *testing.T) {
	dir := moduleDir(t, awsModule)
	version := dir[strings.LastIndex(dir, "@")+1:]
	for _, chart := range []string{definitions, controller} {
		if line := "karpenter-gpu.dev/karpenter-version: " + version; !strings.Contains(readFile(t, filepath.Join(chart, "Chart.yaml")), line) {
			t.Errorf("%s/Chart.yaml lacks %q", chart, line)
		}
	}
}

// Definitions are installed as generated, but for annotations.
func TestRenderedDefinitionsAreUnchanged(t *testing.T) {
	helm := newRunner(t, "")
	rendered := helm.render(t, definitions, "--set", "additionalAnnotations.team=a")
	var want, got []string
	for path, text := range generated(t) {
		if filepath.Dir(path) != filepath.Join(definitions, "files") {
			continue
		}
		source := parse(t, text)[0]
		want = append(want, source.GetName())
		u := one(t, rendered, "CustomResourceDefinition", source.GetName())
		annotations := source.GetAnnotations()
		annotations["team"], annotations["helm.sh/resource-policy"] = "a", "keep"
		source.SetAnnotations(annotations)
		if diff := cmp.Diff(source.Object, u.Object); diff != "" {
			t.Errorf("%s (-source +rendered):\n%s", source.GetName(), diff)
		}
	}
	for _, u := range rendered {
		got = append(got, u.GetName())
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, u := range helm.render(t, definitions, "--set", "keep=false") {
		if _, kept := u.GetAnnotations()["helm.sh/resource-policy"]; kept {
			t.Errorf("%s is kept", u.GetName())
		}
	}
}
