package testenv_test

import (
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

func TestTestenv(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Testenv")
}

func manifest(plural, kind string) string {
	return strings.NewReplacer("PLURAL", plural, "KIND", kind).Replace(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: PLURAL, kind: KIND}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {size: {type: integer, minimum: 1}}
`)
}

func object(kind string, size int64) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"size": size}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: kind})
	u.SetName("one")
	return u
}

var _ = Describe("Start", func() {
	It("should serve and validate the CRDs, and stop twice", func(ctx SpecContext) {
		env, err := testenv.Start(ctx, testenv.Options{Manifests: [][]byte{
			[]byte("---\n" + manifest("boxes", "Box") + "---\n---" + manifest("bags", "Bag")),
			[]byte(manifest("tins", "Tin")),
		}})
		Expect(err).ToNot(HaveOccurred())
		DeferCleanup(env.Stop)
		for _, kind := range []string{"Box", "Bag", "Tin"} {
			Expect(env.Client.Create(ctx, object(kind, 0))).To(MatchError(ContainSubstring("size in body should be greater than or equal to 1")))
			Expect(env.Client.Create(ctx, object(kind, 2))).To(Succeed())
		}
		Expect(env.Stop(ctx)).To(Succeed())
		Expect(env.Stop(ctx)).To(Succeed())
	})
	DescribeTable("should reject a manifest that holds no CRD before it starts anything",
		func(ctx SpecContext, manifest, message string) {
			env, err := testenv.Start(ctx, testenv.Options{Manifests: [][]byte{[]byte(manifest)}})
			Expect(err).To(MatchError(ContainSubstring(message)))
			Expect(env.Stop(ctx)).To(Succeed())
		},
		Entry("another kind", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n",
			`Manifests[0]: kind "ConfigMap" of "settings" is no CustomResourceDefinition: pass CRDs only`),
		Entry("no YAML", "{", "Manifests[0]: parsing a CRD, "),
	)
	It("should link no AWS SDK", func() {
		out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
		Expect(err).ToNot(HaveOccurred(), "%s", out)
		Expect(string(out)).To(ContainSubstring("pkg/controlplane/testenv"))
		Expect(string(out)).ToNot(ContainSubstring("aws"))
	})
})
