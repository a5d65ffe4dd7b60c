package charts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/rbac"
)

// TestGeneratedRightsOfTheSandbox: the sandbox's controller and agents may do what those of a user
// may, so that all scenarios are played with the charts' own rights. With -update and a Helm the
// sandbox's copies are rendered anew.
func TestGeneratedRightsOfTheSandbox(t *testing.T) {
	helm := newRunner(t, "")
	for name, args := range map[string][]string{
		"karpenter-gpu": {controller, rbac.Controller, clusterName, "--set=gpu.operator.writeConfigMaps=true"},
		"gpu-agent":     {agentChart, rbac.Agent},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := helm.must(t, template(args[0], append([]string{args[1]}, append(args[2:], "--namespace="+rbac.Namespace)...)...)...)
			documents := []string{"# The rights that chart " + name + " grants. Rendered: " + strings.TrimPrefix(rewrite, "run ") + ".\n"}
			for _, o := range parse(t, manifest) {
				if !rbac.GrantsRights(o) {
					continue
				}
				labels := o.GetLabels()
				delete(labels, "helm.sh/chart") // changes with each version
				delete(labels, "app.kubernetes.io/version")
				o.SetLabels(labels)
				text, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				documents = append(documents, string(text))
			}
			want := strings.Join(documents, "---\n")
			path := filepath.Join(root, "pkg", "sim", "rbac", "manifests", name+".yaml")
			if *update {
				if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, readFile(t, path)); diff != "" {
				t.Errorf("%s is not what the chart renders, %s after `make helm` (-want +got):\n%s", path, rewrite, diff)
			}
		})
	}
}
