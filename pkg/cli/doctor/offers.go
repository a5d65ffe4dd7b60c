package doctor

import (
	"context"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

// offers are the instance types that the catalogue knows for each NodePool: plain ones,
// and as its pool offers them. NodePools of other NodeClasses than EC2NodeClass, and of
// EC2NodeClasses that are not understood, are in neither map.
type offers struct {
	plain, offered map[string][]*corecloudprovider.InstanceType
}

// offer stacks the providers as the controller does.
func (e *examination) offer(ctx context.Context) error {
	e.plain, e.offered = map[string][]*corecloudprovider.InstanceType{}, map[string][]*corecloudprovider.InstanceType{}
	classes, unread := e.classes()
	inner, err := catalogprovider.New(e.Cloud, classes...)
	if err != nil {
		return err
	}
	predict := e.controller.setting("PREDICT_GPU_LABELS", "predict-gpu-labels") == "true"
	ours := cloudprovider.Decorate(inner, cloudprovider.Options{Pools: e.store, Catalog: e.Cloud.Catalog, PredictAll: predict})
	for _, np := range e.nodePools {
		ref := np.Spec.Template.Spec.NodeClassRef
		switch {
		case ref == nil || ref.Group != catalogprovider.Group || ref.Kind != catalogprovider.NodeClassGVK.Kind:
			e.note(fmt.Sprintf("%s: its instance types are not examined, because its nodeClassRef names no EC2NodeClass", title("NodePool", np)))
			continue
		case unread[ref.Name] != nil:
			e.note(fmt.Sprintf("%s: its instance types are not examined, because EC2NodeClass %s is not understood offline: %s", title("NodePool", np), ref.Name, unread[ref.Name]))
			continue
		}
		if e.plain[np.Name], err = inner.GetInstanceTypes(ctx, np); err != nil {
			return fmt.Errorf("getting instance types, %w", err)
		}
		if e.offered[np.Name], err = ours.GetInstanceTypes(ctx, np); err != nil {
			return fmt.Errorf("getting instance types, %w", err)
		}
	}
	return nil
}

// classes are the EC2NodeClasses, with an assumed one for each that is absent, and the
// errors of those that are not understood, by name.
func (e *examination) classes() ([]*catalogprovider.NodeClass, map[string]error) {
	var out []*catalogprovider.NodeClass
	unread, known := map[string]error{}, map[string]bool{}
	for _, u := range e.NodeClasses {
		known[u.GetName()] = true
		class, err := catalogprovider.ParseNodeClass(u)
		if err != nil {
			unread[u.GetName()] = err
			continue
		}
		out = append(out, class)
	}
	for _, np := range e.nodePools {
		if ref := np.Spec.Template.Spec.NodeClassRef; ref != nil && !known[ref.Name] {
			known[ref.Name] = true
			out = append(out, catalogprovider.DefaultNodeClass(ref.Name))
		}
	}
	return out, unread
}

// unjudged are keys that the catalogue does not answer for: where and how capacity is
// sold follows from the account.
var unjudged = []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion, "topology.k8s.aws/zone-id", karpv1.CapacityTypeLabelKey, karpv1.NodePoolLabelKey}

// demands are the requirements of a NodePool that the catalogue answers for.
func demands(np *karpv1.NodePool) scheduling.Requirements {
	reqs := scheduling.NewNodeSelectorRequirementsWithMinValues(np.Spec.Template.Spec.Requirements...)
	reqs.Add(scheduling.NewLabelRequirements(np.Spec.Template.Labels).Values()...)
	for _, key := range unjudged {
		delete(reqs, key)
	}
	return reqs
}

// allowed are the types that satisfy requirements, with any of their offerings.
func allowed(types []*corecloudprovider.InstanceType, reqs scheduling.Requirements) []*corecloudprovider.InstanceType {
	return lo.Filter(types, func(it *corecloudprovider.InstanceType, _ int) bool {
		return it.Requirements.Intersects(reqs) == nil && lo.SomeBy(it.Offerings, func(o *corecloudprovider.Offering) bool { return o.Requirements.Intersects(reqs) == nil })
	})
}

// nodeClasses looks for NodeClasses that are absent or not ready.
func (e *examination) nodeClasses() {
	if !e.complete("EC2NodeClass") {
		return
	}
	for _, np := range e.nodePools {
		ref := np.Spec.Template.Spec.NodeClassRef
		if ref == nil || ref.Kind != catalogprovider.NodeClassGVK.Kind || ref.Group != catalogprovider.Group {
			continue
		}
		class, ok := lo.Find(e.NodeClasses, func(u *unstructured.Unstructured) bool { return u.GetName() == ref.Name })
		if !ok {
			e.nodeClassMissing(np, ref.Name)
			continue
		}
		if message, bad := notReady(class); bad {
			e.add(Finding{Severity: Error, Reason: ReasonNodeClassNotReady, Object: title("EC2NodeClass", class), Message: "it is not ready, so that its NodePools launch nothing: " + message,
				Command: "kubectl describe ec2nodeclass " + ref.Name})
		}
	}
}

func (e *examination) nodeClassMissing(np *karpv1.NodePool, wanted string) {
	f := Finding{Severity: Error, Reason: ReasonNodeClassMissing, Object: title("NodePool", np),
		Message: fmt.Sprintf("EC2NodeClass %s, which it refers to, does not exist: it launches nothing", wanted), Fix: fmt.Sprintf("create EC2NodeClass %s, or refer to one that there is", wanted)}
	names := lo.Map(e.NodeClasses, func(u *unstructured.Unstructured, _ int) string { return u.GetName() })
	if nearest, ok := nearestName(wanted, names); ok {
		f.Command = merge("nodepool", np, nested("spec.template.spec.nodeClassRef.name", nearest))
	}
	e.add(f)
}

// notReady reads the condition Ready.
func notReady(u *unstructured.Unstructured) (message string, bad bool) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range conditions {
		c, _ := item.(map[string]any)
		if c["type"] == "Ready" && c["status"] == "False" {
			message, _ = c["message"].(string)
			return lo.CoalesceOrEmpty(message, "its condition Ready is False"), true
		}
	}
	return "", false
}
