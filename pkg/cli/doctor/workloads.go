package doctor

import (
	"fmt"
	"slices"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/pod/selector"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// workload creates pods of one template.
type workload struct {
	client.Object
	kind string
	// resource is what kubectl patches; empty where the template cannot be changed.
	resource string
	// path of the pod's spec, as a JSON pointer.
	path string
	spec *corev1.PodSpec
	// waits is false where no pod is wanted now.
	waits bool
}

// workloadOf reads a workload. Jobs and Pods that have ended wait for nothing; their
// templates cannot be changed in any case.
func workloadOf(o client.Object) (w workload, ok bool) {
	const template = "/spec/template/spec"
	switch t := o.(type) {
	case *appsv1.Deployment:
		return workload{t, "Deployment", "deployment", template, &t.Spec.Template.Spec, lo.FromPtrOr(t.Spec.Replicas, 1) > 0}, true
	case *appsv1.StatefulSet:
		return workload{t, "StatefulSet", "statefulset", template, &t.Spec.Template.Spec, lo.FromPtrOr(t.Spec.Replicas, 1) > 0}, true
	case *batchv1.CronJob:
		return workload{t, "CronJob", "cronjob", "/spec/jobTemplate/spec/template/spec", &t.Spec.JobTemplate.Spec.Template.Spec, !lo.FromPtr(t.Spec.Suspend)}, true
	case *batchv1.Job:
		return workload{t, "Job", "", template, &t.Spec.Template.Spec, t.Status.CompletionTime == nil && !lo.FromPtr(t.Spec.Suspend)}, true
	case *corev1.Pod:
		return workload{t, "Pod", "", "/spec", &t.Spec, t.Spec.NodeName == "" && (t.Status.Phase == "" || t.Status.Phase == corev1.PodPending)}, true
	}
	return workload{}, false
}

// workloads looks for pods that no node can ever take, with the code of the event
// NoSuchGPU. As there, without any GPUPool nothing is said; nor is it where a NodePool's
// instance types are not known, because it may have what is asked for.
func (e *examination) workloads() {
	if len(e.pools) == 0 || len(e.offered) < len(e.nodePools) {
		return
	}
	finder := selector.NewFinder()
	for _, n := range e.Nodes {
		finder.AddNode(n)
	}
	for _, np := range e.nodePools {
		finder.AddTypes(judged(np), e.offered[np.Name])
	}
	for _, o := range e.Workloads {
		w, ok := workloadOf(o)
		if !ok || !w.waits {
			continue
		}
		if problem, found := finder.Problem(asPod(w.spec)); found {
			e.add(w.finding(problem, e.troubled()))
		}
	}
}

// judged is a NodePool without the requirements that the catalogue does not answer for.
func judged(np *karpv1.NodePool) *karpv1.NodePool {
	out := np.DeepCopy()
	out.Spec.Template.Spec.Requirements = slices.DeleteFunc(out.Spec.Template.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool { return slices.Contains(unjudged, r.Key) })
	return out
}

// troubled says whether NodePools or GPUPools have faults that decide about what nodes
// can have.
func (e *examination) troubled() bool {
	deciding := []Reason{ReasonObjectInvalid, ReasonGPUPoolMissing, ReasonPoolLabelMisplaced, ReasonNoInstanceTypes, ReasonPartitioningUnsupported}
	return slices.ContainsFunc(e.report.Findings, func(f Finding) bool { return slices.Contains(deciding, f.Reason) })
}

// asPod makes a pod with requests that follow from limits, as an API server would.
func asPod(spec *corev1.PodSpec) *corev1.Pod {
	pod := &corev1.Pod{Spec: *spec.DeepCopy()}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			r := &containers[i].Resources
			r.Requests = lo.Assign(r.Limits, r.Requests)
		}
	}
	return pod
}

// finding says what a pod asks for in vain. While pools are troubled their mending comes
// first: what is impossible now may be possible then.
func (w workload) finding(p selector.Problem, troubled bool) Finding {
	const first = "mend the NodePools and GPUPools first; if it stays, "
	f := Finding{Severity: Error, Reason: ReasonLabelNeverMatches, Object: title(w.kind, w.Object), Message: p.Message}
	switch {
	case p.Selector.Key == "" && p.Partition != "":
		f.Reason = ReasonPartitionNeverOffered
		f.Fix = lo.Ternary(troubled, first, "") + "ask for a partition that is offered, or add the profile to spec.partitioning.mig of a GPUPool"
		return f
	case p.Nearest.Value == "" || p.Selector.Operator != catalog.OpIn:
		f.Fix = lo.Ternary(troubled, first, "") + "ask for less at once, or let a NodePool allow such machines"
		return f
	case troubled:
		f.Fix = fmt.Sprintf("%sask for %s: %s", first, p.Nearest.Key, p.Nearest.Value)
		return f
	}
	f.Command = w.correct(p)
	if f.Command == "" {
		f.Fix = fmt.Sprintf("create it again with %s: %s", p.Nearest.Key, p.Nearest.Value)
	}
	return f
}

// correct puts the nearest value where the faulty one stands.
func (w workload) correct(p selector.Problem) string {
	if w.resource == "" {
		return ""
	}
	if _, ok := w.spec.NodeSelector[p.Selector.Key]; ok {
		patch := []operation{{"replace", w.path + "/nodeSelector/" + escape(p.Selector.Key), p.Nearest.Value}}
		if p.Nearest.Key != p.Selector.Key {
			patch = []operation{{Op: "remove", Path: w.path + "/nodeSelector/" + escape(p.Selector.Key)}, {"add", w.path + "/nodeSelector/" + escape(p.Nearest.Key), p.Nearest.Value}}
		}
		return steps(w.resource, w.Object, patch...)
	}
	terms := w.spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	i := slices.IndexFunc(terms[0].MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return r.Key == p.Selector.Key })
	at := fmt.Sprintf("%s/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/%d", w.path, i)
	patch := []operation{{"replace", at + "/values", []string{p.Nearest.Value}}}
	if p.Nearest.Key != p.Selector.Key {
		patch = append([]operation{{"replace", at + "/key", p.Nearest.Key}}, patch...)
	}
	return steps(w.resource, w.Object, patch...)
}
