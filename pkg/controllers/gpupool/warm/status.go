package warm

import (
	"fmt"
	"math"
	"strings"
	"time"

	operatorstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// maxMessage is the API's bound on the message of an entry.
const maxMessage = 1024

// tell writes the status of the entries, the count of warm GPUs and the condition, and what
// has changed as events and metrics.
func (c *Controller) tell(p, stored *v1alpha1.GPUPool, demands []*demand, now time.Time) {
	before := lo.KeyBy(stored.Status.Warm, func(w v1alpha1.WarmStatus) string { return w.Name })
	p.Status.Warm = nil
	gpus := 0.0
	for _, d := range demands {
		was, existed := before[d.entry.Name]
		w := d.status(was, existed, now)
		if existed && w.Wanted != was.Wanted {
			c.Recorder.Publish(ChangedEvent(p, was, w))
		}
		p.Status.Warm = append(p.Status.Warm, w)
		gpus += d.gpus
		measure(p.Name, w)
	}
	for name := range before {
		if !lo.ContainsBy(p.Status.Warm, func(w v1alpha1.WarmStatus) bool { return w.Name == name }) {
			forget(p.Name, name)
		}
	}
	p.Status.GPUs.Warm = min(p.Status.GPUs.Ready, int32(math.Round(gpus)))
	c.condition(p, demands)
}

// status is what an entry is told as. While the provisioner has not looked yet, as after a
// start, what was told before stands.
func (d *demand) status(was v1alpha1.WarmStatus, existed bool, now time.Time) v1alpha1.WarmStatus {
	out := v1alpha1.WarmStatus{Name: d.entry.Name, Unit: d.entry.Unit(), Wanted: int32(d.wanted), Ready: int32(d.ready), Provisioning: int32(d.provisioning), Since: was.Since} //nolint:gosec // bounded by the API
	if !d.known && existed && len(d.slots) > 0 {
		out.Ready, out.Provisioning = min(was.Ready, out.Wanted), min(was.Provisioning, max(0, out.Wanted-was.Ready))
	}
	if d.changes {
		out.NextChange = &metav1.Time{Time: d.nextChange.Truncate(time.Second)}
	}
	if !existed || was.Since == nil || was.Wanted != out.Wanted || (was.Ready >= was.Wanted) != (out.Ready >= out.Wanted) {
		out.Since = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	out.Message = d.message(out)
	return out
}

func (d *demand) message(w v1alpha1.WarmStatus) string {
	switch {
	case d.problem != nil:
		return shorten(d.problem.message)
	case w.Ready < w.Wanted && w.Provisioning > 0:
		return fmt.Sprintf("%d of %d are on their way", w.Provisioning, w.Wanted)
	case w.Ready < w.Wanted:
		return "the provisioner has not looked for a place yet"
	}
	return ""
}

func shorten(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage-4], "") + " ..."
}

// condition sums the entries up: the first that has less than it should speaks for all.
func (c *Controller) condition(p *v1alpha1.GPUPool, demands []*demand) {
	if len(demands) == 0 && !hasCondition(p) {
		return
	}
	conditions := p.StatusConditions(operatorstatus.WithClock(c.Clock))
	if len(demands) == 0 {
		_ = conditions.Clear(v1alpha1.ConditionTypeWarmCapacityReady)
		return
	}
	for i, d := range demands {
		w := p.Status.Warm[i]
		if d.problem == nil && w.Ready >= w.Wanted {
			continue
		}
		reason := v1alpha1.ReasonFilling
		if d.problem != nil {
			reason = d.problem.reason
		}
		message := shorten(fmt.Sprintf("%s: %d of %d ready: %s", w.Name, w.Ready, w.Wanted, w.Message))
		conditions.SetFalse(v1alpha1.ConditionTypeWarmCapacityReady, reason, message)
		if reason != v1alpha1.ReasonFilling {
			c.Recorder.Publish(ShortEvent(p, reason, message))
		}
		return
	}
	conditions.SetTrue(v1alpha1.ConditionTypeWarmCapacityReady)
}
