package warm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/utils/apps"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/warm"
)

// demand is what one entry wants at a time, and how far it has it.
type demand struct {
	entry      *v1alpha1.WarmCapacity
	slots      []*slot
	nextChange time.Time
	changes    bool
	// problem is what keeps the entry from being held; nil if nothing does.
	problem *problem
	// keeps says that what was rendered stays: the reference is missing, and a window is open.
	keeps bool
	tally
}

// problem is a reason for the condition WarmCapacityReady, and what to do.
type problem struct{ reason, message string }

// tally is how far an entry has what it wants, in units of the entry.
type tally struct {
	wanted, ready, provisioning int
	// gpus are the physical GPUs of what is ready.
	gpus float64
	// known is false before the provisioner has looked.
	known bool
}

// slot is one capacity buffer of an entry: so many virtual pods like the template, each a
// unit of the entry.
type slot struct {
	key      types.NamespacedName
	template corev1.PodTemplateSpec
	// wanted is the amount by the schedule, then within the price.
	wanted int
	// credits are buffers of users that hold some of it.
	credits []credit
}

// rendered is how many virtual pods are ours to ask for.
func (s *slot) rendered() int {
	return max(0, s.wanted-lo.SumBy(s.credits, func(c credit) int { return c.units }))
}

// demand reads one entry at a time of day.
func (c *Controller) demand(ctx context.Context, p *v1alpha1.GPUPool, pool *pools.Pool, entry *v1alpha1.WarmCapacity, members []*karpv1.NodePool, now time.Time) (*demand, error) {
	d := &demand{entry: entry}
	schedule, unreadable := scheduleOf(entry.Schedule)
	if unreadable != nil {
		d.problem = &problem{v1alpha1.ReasonInvalidSpec, unreadable.Error()}
		return d, nil //nolint:nilerr // the pool is told
	}
	share := schedule.Share(now)
	d.nextChange, d.changes = schedule.NextChange(now)
	if err := c.shape(ctx, p, pool, d); err != nil {
		return nil, err
	}
	d.keeps = share > 0 && d.problem != nil && d.problem.reason == v1alpha1.ReasonReferenceNotFound
	for _, s := range d.slots {
		s.wanted = warm.Amount(s.wanted, share)
		aim(&s.template, p, entry, members)
	}
	return d, nil
}

// scheduleOf are the windows of an entry. The API server and RuntimeValidate have refused
// those that cannot be read.
func scheduleOf(s *v1alpha1.WarmSchedule) (warm.Schedule, error) {
	if s == nil {
		return nil, nil
	}
	var out warm.Schedule
	for i := range s.Windows {
		w := &s.Windows[i]
		starts, err := w.Cron()
		if err != nil {
			return nil, fmt.Errorf("reading start %q, %w", w.Start, err)
		}
		location, err := w.Location()
		if err != nil {
			return nil, err
		}
		out = append(out, warm.Window{Starts: starts, Duration: w.Duration.Duration, Location: location, SharePercent: int(w.GetSharePercent())})
	}
	return out, nil
}

// shape makes the slots of an entry with their full amounts.
func (c *Controller) shape(ctx context.Context, p *v1alpha1.GPUPool, pool *pools.Pool, d *demand) error {
	switch e := d.entry; {
	case e.GPUs != nil:
		if p.Spec.Partitioning.Kind() == v1alpha1.PartitioningMIG && p.Spec.Partitioning.MIG.GetStrategy() == v1alpha1.MIGStrategySingle {
			d.problem = &problem{v1alpha1.ReasonInvalidSpec, "with MIG strategy Single nvidia.com/gpu is a partition, and whole GPUs cannot be asked for; hold partitions in place of gpus"}
			return nil
		}
		units := int64(max(1, p.Spec.Partitioning.Replicas()))
		d.slots = []*slot{{key: c.name(p, e, ""), wanted: int(*e.GPUs), template: holding(corev1.ResourceName(pool.Sharing.ResourceName()), units)}}
	case len(e.Partitions) > 0:
		for _, part := range e.Partitions {
			s := &slot{key: c.name(p, e, part.Profile), wanted: int(part.Count), template: holding(v1alpha1.ResourceGPU, 1)}
			if p.Spec.Partitioning.MIG.GetStrategy() == v1alpha1.MIGStrategyMixed {
				s.template = holding(corev1.ResourceName(v1alpha1.ResourceMIGPrefix+strings.ReplaceAll(part.Profile, "+", ".")), 1)
			} else {
				// Partitions have one name whatever they are: the layout says what.
				require(&s.template.Spec, corev1.NodeSelectorRequirement{Key: v1alpha1.LayoutLabelKey, Operator: corev1.NodeSelectorOpIn,
					Values: []string{"all-" + strings.ReplaceAll(part.Profile, "+", ".")}})
			}
			d.slots = append(d.slots, s)
		}
	default:
		return c.refer(ctx, p, d)
	}
	return nil
}

