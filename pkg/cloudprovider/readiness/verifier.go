package readiness

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// Reasons of verdicts beside those that the agent gives its condition and those of
// health.Compare.
const (
	// ReasonNoReport: the agent has not reported from this node.
	ReasonNoReport = "NoReport"
	// ReasonNoBootID: the kubelet has not told the boot ID.
	ReasonNoBootID = "NoBootID"
	// ReasonReportRejected: the report is not one that an agent of this version writes.
	ReasonReportRejected = "ReportRejected"
	// ReasonReportVersion: the report is of another version of the agent.
	ReasonReportVersion = "ReportVersion"
	// ReasonReportImplausible: the report claims more than the machine can have.
	ReasonReportImplausible = "ReportImplausible"
	// ReasonResourcesMissing: the kubelet shows less than the node was bought with.
	ReasonResourcesMissing = "ResourcesMissing"
	// ReasonResourcesForeign: the kubelet shows a resource that the layout does not have.
	ReasonResourcesForeign = "ResourcesForeign"
	// ReasonNotRegistered: no Node has joined the cluster.
	ReasonNotRegistered = "NotRegistered"
	// ReasonPartitionsFaulty: some partitions are at fault, few enough for the rest to work on.
	ReasonPartitionsFaulty = "PartitionsFaulty"
)

// maxMessage bounds what is copied of a text that the node wrote, maxTold how many
// differences are told.
const (
	maxMessage = 512
	maxTold    = 3
)

// Verdict is what is to be thought of a node now.
type Verdict struct {
	State State
	// Reason is a word for conditions and events, Message a sentence for a person.
	Reason, Message string
}

// Verifier decides about nodes. It keeps nothing and may be shared.
type Verifier struct {
	shapes Shapes
}

// NewVerifier returns a Verifier that takes instance types from shapes.
func NewVerifier(shapes Shapes) *Verifier { return &Verifier{shapes: shapes} }

// Verify decides about a node. A node that has not been verified in this boot must pass
// everything; one that has is held against its report only: a device plugin that restarts
// takes its resources away for a while.
func (v *Verifier) Verify(s Subject) Verdict {
	e := expect(s, v.shapes)
	if e.gpus == 0 {
		return Verdict{State: StateNoGPU, Reason: string(StateNoGPU), Message: "the node has no GPU"}
	}
	verdict := hardware(s, e)
	if VerifiedThisBoot(s.Node) {
		return settle(s, e, verdict)
	}
	if verdict.State != StateVerified {
		return verdict
	}
	if shortfall := e.shortfall(s.Node); shortfall != nil {
		return *shortfall
	}
	return verdict
}

// Hardware decides by the report alone, before kubelet resources are there.
func (v *Verifier) Hardware(s Subject) Verdict {
	e := expect(s, v.shapes)
	if e.gpus == 0 {
		return Verdict{State: StateNoGPU, Reason: string(StateNoGPU), Message: "the node has no GPU"}
	}
	return hardware(s, e)
}

// settle decides about a node that was verified in this boot. What only says that nothing
// is known now leaves it at work.
func settle(s Subject, e expected, verdict Verdict) Verdict {
	switch verdict.State {
	case StateFaulty:
		return confine(s, e, verdict)
	case StatePending:
		if silent[verdict.Reason] {
			return Verdict{State: StateVerified, Reason: verdict.Reason, Message: verdict.Message}
		}
		verdict.State = StateFaulty
	}
	return verdict
}

// confine leaves a node at work whose faults are those of few enough partitions, all of which
// the scheduler no longer hands out. Nothing fences one partition but the device plugin, by
// taking it out of allocatable: where it does not, because its health checks are off, do not
// know the fault or have forgotten it with a restart, the node is fenced as a whole.
func confine(s Subject, e expected, verdict Verdict) Verdict {
	n, ok := faultyPartitions(s.Node)
	if !ok || n > int(s.Pool.GPUPool.Spec.Health.GetMaxFencedPartitions()) {
		return verdict
	}
	if held := e.withdrawn(s.Node); held < int64(n) {
		verdict.Message = fmt.Sprintf("%s; the device plugin holds back %d of %d partitions at fault", verdict.Message, held, n)
		return verdict
	}
	return Verdict{State: StateDegraded, Reason: ReasonPartitionsFaulty, Message: verdict.Message}
}

// silent reasons tell of the agent, or of demands that were raised after the node had met
// them: those hold for new nodes and new boots, and fence no fleet.
var silent = map[string]bool{
	string(health.MismatchDriver): true, string(health.MismatchCUDA): true,
	ReasonNoReport: true, ReasonReportVersion: true, ReasonReportRejected: true,
	string(health.ReasonNotChecked): true, string(health.MismatchBoot): true, string(health.MismatchState): true,
}

// hardware holds condition and report against the expectation.
func hardware(s Subject, e expected) Verdict {
	condition := Condition(s.Node)
	if condition == nil {
		return pending(ReasonNoReport, "the GPU agent has not reported from this node; check that its pod runs there")
	}
	if s.Node.Status.NodeInfo.BootID == "" {
		return pending(ReasonNoBootID, "the kubelet has not told the boot ID of the node")
	}
	report, err := health.Decode([]byte(s.Node.Annotations[v1alpha1.ReportAnnotationKey]))
	if rejected, ok := health.IsDecodeError(err); ok {
		return rejection(s.Node, rejected)
	}
	if report.BootID != s.Node.Status.NodeInfo.BootID {
		return pending(string(health.MismatchBoot), "the report is of an earlier boot of the node")
	}
	if condition.Status == corev1.ConditionFalse {
		return Verdict{State: StateFaulty, Reason: word(condition.Reason), Message: plain(condition.Message)}
	}
	if condition.Status != corev1.ConditionTrue {
		return pending(word(condition.Reason), plain(condition.Message))
	}
	return judge(health.Compare(report, e.against(report, s)), s)
}

