// Package charts_test holds what the charts promise: definitions as their modules have them,
// a README that tells every value, schemas that name a wrong key, objects that replace those
// of Karpenter's own chart in place, and an upgrade and a way back on a real API server.
//
// What needs no Helm runs everywhere. The rest runs the real one, bin/helm, built by
//
//	go -C tools/helm build -o ../../bin/helm helm.sh/helm/v4/cmd/helm
//
// and is skipped without it unless KPGPU_REQUIRE_HELM is set. KPGPU_HELM names another binary,
// such as Helm 3, for all but the test of the notes: its dry run needs a cluster. Karpenter's
// own charts are read from the module of the pinned version, never copied.
package charts_test

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

var update = flag.Bool("update", false, "rewrite definitions, the agent's access and README tables of the charts")

const (
	root        = "../.."
	requireHelm = "KPGPU_REQUIRE_HELM"
	otherHelm   = "KPGPU_HELM"
	awsModule   = "github.com/aws/karpenter-provider-aws"
)

// The charts, by directory.
var (
	definitions = filepath.Join(root, "charts", "karpenter-gpu-crd")
	controller  = filepath.Join(root, "charts", "karpenter-gpu")
	agentChart  = filepath.Join(root, "charts", "gpu-agent")
	ourCharts   = []string{definitions, controller, agentChart}
)

// moduleDir is where the source of a module of the pinned version lies.
var moduleDir = func() func(t *testing.T, module string) string {
	var mu sync.Mutex
	known := map[string]string{}
	return func(t *testing.T, module string) string {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if known[module] == "" {
			out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
			if err != nil {
				t.Fatalf("finding the source of %s, %v", module, err)
			}
			known[module] = strings.TrimSpace(string(out))
		}
		return known[module]
	}
}()

// stock is the directory of one of Karpenter's own charts.
func stock(t *testing.T, chart string) string {
	t.Helper()
	return filepath.Join(moduleDir(t, awsModule), "charts", chart)
}

// runner runs Helm against one cluster, or none.
type runner struct {
	path string
	env  []string
}

func newRunner(t *testing.T, kubeconfig string) runner {
	t.Helper()
	path, err := filepath.Abs(cmp.Or(os.Getenv(otherHelm), filepath.Join(root, "bin", "helm")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if os.Getenv(requireHelm) != "" {
			t.Fatalf("%s is set and there is no Helm, %v", requireHelm, err)
		}
		t.Skipf("no Helm, build it with `go -C tools/helm build -o ../../bin/helm helm.sh/helm/v4/cmd/helm`, %v", err)
	}
	home := t.TempDir()
	return runner{path: path, env: []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig,
		"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
	}}
}

// run returns what Helm prints; an error holds what it complains about.
func (r runner) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), r.path, args...)
	cmd.Env = r.env
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return out.String(), errors.New(strings.TrimSpace(complaints.String() + " (" + err.Error() + ")"))
	}
	return out.String(), nil
}

func (r runner) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.run(t, args...)
	if err != nil {
		t.Fatalf("helm %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// render returns the objects of a chart as release karpenter in namespace karpenter, unless
// the arguments say otherwise.
func (r runner) render(t *testing.T, chart string, args ...string) []*unstructured.Unstructured {
	t.Helper()
	return parse(t, r.must(t, template(chart, args...)...))
}

func template(chart string, args ...string) []string {
	release := "karpenter"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		release, args = args[0], args[1:]
	}
	return append([]string{"template", release, chart, "--namespace=karpenter", "--kube-version=1.37.0"}, args...)
}

func parse(t *testing.T, manifest string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4<<10); ; {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(u)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(u.Object) > 0 {
			objects = append(objects, u)
		}
	}
}

// one returns the object of a kind and name, or fails.
func one(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	if u := find(objects, kind, "", name); u != nil {
		return u
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

// find looks an object up; an empty namespace is any.
func find(objects []*unstructured.Unstructured, kind, namespace, name string) *unstructured.Unstructured {
	for _, u := range objects {
		if u.GetKind() == kind && u.GetName() == name && (namespace == "" || u.GetNamespace() == namespace) {
			return u
		}
	}
	return nil
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
