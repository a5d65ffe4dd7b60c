// Package apis holds what installs the API of karpenter-gpu: the CustomResourceDefinition
// that controller-gen writes from the types in v1alpha1, embedded as it is, and the
// function that adds the kinds to a scheme. Karpenter's own CRDs come from its modules.
package apis

import (
	_ "embed"

	"github.com/awslabs/operatorpkg/object"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// Group is the API group of karpenter-gpu.
const Group = v1alpha1.Group

//go:generate go tool -modfile=../../go.tools.mod controller-gen object crd paths=./v1alpha1/... output:crd:artifacts:config=crds

var (
	// GPUPoolCRD is the definition of GPUPool in YAML, as generated.
	//go:embed crds/karpenter-gpu.dev_gpupools.yaml
	GPUPoolCRD []byte

	// CRDs are the definitions of karpenter-gpu, decoded. Callers that install them must
	// copy them first: the API server's answer is written into the object.
	CRDs = []*apiextensionsv1.CustomResourceDefinition{
		object.Unmarshal[apiextensionsv1.CustomResourceDefinition](GPUPoolCRD),
	}
)

// AddToScheme adds all kinds of karpenter-gpu to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	return v1alpha1.AddToScheme(s)
}
