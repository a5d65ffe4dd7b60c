package converter

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

// aliased are the image families that v1 knows by alias.
var aliased = []string{"AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022"}

// oldHopLimit is v1beta1's default of metadataOptions.httpPutResponseHopLimit; v1's is 1.
const oldHopLimit = int64(2)

// converts says whether an EC2NodeClass of v1beta1 is among the input.
func (c *conversion) converts(class string) bool { return c.nodeClasses[class] }

// nodeClass converts an EC2NodeClass of v1beta1: images are chosen by alias, defaults that
// have changed are written out, and kubelet settings of its NodePools are in it.
func (c *conversion) nodeClass(d manifest.Document) error {
	s := newSource(d)
	spec, _ := take[map[string]any](s, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	images(s, spec)
	options, ok := spec["metadataOptions"].(map[string]any)
	if !ok {
		options = map[string]any{}
		spec["metadataOptions"] = options
	}
	if _, ok := options["httpPutResponseHopLimit"]; !ok {
		options["httpPutResponseHopLimit"] = oldHopLimit
	}
	if kubelet, agree := c.agreed(d.Object.GetName()); agree {
		spec["kubelet"] = kubelet
	}
	losses, err := s.finish()
	c.result.Objects = append(c.result.Objects, Object{
		Unstructured: &unstructured.Unstructured{Object: map[string]any{"apiVersion": catalogprovider.Group + "/" + version, "kind": "EC2NodeClass", "metadata": metadata(d.Object), "spec": spec}},
		From:         d.From, Losses: losses,
	})
	return err
}

// images writes amiSelectorTerms, which v1 requires.
func images(s *source, spec map[string]any) {
	family, _ := spec["amiFamily"].(string)
	if terms, ok := spec["amiSelectorTerms"].([]any); ok && len(terms) > 0 {
		if family == "Ubuntu" {
			delete(spec, "amiFamily")
			s.lose("spec.amiFamily", "Ubuntu is no family since v1; write AL2 with the user data of your image, or Custom")
		}
		return
	}
	if !slices.Contains(aliased, family) {
		s.lose("spec.amiFamily", "%q has no alias in v1; write spec.amiSelectorTerms, which is required", family)
		return
	}
	delete(spec, "amiFamily")
	spec["amiSelectorTerms"] = []any{map[string]any{"alias": strings.ToLower(family) + "@latest"}}
}
