package warm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// fieldOwner owns what is applied.
const fieldOwner = client.FieldOwner("karpenter-gpu")

const (
	managedByKey = "app.kubernetes.io/managed-by"
	managedBy    = "karpenter-gpu"
	// digestKey holds a digest of a template as it was rendered.
	digestKey = v1alpha1.Group + "/warm-template"
)

// bufferAPIVersion is that of CapacityBuffers, for which Karpenter exports no constant.
const bufferAPIVersion = "autoscaling.x-k8s.io/v1beta1"

// labelsOf are on everything that is made for an entry, and on its virtual pods.
func labelsOf(p *v1alpha1.GPUPool, entry *v1alpha1.WarmCapacity) map[string]string {
	return map[string]string{managedByKey: managedBy, v1alpha1.PoolLabelKey: p.Name, v1alpha1.WarmLabelKey: entry.Name}
}

// ours reports whether an object was made for a pool by this controller.
func ours(o client.Object, p *v1alpha1.GPUPool) bool {
	return lo.ContainsBy(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == p.UID && r.Kind == "GPUPool" }) &&
		o.GetLabels()[managedByKey] == managedBy && o.GetLabels()[v1alpha1.WarmLabelKey] != ""
}

// apply writes what has changed, and deletes what no entry wants any more. An entry whose
// reference cannot be followed keeps what it has while a window is open: a workload that is
// being replaced would lose its space otherwise. What cannot be written is told on its entry,
// and the others go on; the error is of all that failed.
func (c *Controller) apply(ctx context.Context, p *v1alpha1.GPUPool, demands []*demand, buffers []*autoscalingv1beta1.CapacityBuffer) error {
	byKey := lo.KeyBy(buffers, func(b *autoscalingv1beta1.CapacityBuffer) types.NamespacedName { return client.ObjectKeyFromObject(b) })
	wanted, kept := map[types.NamespacedName]bool{}, map[string]bool{}
	var failed []error
	for _, d := range demands {
		kept[d.entry.Name] = d.keeps
		for _, s := range d.slots {
			wanted[s.key] = true
			if taken, err := c.applySlot(ctx, p, d, s, byKey[s.key]); err != nil {
				failed = append(failed, err)
				d.problem = &problem{v1alpha1.ReasonFilling, "its buffer cannot be written: " + err.Error()}
			} else if taken != "" {
				d.problem = &problem{v1alpha1.ReasonFilling, taken}
			}
		}
	}
	failed = append(failed, c.prune(ctx, p, buffers, func(o client.Object) bool {
		return wanted[client.ObjectKeyFromObject(o)] || kept[o.GetLabels()[v1alpha1.WarmLabelKey]]
	}))
	return errors.Join(failed...)
}

// applySlot brings one buffer with its template to what is wanted. taken says that an object
// of somebody else stands in the way.
func (c *Controller) applySlot(ctx context.Context, p *v1alpha1.GPUPool, d *demand, s *slot, buffer *autoscalingv1beta1.CapacityBuffer) (taken string, err error) {
	template := &corev1.PodTemplate{}
	err = c.Client.Get(ctx, s.key, template)
	exists := err == nil
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("getting pod template %s, %w", s.key, err)
	}
	switch {
	case exists && !ours(template, p):
		return fmt.Sprintf("PodTemplate %s exists and is not of this pool; delete it, or rename the entry", s.key), nil
	case buffer != nil && !ours(buffer, p):
		return fmt.Sprintf("CapacityBuffer %s exists and is not of this pool; delete it, or rename the entry", s.key), nil
	}
	meta := metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name, Labels: labelsOf(p, d.entry), OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "GPUPool", Name: p.Name, UID: p.UID,
	}}}
	if err := c.applyTemplate(ctx, meta, s, template); err != nil {
		return "", err
	}
	spec := autoscalingv1beta1.CapacityBufferSpec{PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: s.key.Name}, Replicas: lo.ToPtr(int32(s.rendered()))} //nolint:gosec // bounded by the API
	if buffer != nil && equality.Semantic.DeepEqual(buffer.Spec.PodTemplateRef, spec.PodTemplateRef) && equality.Semantic.DeepEqual(buffer.Spec.Replicas, spec.Replicas) {
		return "", nil
	}
	return "", c.write(ctx, &autoscalingv1beta1.CapacityBuffer{
		TypeMeta: metav1.TypeMeta{APIVersion: bufferAPIVersion, Kind: "CapacityBuffer"}, ObjectMeta: meta, Spec: spec,
	})
}

// applyTemplate writes the template where it differs from what stands: by what it says, and
// by a digest, since what it no longer says cannot be seen in what the API server made of it.
func (c *Controller) applyTemplate(ctx context.Context, meta metav1.ObjectMeta, s *slot, found *corev1.PodTemplate) error {
	text, err := json.Marshal(s.template)
	if err != nil {
		return fmt.Errorf("marshaling pod template %s, %w", s.key, err)
	}
	sum := sha256.Sum256(text)
	meta.Annotations = map[string]string{digestKey: hex.EncodeToString(sum[:8])}
	if found.Annotations[digestKey] == meta.Annotations[digestKey] && equality.Semantic.DeepDerivative(s.template, found.Template) {
		return nil
	}
	return c.write(ctx, &corev1.PodTemplate{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodTemplate"}, ObjectMeta: meta, Template: s.template})
}

// write applies an object as its owner of all that it says.
func (c *Controller) write(ctx context.Context, o client.Object) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return fmt.Errorf("converting %T %s, %w", o, client.ObjectKeyFromObject(o), err)
	}
	delete(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(fields, "template", "metadata", "creationTimestamp")
	if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: fields}), fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %T %s, %w", o, client.ObjectKeyFromObject(o), err)
	}
	return nil
}

// prune deletes the objects of the pool that keep does not name.
func (c *Controller) prune(ctx context.Context, p *v1alpha1.GPUPool, buffers []*autoscalingv1beta1.CapacityBuffer, keep func(client.Object) bool) error {
	var templates corev1.PodTemplateList
	if err := c.Client.List(ctx, &templates, client.MatchingLabels{managedByKey: managedBy, v1alpha1.PoolLabelKey: p.Name}); err != nil {
		return fmt.Errorf("listing pod templates, %w", err)
	}
	all := lo.Map(buffers, func(b *autoscalingv1beta1.CapacityBuffer, _ int) client.Object { return b })
	for i := range templates.Items {
		all = append(all, &templates.Items[i])
	}
	var failed []error
	for _, o := range all {
		if !ours(o, p) || keep(o) || !o.GetDeletionTimestamp().IsZero() {
			continue
		}
		if err := c.Client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("deleting %T %s, %w", o, client.ObjectKeyFromObject(o), err))
		}
	}
	return errors.Join(failed...)
}
