package v1alpha1_test

import (
	"context"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

// root is the root of the repository, seen from this package's directory.
var root = filepath.Join("..", "..", "..")

var (
	ctx    = context.Background()
	env    *envtest.Environment
	config *rest.Config
	// kube validates on the server only: no client-side defaulting or pruning.
	kube client.Client
)

func TestAPI(t *testing.T) {
	testenv.UseAssets(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "v1alpha1")
}

var _ = BeforeSuite(func() {
	env = &envtest.Environment{
		CRDs: lo.Map(apis.CRDs, func(crd *apiextensionsv1.CustomResourceDefinition, _ int) *apiextensionsv1.CustomResourceDefinition {
			return crd.DeepCopy()
		}),
	}
	var err error
	config, err = env.Start()
	Expect(err).NotTo(HaveOccurred())
	kube, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	Expect(err).NotTo(HaveOccurred())
	kube = client.WithFieldValidation(kube, "Strict")
})

var _ = AfterSuite(func() {
	if env != nil {
		Expect(env.Stop()).To(Succeed())
	}
})

var _ = AfterEach(func() {
	Expect(kube.DeleteAllOf(ctx, &v1alpha1.GPUPool{})).To(Succeed())
})

// full is a valid pool that sets most fields. Each spec changes one thing of it.
const full = `
apiVersion: karpenter-gpu.dev/v1alpha1
kind: GPUPool
metadata:
  name: inference
spec:
  partitioning:
    mig:
      strategy: Mixed
      layouts: [all-1g.10gb, all-balanced]
      announceTo: [TensorFusion]
  selection:
    objective: Cost
    maxUnusedGPUs: 1
    capacityTypes: [reserved, spot, on-demand]
    priceTolerancePercent: 5
  readiness:
    gate: StartupTaint
    enforce: WhenSafe
    deadline: 12m
    minDriverVersion: "550.54"
    minCUDAVersion: "12.4"
    checks:
    - {name: ecc, severity: Warning, timeout: 5s}
    - {name: persistence, enabled: false}
    maxConcurrentTrials: 2
  health:
    xidPolicies:
    - {codes: [13, 31], action: Ignore}
    - {codes: [79], action: Replace}
    maxFencedPartitions: 2
  warm:
  - name: day
    gpus: 8
    schedule:
      windows:
      - {start: "0 7 * * 1-5", duration: 12h, timeZone: Europe/Berlin, sharePercent: 50}
    capacityTypes: [spot]
    images: ["registry.example.com/team/model:v3"]
    imagePullSecrets: [registry]
    maxPricePerHour: "40.5"
  - name: small
    partitions:
    - {profile: 1g.10gb, count: 14}
  - name: server
    scalableRef: {kind: Deployment, namespace: default, name: server}
    percentage: 20
  - name: template
    podTemplateRef: {namespace: default, name: trainer}
    replicas: 4
  reclaim:
    emptyAfter: 30s
  limits:
    gpus: 200
    pricePerHour: "400"
`

// fromYAML is an object as a person writes it, with values that the Go types could not
// hold.
func fromYAML(manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifest), &object.Object)).To(Succeed())
	return object
}

// set puts a value, given as YAML, at a path of the object. "null" removes the field; a
// number in the path is an index.
func set(object *unstructured.Unstructured, value string, path ...any) {
	GinkgoHelper()
	var decoded any
	Expect(yaml.Unmarshal([]byte(value), &decoded)).To(Succeed())
	var at any = object.Object
	for _, step := range path[:len(path)-1] {
		switch s := step.(type) {
		case string:
			m := at.(map[string]any)
			if m[s] == nil {
				m[s] = map[string]any{}
			}
			at = m[s]
		case int:
			at = at.([]any)[s]
		}
	}
	last, m := path[len(path)-1].(string), at.(map[string]any)
	if decoded == nil {
		delete(m, last)
		return
	}
	m[last] = decoded
}
