package docs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

// sandboxed begins a command that is for the cluster of a sandbox.
const sandboxed = `kubectl --kubeconfig "$(bin/sandbox status -o kubeconfig)" `

const (
	installStock = "helm install karpenter-crd $STOCK/karpenter-crd --namespace karpenter --create-namespace && " +
		"helm install karpenter $STOCK/karpenter --namespace karpenter --set settings.clusterName=prod"
	installOurs = "helm install karpenter-crd charts/karpenter-gpu-crd --namespace karpenter --create-namespace && " +
		"helm install karpenter charts/karpenter-gpu --namespace karpenter --set settings.clusterName=prod"
	makeNodePool = "kubectl apply -f test/docs/testdata/nodepool.yaml"
)

// patience bounds one command, on a machine that compiles meanwhile.
const patience = 3 * time.Minute

// before is what stands in the cluster when a reader comes to a section, by page and section.
// Sections that are not here start on a cluster with our charts.
var before = map[string]string{
	"docs/installation.md, With Karpenter already there": installStock + " && " + makeNodePool,
	"docs/installation.md, On a new cluster":             "true",
	"docs/installation.md, Way back": installStock + " && helm upgrade karpenter charts/karpenter-gpu --namespace karpenter --reset-then-reuse-values && " +
		"kubectl label node gpu-1 karpenter-gpu.dev/pool=inference && kubectl taint node gpu-1 readiness.karpenter-gpu.dev/unverified=:NoSchedule",
	"docs/installation.md, The GPU Operator": installOurs + " && kubectl create namespace gpu-operator",
	"charts/karpenter-gpu/README.md, ":       installStock,
	"charts/karpenter-gpu-crd/README.md, ":   "true",
}

// afterwards takes everything away again, whatever a section has installed. Definitions stay
// where the chart keeps them.
const afterwards = "kubectl delete nodepools,gpupools --all --timeout=30s; " +
	"for r in $(helm list --namespace karpenter --short); do helm uninstall $r --namespace karpenter; done; " +
	"kubectl label node gpu-1 karpenter-gpu.dev/pool-; kubectl taint node gpu-1 readiness.karpenter-gpu.dev/unverified- || true"

// TestCommandsOnACluster runs the commands of each section in their order on a real API server,
// with the real Helm and kubectl. Nothing runs the pods of what they install.
func TestCommandsOnACluster(t *testing.T) {
	shell := newShell(t)
	bySection := map[string][]command{}
	var order []string
	for _, page := range pages(t) {
		for _, c := range commands(t, page) {
			if c.needs != cluster && !strings.HasPrefix(c.line, sandboxed) {
				continue
			}
			key := page + ", " + c.section
			if len(bySection[key]) == 0 {
				order = append(order, key)
			}
			bySection[key] = append(bySection[key], c)
		}
	}
	if len(order) < 6 {
		t.Errorf("found %d sections with commands for a cluster, the test has lost some", len(order))
	}
	for _, key := range order {
		t.Run(key, func(t *testing.T) {
			prepare, ok := before[key]
			if !ok {
				prepare = installOurs
			}
			defer shell.run(t, afterwards)
			shell.run(t, prepare)
			for _, c := range bySection[key] {
				shell.run(t, strings.Replace(c.line, sandboxed, "kubectl ", 1))
			}
		})
	}
	for key := range before {
		if len(bySection[key]) == 0 {
			t.Errorf("section %q has no commands for a cluster any more", key)
		}
	}
}

// shell runs commands as a reader does, from the root of the repository.
type shell []string

// newShell starts an API server. It skips without Helm, kubectl or the server's binaries, unless
// they are required.
func newShell(t *testing.T) shell {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	for variable, file := range map[string]string{"KPGPU_REQUIRE_HELM": filepath.Join(bin, "helm"), "KPGPU_REQUIRE_KUBECTL": "kubectl"} {
		if _, err := exec.LookPath(file); err != nil && os.Getenv(variable) == "" {
			t.Skipf("%s is not there; make helm builds Helm, %v", file, err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	env, err := testenv.Start(t.Context(), testenv.Options{})
	var missing *controlplane.MissingBinaryError
	if errors.As(err, &missing) && os.Getenv("KPGPU_REQUIRE_ASSETS") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := env.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"}}); err != nil {
		t.Fatal(err)
	}
	aws, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/karpenter-provider-aws").Output()
	if err != nil {
		t.Fatalf("finding Karpenter's charts, %v", err)
	}
	home := t.TempDir()
	return shell{
		"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "KUBECONFIG=" + env.ControlPlane.Kubeconfig(),
		"STOCK=" + filepath.Join(strings.TrimSpace(string(aws)), "charts"),
	}
}

func (s shell) run(t *testing.T, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Env = root, s
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%s(%v)", line, out, err)
	}
}
