package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	awsapis "github.com/aws/karpenter-provider-aws/pkg/apis"
	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

const (
	overlayCRD   = "nodeoverlays.karpenter.sh"
	bufferCRD    = "capacitybuffers.autoscaling.x-k8s.io"
	nodeClassCRD = "ec2nodeclasses.karpenter.k8s.aws"
	// crdRelease is the Helm release of the definitions, ours and Karpenter's alike.
	crdRelease = "karpenter-crd"
	// maxListed bounds what a finding lists.
	maxListed = 5
)

// definitions compares the cluster's definitions with those that this program was built
// with, which are the chart's.
func (e *examination) definitions() {
	if !e.complete("CustomResourceDefinition") {
		return
	}
	all := charted()
	install := fmt.Sprintf("helm upgrade --install %s %s --namespace %s", crdRelease, crdChart, e.controller.namespace()) + e.ownership(all)
	for _, ours := range all {
		theirs, ok := lo.Find(e.CRDs, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Name == ours.Name })
		if !ok {
			if consequence := e.without(ours.Name); consequence != "" {
				e.add(Finding{Severity: Error, Reason: ReasonCRDMissing, Object: "CustomResourceDefinition " + ours.Name, Message: "it is not installed: " + consequence, Command: install})
			}
			continue
		}
		e.outdated(ours, theirs, install)
		e.storedVersions(ours, theirs)
	}
}

// charted are the definitions of the chart.
func charted() []*apiextensionsv1.CustomResourceDefinition {
	nodeClass := lo.Filter(awsapis.CRDs, func(c *apiextensionsv1.CustomResourceDefinition, _ int) bool { return c.Name == nodeClassCRD })
	return slices.Concat(karpapis.CRDs, nodeClass, apis.CRDs)
}

// ownership is the flag that Helm needs for definitions that its release of the chart did
// not install: it refuses them without.
func (e *examination) ownership(ours []*apiextensionsv1.CustomResourceDefinition) string {
	foreign := lo.SomeBy(e.CRDs, func(theirs *apiextensionsv1.CustomResourceDefinition) bool {
		return theirs.Annotations[releaseName] != crdRelease && lo.SomeBy(ours, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Name == theirs.Name })
	})
	return lo.Ternary(foreign, " --take-ownership", "")
}

// without says what does not work without a definition; empty where nobody needs it.
func (e *examination) without(name string) string {
	switch name {
	case overlayCRD:
		return lo.Ternary(e.controller.gate("NodeOverlay"), "the controller has the feature gate NodeOverlay on and will not start", "")
	case bufferCRD:
		warm := lo.SomeBy(e.gpuPools, func(p *v1alpha1.GPUPool) bool { return len(p.Spec.Warm) > 0 })
		return lo.Ternary(warm || e.controller.gate("CapacityBuffer"), "nothing is kept warm", "")
	case "gpupools." + v1alpha1.Group:
		return "there can be no GPUPool, and the controller behaves as plain Karpenter"
	}
	return "Karpenter cannot start"
}

func (e *examination) outdated(ours, theirs *apiextensionsv1.CustomResourceDefinition, install string) {
	for i := range ours.Spec.Versions {
		v := &ours.Spec.Versions[i]
		have, ok := lo.Find(theirs.Spec.Versions, func(t apiextensionsv1.CustomResourceDefinitionVersion) bool { return t.Name == v.Name && t.Served })
		finding := Finding{Severity: Error, Reason: ReasonCRDOutdated, Object: "CustomResourceDefinition " + ours.Name, Command: install}
		if !ok {
			finding.Message = fmt.Sprintf("it does not serve %s, which the controller reads", v.Name)
			e.add(finding)
			continue
		}
		if v.Schema == nil || have.Schema == nil {
			continue
		}
		if missing := missingFields(v.Schema.OpenAPIV3Schema, have.Schema.OpenAPIV3Schema, ""); len(missing) > 0 {
			finding.Severity = Warning
			finding.Message = fmt.Sprintf("its %s is older than the controller: the API server drops %s", v.Name, listed(missing))
			e.add(finding)
		}
	}
}

// missingFields are the paths of fields that ours has and theirs lacks, sorted; below a
// field that is missing it looks no further.
func missingFields(ours, theirs *apiextensionsv1.JSONSchemaProps, at string) []string {
	if ours == nil || theirs == nil || lo.FromPtr(theirs.XPreserveUnknownFields) {
		return nil
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(ours.Properties)) {
		path := strings.TrimPrefix(at+"."+name, ".")
		mine := ours.Properties[name]
		have, ok := theirs.Properties[name]
		if !ok {
			if at != "" || name != "metadata" {
				out = append(out, path)
			}
			continue
		}
		out = append(out, missingFields(&mine, &have, path)...)
	}
	out = append(out, missingFields(items(ours), items(theirs), at+"[]")...)
	return append(out, missingFields(values(ours), values(theirs), at+"{}")...)
}

// items and values are what a list and a map hold; nil where a field is neither.
func items(s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if s.Items == nil {
		return nil
	}
	return s.Items.Schema
}

func values(s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if s.AdditionalProperties == nil {
		return nil
	}
	return s.AdditionalProperties.Schema
}

// storedVersions tells of versions that the new definition no longer has: an API server
// refuses it while objects may be stored in them.
func (e *examination) storedVersions(ours, theirs *apiextensionsv1.CustomResourceDefinition) {
	known := lo.Map(ours.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion, _ int) string { return v.Name })
	gone := lo.Without(theirs.Status.StoredVersions, known...)
	if len(gone) == 0 {
		return
	}
	kept := lo.Intersect(theirs.Status.StoredVersions, known)
	e.add(Finding{Severity: Warning, Reason: ReasonCRDStoredVersion, Object: "CustomResourceDefinition " + ours.Name,
		Message: fmt.Sprintf("objects may be stored as %s, which the definition of this version does not have, so that the API server will refuse it", strings.Join(gone, ", ")),
		Fix:     fmt.Sprintf("write every object again first: kubectl get %s -o json | kubectl replace -f -", theirs.Spec.Names.Plural),
		Command: fmt.Sprintf("kubectl patch customresourcedefinition %s --subresource=status --type=merge --patch %s", ours.Name,
			quote(encode(nested("status.storedVersions", lo.Ternary(len(kept) > 0, kept, known)))))})
}

// listed joins up to maxListed texts and counts the rest.
func listed(all []string) string {
	if len(all) <= maxListed {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxListed], ", "), len(all)-maxListed)
}
