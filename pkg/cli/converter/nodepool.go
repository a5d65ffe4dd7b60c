package converter

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

// Policies of consolidation by their old name.
const oldUnderutilized = "WhenUnderutilized"

// defaultExpireAfter is v1beta1's default of spec.disruption.expireAfter.
const defaultExpireAfter = "720h"

// nodePool converts a NodePool of v1beta1.
func (c *conversion) nodePool(d manifest.Document) error {
	s := newSource(d)
	template := map[string]any{}
	meta, ok := take[map[string]any](s, "spec.template.metadata")
	put(template, "metadata", meta, ok && len(meta) > 0)
	inner := c.template(s)
	template["spec"] = inner
	spec := map[string]any{"template": template, "disruption": disruption(s, inner)}
	for _, field := range []string{"limits", "weight"} {
		value, ok := take[any](s, "spec."+field)
		put(spec, field, value, ok)
	}
	losses, err := s.finish()
	c.result.Objects = append(c.result.Objects, Object{
		Unstructured: &unstructured.Unstructured{Object: map[string]any{"apiVersion": karpenterGroup + "/" + version, "kind": "NodePool", "metadata": metadata(d.Object), "spec": spec}},
		From:         d.From, Losses: losses,
	})
	return err
}

// template converts spec.template.spec.
func (c *conversion) template(s *source) map[string]any {
	const at = "spec.template.spec."
	out := map[string]any{}
	for _, field := range []string{"taints", "startupTaints"} {
		value, ok := take[[]any](s, at+field)
		put(out, field, value, ok && len(value) > 0)
	}
	requirements, _ := take[[]any](s, at+"requirements")
	if requirements == nil {
		requirements = []any{}
	}
	out["requirements"] = requirements
	class := classRef(s, at+"nodeClassRef")
	out["nodeClassRef"] = class
	if kubelet, ok := take[map[string]any](s, at+"kubelet"); ok && len(kubelet) > 0 {
		c.moved(s, at+"kubelet", fmt.Sprint(class["name"]), kubelet)
	}
	s.drop(at+"resources", "has no meaning in a NodePool, and had none")
	return out
}

// classRef converts a reference by apiVersion into one by group.
func classRef(s *source, path string) map[string]any {
	group, kind := catalogprovider.Group, catalogprovider.NodeClassGVK.Kind // v1beta1's defaults on AWS
	if apiVersion := takeText(s, path+".apiVersion"); apiVersion != "" {
		group, _, _ = strings.Cut(apiVersion, "/")
	}
	if k := takeText(s, path+".kind"); k != "" {
		kind = k
	}
	return map[string]any{"group": group, "kind": kind, "name": takeText(s, path+".name")}
}

// disruption converts spec.disruption; expireAfter goes to the template.
func disruption(s *source, template map[string]any) map[string]any {
	const at = "spec.disruption."
	out := map[string]any{}
	policy := takeText(s, at+"consolidationPolicy")
	after := takeText(s, at+"consolidateAfter")
	switch policy {
	case "", oldUnderutilized:
		out["consolidationPolicy"] = string(karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized)
		out["consolidateAfter"] = "0s" // v1beta1 waited for nothing, and allowed no other value
		if after != "" {
			s.lose(at+"consolidateAfter", "v1beta1 allows it with WhenEmpty only; 0s is written, which is what %s did", oldUnderutilized)
		}
	default:
		out["consolidationPolicy"] = policy
		put(out, "consolidateAfter", after, after != "")
	}
	if budgets, ok := take[[]any](s, at+"budgets"); ok {
		out["budgets"] = titled(budgets)
	}
	expire := takeText(s, at+"expireAfter")
	if expire == "" {
		expire = defaultExpireAfter
	}
	template["expireAfter"] = expire
	if expire != "Never" {
		s.lose(at+"expireAfter", "carried over to spec.template.spec.expireAfter (%s) with another meaning: since v1 budgets do not hold expiry back, and no replacement is launched first; "+
			"write Never if nodes must not go so", expire)
	}
	return out
}

// titled writes the reasons of budgets as v1 does: Underutilized for underutilized.
func titled(budgets []any) []any {
	for _, b := range budgets {
		budget, ok := b.(map[string]any)
		if !ok {
			continue
		}
		reasons, ok := budget["reasons"].([]any)
		if !ok {
			continue
		}
		for i, r := range reasons {
			if text, ok := r.(string); ok && text != "" {
				reasons[i] = strings.ToUpper(text[:1]) + text[1:]
			}
		}
	}
	return budgets
}

// collectKubelet remembers the kubelet configuration of a NodePool for its EC2NodeClass.
func (c *conversion) collectKubelet(d manifest.Document) {
	if gvk := d.Object.GroupVersionKind(); gvk.Kind == "EC2NodeClass" && gvk.Version == oldVersion {
		c.nodeClasses[d.Object.GetName()] = true
	}
	if d.Object.GroupVersionKind().Version != oldVersion || d.Object.GetKind() != "NodePool" {
		return
	}
	settings, _, _ := unstructured.NestedMap(d.Object.Object, "spec", "template", "spec", "kubelet")
	class, _, _ := unstructured.NestedString(d.Object.Object, "spec", "template", "spec", "nodeClassRef", "name")
	c.kubelets[class] = append(c.kubelets[class], settings)
}

// agreed is the kubelet configuration that all NodePools of an EC2NodeClass have; ok is
// false where they differ, and where they have none.
func (c *conversion) agreed(class string) (settings map[string]any, ok bool) {
	all := c.kubelets[class]
	if len(all) == 0 || len(all[0]) == 0 {
		return nil, false
	}
	return all[0], !slices.ContainsFunc(all, func(k map[string]any) bool { return compact(k) != compact(all[0]) })
}

// moved says where a kubelet configuration has gone, or what to do with it.
func (c *conversion) moved(s *source, path, class string, settings map[string]any) {
	_, agree := c.agreed(class)
	switch {
	case c.converts(class) && agree: // in the EC2NodeClass of the result
	case !agree:
		s.lose(path, "is in the EC2NodeClass since v1, and NodePools that refer to %s differ in it; give each an EC2NodeClass of its own, this one with %s", class, compact(settings))
	default:
		s.lose(path, "is in the EC2NodeClass since v1, which is not among the input; run: kubectl patch ec2nodeclass %s --type=merge --patch '%s'", class,
			compact(map[string]any{"spec": map[string]any{"kubelet": settings}}))
	}
}
