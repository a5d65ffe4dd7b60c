package manifest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
)

// rules are what an API server holds a custom resource to.
type rules struct {
	structural *schema.Structural
	shape      validation.SchemaValidator
	cel        *cel.Validator
}

// compiled are the rules of NodePool and GPUPool, by apiVersion and kind.
var compiled = sync.OnceValues(func() (map[string]rules, error) {
	out := map[string]rules{}
	for _, crd := range slices.Concat(karpapis.CRDs, apis.CRDs) {
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil || crd.Spec.Names.Kind != "NodePool" && crd.Spec.Names.Kind != "GPUPool" {
				continue
			}
			r, err := compile(v.Schema)
			if err != nil {
				return nil, fmt.Errorf("compiling the rules of %s, %w", crd.Name, err)
			}
			out[crd.Spec.Group+"/"+v.Name+" "+crd.Spec.Names.Kind] = r
		}
	}
	return out, nil
})

func compile(in *apiextensionsv1.CustomResourceValidation) (rules, error) {
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(in.DeepCopy(), internal, nil); err != nil {
		return rules{}, err
	}
	structural, err := schema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return rules{}, err
	}
	shape, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return rules{}, err
	}
	return rules{structural: structural, shape: shape, cel: cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// defaultAndValidate does to a NodePool or a GPUPool what the API server would. Other
// kinds pass.
func defaultAndValidate(object map[string]any) error {
	all, err := compiled()
	if err != nil {
		return err
	}
	r, ok := all[fmt.Sprintf("%v %v", object["apiVersion"], object["kind"])]
	if !ok {
		return nil
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, r.structural)
	defaulting.Default(object, r.structural)
	if errs := validation.ValidateCustomResource(nil, object, r.shape); len(errs) > 0 {
		return errs.ToAggregate()
	}
	errs, _ := r.cel.Validate(context.Background(), nil, r.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return errs.ToAggregate()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
