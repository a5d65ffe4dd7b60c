package provisioning

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
)

// placement is where the virtual pods of a capacity buffer went.
type placement struct{ existing, added, failed int }

// noteSpaces tells of the space of buffers. Virtual pods that a rule of their pool refuses
// have no place: for them the results say why, as they do for those that fit nowhere.
func (p *Provisioner) noteSpaces(ctx context.Context, results *scheduler.Results, d Decision, seen *Catalogue) {
	results.PodErrors = maps.Clone(results.PodErrors)
	if results.PodErrors == nil {
		results.PodErrors = map[*corev1.Pod]error{}
	}
	for _, r := range d.Refused {
		if _, ok := bufferOf(r.Pod); ok {
			results.PodErrors[r.Pod] = r.Refusal
		}
	}
	if p.sizer.Spaces == nil {
		return
	}
	pools, err := listPools(ctx, p.sizer.Client)
	if err != nil {
		log.FromContext(ctx).Error(err, "noting the space of capacity buffers")
		return
	}
	r := &round{RightSizer: p.sizer, pools: pools, seen: seen}
	p.sizer.Spaces.Note(r.spacesOf(*results))
}

// updateBuffers does what stock's provisioner does after scheduling: it writes the
// condition Provisioning of every buffer, and tells the cluster state which nodes
// hold buffers, so that these are not taken for empty.
func (p *Provisioner) updateBuffers(ctx context.Context, results scheduler.Results) error {
	onNodes := map[string]int{}
	places := map[types.NamespacedName]*placement{}
	at := func(pod *corev1.Pod) (*placement, bool) {
		key, ok := bufferOf(pod)
		if !ok {
			return nil, false
		}
		if places[key] == nil {
			places[key] = &placement{}
		}
		return places[key], true
	}
	for _, n := range results.ExistingNodes {
		for _, pod := range n.Pods {
			if place, ok := at(pod); ok {
				place.existing++
				onNodes[n.ProviderID()]++
			}
		}
	}
	for _, c := range results.NewNodeClaims {
		for _, pod := range c.Pods {
			if place, ok := at(pod); ok {
				place.added++
			}
		}
	}
	for pod := range results.PodErrors {
		if place, ok := at(pod); ok {
			place.failed++
		}
	}
	p.sizer.Cluster.UpdateBufferPodCounts(onNodes)
	return p.writeBuffers(ctx, places)
}

func (p *Provisioner) writeBuffers(ctx context.Context, places map[types.NamespacedName]*placement) error {
	var list autoscalingv1beta1.CapacityBufferList
	if err := p.sizer.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing capacity buffers, %w", err)
	}
	var errs []error
	for i := range list.Items {
		buffer := &list.Items[i]
		condition := bufferCondition(buffer, places[client.ObjectKeyFromObject(buffer)])
		if condition == nil {
			continue
		}
		stored := buffer.DeepCopy()
		if !meta.SetStatusCondition(&buffer.Status.Conditions, *condition) {
			continue
		}
		if err := p.sizer.Client.Status().Patch(ctx, buffer, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
			errs = append(errs, fmt.Errorf("patching capacity buffer %s/%s, %w", buffer.Namespace, buffer.Name, err))
		}
	}
	return errors.Join(errs...)
}

// bufferCondition is nil where the condition stays as it is.
func bufferCondition(b *autoscalingv1beta1.CapacityBuffer, place *placement) *metav1.Condition {
	out := &metav1.Condition{Type: autoscalingv1beta1.ProvisioningCondition, Status: metav1.ConditionFalse, ObservedGeneration: b.Generation}
	want := 0
	if b.Status.Replicas != nil {
		want = int(*b.Status.Replicas)
	}
	switch {
	case !meta.IsStatusConditionTrue(b.Status.Conditions, autoscalingv1beta1.ReadyForProvisioningCondition):
		out.Reason, out.Message = "NotReadyForProvisioning", "Buffer is not ReadyForProvisioning"
	case want == 0:
		out.Reason, out.Message = "BufferEmpty", "Buffer has zero desired replicas"
	case place == nil:
		return nil
	case place.added > 0 || place.failed > 0:
		out.Reason = "RequiresNewCapacity"
		out.Message = fmt.Sprintf("%d/%d virtual pods required new capacity, %d failed", place.added, want, place.failed)
	case place.existing == want:
		out.Status, out.Reason = metav1.ConditionTrue, "FitsExistingCapacity"
		out.Message = fmt.Sprintf("All %d virtual pods fit on existing capacity", want)
	default:
		return nil
	}
	return out
}
