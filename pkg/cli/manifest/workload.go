package manifest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

// WorkloadAnnotation is on each pod that was made here: the kind and the name of the
// workload, for display.
const WorkloadAnnotation = v1alpha1.Group + "/plan-workload"

// maxPods bounds one workload.
const maxPods = 100_000

func (s *Set) add(o client.Object, at place) error {
	switch t := o.(type) {
	case *karpv1.NodePool:
		return s.addNodePool(t)
	case *v1alpha1.GPUPool:
		s.GPUPools = append(s.GPUPools, t)
		return t.RuntimeValidate(pools.Names{})
	case *corev1.Pod:
		return s.addPod(t, at)
	case *appsv1.DaemonSet:
		namespaced(t)
		s.Objects = append(s.Objects, t)
		return checkSpec("spec.template.spec", &t.Spec.Template.Spec)
	case *corev1.PersistentVolume, *corev1.Namespace:
		s.Objects = append(s.Objects, o)
		return nil
	case *corev1.PersistentVolumeClaim:
		namespaced(t)
		s.Objects = append(s.Objects, t)
		return nil
	}
	if w, ok := workloadOf(o); ok {
		return s.addWorkload(w)
	}
	s.Objects = append(s.Objects, o) // StorageClass
	return nil
}

func (s *Set) addNodePool(n *karpv1.NodePool) error {
	s.NodePools = append(s.NodePools, n)
	if n.UID == "" {
		n.UID = types.UID("nodepool-" + n.Name)
	}
	return n.RuntimeValidate(context.Background())
}

func namespaced(o client.Object) {
	if o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("%T-%s", o, fullName(o))))
	}
}

func (s *Set) addPod(p *corev1.Pod, at place) error {
	namespaced(p)
	if err := checkSpec("spec", &p.Spec); err != nil {
		return err
	}
	ignore := func(reason string) {
		s.Ignored = append(s.Ignored, Ignored{Kind: "Pod", Name: fullName(p), From: at.String(), Reason: reason})
	}
	switch {
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		ignore("it has ended")
	case p.Spec.NodeName != "":
		ignore("it has a node already")
	case len(p.Spec.SchedulingGates) > 0:
		ignore("spec.schedulingGates holds it back")
	default:
		s.Pods = append(s.Pods, pending(p, "Pod "+fullName(p)))
	}
	return nil
}

// pending makes a pod look as one that the kube-scheduler has no node for.
func pending(p *corev1.Pod, workload string) *corev1.Pod {
	p.ResourceVersion = "" // files may come from a cluster
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[WorkloadAnnotation] = workload
	return p
}

// workload is what creates equal pods.
type workload struct {
	client.Object
	kind     string
	replicas int32
	path     string
	template *corev1.PodTemplateSpec
	claims   []corev1.PersistentVolumeClaim
}

// workloadOf reads how many pods run at once. A CronJob counts as one run of it.
func workloadOf(o client.Object) (workload, bool) {
	w := workload{Object: o, path: "spec.template"}
	switch t := o.(type) {
	case *appsv1.Deployment:
		w.kind, w.replicas, w.template = "Deployment", lo.FromPtrOr(t.Spec.Replicas, 1), &t.Spec.Template
	case *appsv1.ReplicaSet:
		w.kind, w.replicas, w.template = "ReplicaSet", lo.FromPtrOr(t.Spec.Replicas, 1), &t.Spec.Template
	case *appsv1.StatefulSet:
		w.kind, w.replicas, w.template, w.claims = "StatefulSet", lo.FromPtrOr(t.Spec.Replicas, 1), &t.Spec.Template, t.Spec.VolumeClaimTemplates
	case *batchv1.Job:
		w.kind, w.replicas, w.template = "Job", atOnce(&t.Spec), &t.Spec.Template
	case *batchv1.CronJob:
		w.kind, w.replicas, w.template = "CronJob", atOnce(&t.Spec.JobTemplate.Spec), &t.Spec.JobTemplate.Spec.Template
		w.path = "spec.jobTemplate.spec.template"
	default:
		return w, false
	}
	return w, true
}

func atOnce(j *batchv1.JobSpec) int32 {
	if lo.FromPtr(j.Suspend) {
		return 0
	}
	parallelism := lo.FromPtrOr(j.Parallelism, 1)
	if j.Completions == nil {
		return parallelism
	}
	return min(parallelism, *j.Completions)
}

