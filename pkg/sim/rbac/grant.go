package rbac

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Grant is the smallest thing that RBAC can allow: that one account may use one verb on one
// resource.
type Grant struct {
	// Account is a ServiceAccount of Namespace.
	Account string
	Verb    string
	// Group is empty for Kubernetes' core. Resource has its subresource after a slash.
	Group, Resource string
	// Name limits the grant to one object, In to one namespace; empty does not limit.
	Name, In string
}

// String is, for example, "karpenter: patch leases.coordination.k8s.io karpenter-leader-election in
// karpenter". It is the grant's identity in results and in unused.yaml.
func (g Grant) String() string {
	resource, sub, _ := strings.Cut(g.Resource, "/")
	if g.Group != "" {
		resource += "." + g.Group
	}
	if sub != "" {
		resource += "/" + sub
	}
	text := fmt.Sprintf("%s: %s %s", g.Account, g.Verb, resource)
	if g.Name != "" {
		text += " " + g.Name
	}
	if g.In != "" {
		text += " in " + g.In
	}
	return text
}

// allows reports whether the grant is reason enough for a call. As in RBAC, a name can be demanded
// of a list or watch only if its caller selects by it, which the audit log shows as the name.
func (g Grant) allows(c call) bool {
	return g.Account == c.account && g.Verb == c.Verb && g.Group == c.group() && g.Resource == c.resource() &&
		(g.Name == "" || g.Name == c.Ref.Name) && (g.In == "" || g.In == c.Ref.Namespace)
}

func (g Grant) compare(other Grant) int {
	return cmp.Or(cmp.Compare(g.Account, other.Account), cmp.Compare(g.Group, other.Group), cmp.Compare(g.Resource, other.Resource),
		cmp.Compare(g.In, other.In), cmp.Compare(g.Name, other.Name), cmp.Compare(g.Verb, other.Verb))
}

// Grants takes the roles that are bound to Controller and Agent apart. The result is sorted and
// holds each grant once. A role with a wildcard is an error: nothing could tell whether all of it is
// needed.
func Grants(objects []*unstructured.Unstructured) ([]Grant, error) {
	roles := map[string]rbacv1.ClusterRole{} // a Role has the same fields; by kind, namespace and name
	for _, o := range objects {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, fmt.Errorf("reading %s %s, %w", o.GetKind(), o.GetName(), err)
		}
		roles[key(o.GetKind(), o.GetNamespace(), o.GetName())] = role
	}
	var grants []Grant
	for _, o := range objects {
		if o.GetKind() != "ClusterRoleBinding" && o.GetKind() != "RoleBinding" {
			continue
		}
		bound, err := ofBinding(o, roles)
		if err != nil {
			return nil, fmt.Errorf("reading %s %s, %w", o.GetKind(), o.GetName(), err)
		}
		grants = append(grants, bound...)
	}
	slices.SortFunc(grants, Grant.compare)
	return slices.Compact(grants), nil
}

func key(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

func ofBinding(o *unstructured.Unstructured, roles map[string]rbacv1.ClusterRole) ([]Grant, error) {
	var binding rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
		return nil, err
	}
	home := ""
	if binding.RoleRef.Kind == "Role" {
		home = binding.Namespace
	}
	role, ok := roles[key(binding.RoleRef.Kind, home, binding.RoleRef.Name)]
	if !ok {
		return nil, fmt.Errorf("%s %s is not among the manifests", binding.RoleRef.Kind, binding.RoleRef.Name)
	}
	var grants []Grant
	for _, s := range binding.Subjects {
		if s.Kind != rbacv1.ServiceAccountKind || s.Namespace != Namespace || s.Name != Controller && s.Name != Agent {
			return nil, fmt.Errorf("its subject %s %s/%s is neither the controller's account nor the agent's", s.Kind, s.Namespace, s.Name)
		}
		for _, rule := range role.Rules {
			apart, err := takeApart(rule, Grant{Account: s.Name, In: binding.Namespace})
			if err != nil {
				return nil, err
			}
			grants = append(grants, apart...)
		}
	}
	return grants, nil
}

// takeApart fills in what a rule says about each of its grants.
func takeApart(rule rbacv1.PolicyRule, g Grant) ([]Grant, error) {
	if len(rule.NonResourceURLs) > 0 || slices.Contains(slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources), "*") {
		return nil, fmt.Errorf("a rule has a wildcard or is about URLs: %s; name what is needed", rule.String())
	}
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var grants []Grant
	for _, g.Group = range rule.APIGroups {
		for _, g.Resource = range rule.Resources {
			for _, g.Name = range names {
				for _, g.Verb = range rule.Verbs {
					grants = append(grants, g)
				}
			}
		}
	}
	return grants, nil
}