func rejection(node *corev1.Node, err *health.DecodeError) Verdict {
	if node.Annotations[v1alpha1.ReportAnnotationKey] == "" {
		return pending(ReasonNoReport, "the GPU agent has set its condition and no report")
	}
	if err.Kind == health.UnknownVersion {
		return pending(ReasonReportVersion, "the GPU agent is of another version than the controller; upgrade both to the same")
	}
	return pending(ReasonReportRejected, plain(err.Error()))
}

// judge turns differences into a verdict; those whose check is switched off, or only
// warns, do not count.
func judge(mismatches []health.Mismatch, s Subject) Verdict {
	var reason string
	var told []string
	for _, m := range mismatches {
		if waived(m, s.Pool.GPUPool) {
			continue
		}
		if reason == "" {
			reason = string(m.Reason)
		}
		if m.Excess {
			reason = ReasonReportImplausible
		}
		told = append(told, m.String())
	}
	if len(told) == 0 {
		return Verdict{State: StateVerified, Reason: string(health.ReasonVerified), Message: "the GPUs are what was bought"}
	}
	if more := len(told) - maxTold; more > 0 {
		told = append(told[:maxTold], fmt.Sprintf("and %d more", more))
	}
	return pending(reason, plain(strings.Join(told, "; ")))
}

var checkOf = map[health.MismatchReason]v1alpha1.CheckName{
	health.MismatchDriver:     v1alpha1.CheckDriverVersion,
	health.MismatchCUDA:       v1alpha1.CheckCUDAVersion,
	health.MismatchCount:      v1alpha1.CheckGPUCount,
	health.MismatchLost:       v1alpha1.CheckGPULost,
	health.MismatchProduct:    v1alpha1.CheckGPUModel,
	health.MismatchMemory:     v1alpha1.CheckGPUModel,
	health.MismatchPartitions: v1alpha1.CheckMIG,
}

// waived tells whether the pool does without the check. A claim of more than there can be
// is never waived.
func waived(m health.Mismatch, pool *v1alpha1.GPUPool) bool {
	check, ok := pool.Spec.Readiness.Check(checkOf[m.Reason])
	if !ok || m.Excess {
		return false
	}
	return check.Enabled != nil && !*check.Enabled || check.Severity == v1alpha1.SeverityWarning
}

// shortfall compares allocatable with what was bought; nil when it suffices.
func (e expected) shortfall(node *corev1.Node) *Verdict {
	var missing, foreign []string
	for _, name := range resourceNames(e.resources) {
		want, got := e.resources[corev1.ResourceName(name)], node.Status.Allocatable[corev1.ResourceName(name)]
		switch {
		case want.IsZero() && !got.IsZero():
			foreign = append(foreign, fmt.Sprintf("%s: %s of 0", name, got.String()))
		case got.Cmp(want) < 0:
			missing = append(missing, fmt.Sprintf("%s: %s of %s", name, got.String(), want.String()))
		}
	}
	var verdict Verdict
	switch {
	case len(foreign) > 0:
		verdict = pending(ReasonResourcesForeign, "the kubelet shows resources that the layout of the node does not have, "+strings.Join(foreign, ", "))
	case len(missing) > 0:
		verdict = pending(ReasonResourcesMissing, "the device plugin has not registered all devices, "+strings.Join(missing, ", "))
	default:
		return nil
	}
	return &verdict
}

// withdrawn counts NVIDIA's devices that were bought and that allocatable does not have.
func (e expected) withdrawn(node *corev1.Node) int64 {
	var n int64
	for name, want := range e.resources {
		if strings.HasPrefix(string(name), nvidiaPrefix) {
			got := node.Status.Allocatable[name]
			n += max(0, want.Value()-got.Value())
		}
	}
	return n
}

// faultyPartitions counts the partitions with a fatal fault of their own; ok is false
// when a fault is not confined to partitions, or when that cannot be told.
func faultyPartitions(node *corev1.Node) (n int, ok bool) {
	report, err := health.Decode([]byte(node.Annotations[v1alpha1.ReportAnnotationKey]))
	if err != nil || report.More > 0 || report.BootID != node.Status.NodeInfo.BootID {
		return 0, false
	}
	type place struct{ gpu, gi int }
	places := map[place]bool{}
	for _, f := range report.Findings {
		if f.Severity != health.Fatal {
			continue
		}
		if f.Check != health.CheckXID || f.GPU == nil || f.GI == nil {
			return 0, false
		}
		places[place{*f.GPU, *f.GI}] = true
	}
	return len(places), len(places) > 0
}

// Condition returns the agent's condition of the node; nil when there is none.
func Condition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == v1alpha1.NodeConditionGPUReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func pending(reason, message string) Verdict {
	return Verdict{State: StatePending, Reason: reason, Message: message}
}

var wordPattern = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// word returns a reason that the node wrote, where it is one.
func word(reason string) string {
	if wordPattern.MatchString(reason) {
		return reason
	}
	return "Unknown"
}

// plain reduces text that the node wrote to printable ASCII of bounded length.
func plain(s string) string {
	cut := len(s) > maxMessage
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s[:min(len(s), maxMessage)])
	if cut {
		s += " ..."
	}
	return s
}