func (s *Set) addWorkload(w workload) error {
	namespaced(w.Object)
	if w.replicas < 0 || w.replicas > maxPods {
		return fmt.Errorf("the number of pods is %d; use 0 to %d", w.replicas, maxPods)
	}
	if err := checkSpec(w.path+".spec", &w.template.Spec); err != nil {
		return err
	}
	title := fmt.Sprintf("%s %s", w.kind, fullName(w.Object))
	if len(w.template.Spec.SchedulingGates) > 0 {
		s.Ignored = append(s.Ignored, Ignored{Kind: w.kind, Name: fullName(w.Object), Reason: w.path + ".spec.schedulingGates holds its pods back"})
		return nil
	}
	for i := range int(w.replicas) {
		p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: *w.template.ObjectMeta.DeepCopy(), Spec: *w.template.Spec.DeepCopy()}
		p.Namespace, p.Name = w.GetNamespace(), fmt.Sprintf("%s-%d", w.GetName(), i)
		p.UID = types.UID(fmt.Sprintf("%s-%s-%06d", strings.ToLower(w.kind), fullName(w.Object), i))
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: w.kind, Name: w.GetName(), UID: w.GetUID(), Controller: lo.ToPtr(true)}}
		s.claim(w, p)
		s.Pods = append(s.Pods, pending(p, title))
	}
	return nil
}

// claim gives a pod of a StatefulSet its volumes.
func (s *Set) claim(w workload, p *corev1.Pod) {
	for i := range w.claims {
		pvc := w.claims[i].DeepCopy()
		pvc.Name, pvc.Namespace = fmt.Sprintf("%s-%s", w.claims[i].Name, p.Name), p.Namespace
		namespaced(pvc)
		s.Objects = append(s.Objects, pvc)
		p.Spec.Volumes = append(lo.Reject(p.Spec.Volumes, func(v corev1.Volume, _ int) bool { return v.Name == w.claims[i].Name }),
			corev1.Volume{Name: w.claims[i].Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc.Name}}})
	}
}

// checkSpec finds what an API server would refuse and a plan would stumble over, and
// does what it would do: a limit without a request is the request, too.
func checkSpec(path string, spec *corev1.PodSpec) error {
	if len(spec.Containers) == 0 {
		return fmt.Errorf("%s.containers: missing; a pod needs at least one", path)
	}
	var errs []error
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}} {
		for i := range list.containers {
			requestLimits(&list.containers[i].Resources)
			errs = append(errs, checkResources(fmt.Sprintf("%s.%s[%d].resources", path, list.name, i), list.containers[i].Resources))
		}
	}
	return errors.Join(errs...)
}

func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; ok {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = limit
	}
}

func checkResources(path string, r corev1.ResourceRequirements) error {
	for _, name := range sortedKeys(lo.MapKeys(r.Requests, func(_ resource.Quantity, k corev1.ResourceName) string { return string(k) })) {
		request, limit := r.Requests[corev1.ResourceName(name)], r.Limits[corev1.ResourceName(name)]
		_, limited := r.Limits[corev1.ResourceName(name)]
		extended := strings.Contains(name, "/") && !strings.HasPrefix(name, "kubernetes.io/")
		switch {
		case request.Sign() < 0:
			return fmt.Errorf("%s.requests[%s]: %s is negative; use 0 or more", path, name, request.String())
		case limited && request.Cmp(limit) > 0:
			return fmt.Errorf("%s.requests[%s]: %s is more than the limit of %s; raise the limit", path, name, request.String(), limit.String())
		case extended && (!limited || request.Cmp(limit) != 0):
			return fmt.Errorf("%s.requests[%s]: needs a limit of the same amount, because the resource cannot be overcommitted; write it under limits", path, name)
		}
	}
	return checkLimits(path, r)
}

func checkLimits(path string, r corev1.ResourceRequirements) error {
	for _, name := range sortedKeys(lo.MapKeys(r.Limits, func(_ resource.Quantity, k corev1.ResourceName) string { return string(k) })) {
		limit := r.Limits[corev1.ResourceName(name)]
		if limit.Sign() < 0 {
			return fmt.Errorf("%s.limits[%s]: %s is negative; use 0 or more", path, name, limit.String())
		}
		if strings.Contains(name, "/") && limit.MilliValue()%1000 != 0 {
			return fmt.Errorf("%s.limits[%s]: %s is no whole number, and such devices are not divided this way; ask for whole ones, or for partitions or replicas of a GPUPool", path, name, limit.String())
		}
	}
	return nil
}