// refer makes the slot of an entry that follows a pod template or a workload.
func (c *Controller) refer(ctx context.Context, p *v1alpha1.GPUPool, d *demand) error {
	e := d.entry
	s := &slot{wanted: int(lo.FromPtr(e.Replicas))}
	var err error
	var what string
	switch {
	case e.PodTemplateRef != nil:
		what = fmt.Sprintf("podTemplateRef %s/%s", e.PodTemplateRef.Namespace, e.PodTemplateRef.Name)
		var found *apps.PodTemplateResult
		if found, err = apps.ResolvePodTemplateRef(ctx, c.Client, e.PodTemplateRef.Name, e.PodTemplateRef.Namespace); err == nil {
			s.template = *found.PodTemplateSpec.DeepCopy()
		}
		s.key = types.NamespacedName{Namespace: e.PodTemplateRef.Namespace, Name: c.name(p, e, "").Name}
	case e.ScalableRef != nil:
		ref := e.ScalableRef
		what = fmt.Sprintf("scalableRef %s %s/%s", ref.Kind, ref.Namespace, ref.Name)
		var found *apps.ScalableRefResult
		if found, err = apps.ResolveScalableRef(ctx, c.Client, &autoscalingv1beta1.ScalableRef{APIGroup: ref.GetAPIGroup(), Kind: ref.Kind, Name: ref.Name}, ref.Namespace); err == nil {
			s.template = *found.PodTemplateSpec.DeepCopy()
			if e.Percentage != nil {
				s.wanted = (int(found.ScalableReplicas)*int(*e.Percentage) + 99) / 100
			}
		}
		s.key = types.NamespacedName{Namespace: ref.Namespace, Name: c.name(p, e, "").Name}
	}
	switch {
	case apierrors.IsNotFound(err):
		d.problem = &problem{v1alpha1.ReasonReferenceNotFound, what + " does not exist; create it, or correct its name"}
		return nil
	case apierrors.ReasonForError(err) != "": // the API server's, and it may pass
		return fmt.Errorf("reading %s, %w", what, err)
	case err != nil:
		d.problem = &problem{v1alpha1.ReasonReferenceNotFound, fmt.Sprintf("%s cannot be followed: %s; name a Deployment, StatefulSet or ReplicaSet of the group apps", what, err)}
		return nil
	}
	d.slots = []*slot{s}
	return nil
}

// name is what the objects made for an entry are called, in the controller's namespace. A
// profile tells the buffers of one entry apart: "1g.24gb+me" is "1g-24gb--me" there, since
// "1g.24gb-me" is another.
func (c *Controller) name(p *v1alpha1.GPUPool, entry *v1alpha1.WarmCapacity, profile string) types.NamespacedName {
	name := p.Name + "." + entry.Name
	if profile != "" {
		name += "." + strings.NewReplacer("+", "--", ".", "-").Replace(profile)
	}
	return types.NamespacedName{Namespace: c.Namespace, Name: name}
}

func gateOff() *problem {
	return &problem{v1alpha1.ReasonBuffersDisabled, "nothing is held ready, because Karpenter's feature gate CapacityBuffer is off; set settings.featureGates.capacityBuffer=true in the chart, or CapacityBuffer=true in FEATURE_GATES"}
}
