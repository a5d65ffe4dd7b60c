package warm

import (
	"context"
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	"sigs.k8s.io/karpenter/pkg/utils/apps"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// credit is what a buffer of a user holds of an entry.
type credit struct {
	key types.NamespacedName
	// units of the entry that it holds, and that each of its virtual pods is.
	units, each int
}

// userBuffer is a buffer that nobody rendered from a pool, with what is not yet credited.
type userBuffer struct {
	*autoscalingv1beta1.CapacityBuffer
	left int
}

// foreign are the buffers of users that hold space, by namespace and name.
func foreign(buffers []*autoscalingv1beta1.CapacityBuffer, p *v1alpha1.GPUPool) []*userBuffer {
	out := lo.FilterMap(buffers, func(b *autoscalingv1beta1.CapacityBuffer, _ int) (*userBuffer, bool) {
		replicas := int(lo.FromPtr(b.Status.Replicas))
		ready := meta.IsStatusConditionTrue(b.Status.Conditions, autoscalingv1beta1.ReadyForProvisioningCondition)
		return &userBuffer{b, replicas}, b.Labels[v1alpha1.WarmLabelKey] == "" && !ours(b, p) && ready && replicas > 0
	})
	slices.SortFunc(out, func(a, b *userBuffer) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	})
	return out
}

// credit counts buffers of users towards an entry: those that follow the same pod template
// or workload, and for GPUs and partitions those that ask for them in this pool by its
// label. Each virtual pod is counted once, for the first entry that it fits.
func (c *Controller) credit(ctx context.Context, p *v1alpha1.GPUPool, d *demand, own []*userBuffer) error {
	for _, s := range d.slots {
		open := s.wanted
		for _, b := range own {
			if open == 0 || b.left == 0 {
				continue
			}
			each, err := c.each(ctx, p, d.entry, s, b)
			if err != nil {
				return err
			}
			if each == 0 {
				continue
			}
			pods := min(b.left, (open+each-1)/each)
			units := min(open, pods*each)
			b.left, open = b.left-pods, open-units
			s.credits = append(s.credits, credit{key: client.ObjectKeyFromObject(b.CapacityBuffer), units: units, each: each})
		}
	}
	return nil
}

// each is how many units of a slot a virtual pod of a buffer is; 0 if it is for something
// else.
func (c *Controller) each(ctx context.Context, p *v1alpha1.GPUPool, e *v1alpha1.WarmCapacity, s *slot, b *userBuffer) (int, error) {
	if e.PodTemplateRef != nil || e.ScalableRef != nil {
		return lo.Ternary(sameTemplate(e.PodTemplateRef, b) || sameWorkload(e.ScalableRef, b), 1, 0), nil
	}
	found, err := apps.ResolveCapacityBuffer(ctx, c.Client, b.CapacityBuffer)
	if err != nil {
		if apierrors.ReasonForError(err) == "" || apierrors.IsNotFound(err) {
			return 0, nil // it holds nothing then
		}
		return 0, fmt.Errorf("resolving capacity buffer %s/%s, %w", b.Namespace, b.Name, err)
	}
	if !aimedAt(found.PodTemplateSpec.Spec, p.Name) {
		return 0, nil
	}
	spec := found.PodTemplateSpec.Spec.DeepCopy()
	explicit(spec)
	return times(resources.RequestsForPods(&corev1.Pod{Spec: s.template.Spec}), withPods(resources.RequestsForPods(&corev1.Pod{Spec: *spec}))), nil
}

func sameTemplate(ref *v1alpha1.PodTemplateReference, b *userBuffer) bool {
	own := b.Spec.PodTemplateRef
	return ref != nil && own != nil && own.Name == ref.Name && b.Namespace == ref.Namespace
}

func sameWorkload(ref *v1alpha1.ScalableReference, b *userBuffer) bool {
	own := b.Spec.ScalableRef
	return ref != nil && own != nil && own.Kind == ref.Kind && own.Name == ref.Name && b.Namespace == ref.Namespace &&
		lo.CoalesceOrEmpty(own.APIGroup, v1alpha1.DefaultScalableAPIGroup) == ref.GetAPIGroup()
}

// withPods lifts the one pod that every list of requests counts: what is compared is the
// resources.
func withPods(list corev1.ResourceList) corev1.ResourceList {
	out := list.DeepCopy()
	out[corev1.ResourcePods] = resource.MustParse("1M")
	return out
}

// aimedAt reports whether pods select the nodes of one pool by its label.
func aimedAt(spec corev1.PodSpec, pool string) bool {
	if spec.NodeSelector[v1alpha1.PoolLabelKey] == pool {
		return true
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return len(terms) > 0 && lo.EveryBy(terms, func(t corev1.NodeSelectorTerm) bool {
		return lo.SomeBy(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == v1alpha1.PoolLabelKey && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 && r.Values[0] == pool
		})
	})
}
