package provisioning

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/daemonset"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// daemon is a pod that a DaemonSet would put on a new node.
type daemon struct {
	key string
	pod *corev1.Pod
	// terms are the alternatives of its required node affinity.
	terms []scheduling.Requirements
}

// listDaemons reads what stock's scheduler counts as overhead: for each DaemonSet a
// running pod of it, or else its template, with the template's node affinity.
func listDaemons(ctx context.Context, c client.Reader, cluster *state.Cluster) ([]daemon, error) {
	var list appsv1.DaemonSetList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing daemonsets, %w", err)
	}
	var out []daemon
	for i := range list.Items {
		ds := &list.Items[i]
		pod := cluster.GetDaemonSetPod(ds)
		if pod == nil {
			pod = daemonset.PodForDaemonSet(ds)
		}
		pod = pod.DeepCopy()
		if podutils.HasDRARequirements(pod) && options.FromContext(ctx).IgnoreDRARequests {
			continue
		}
		if affinity := ds.Spec.Template.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil && affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			if pod.Spec.Affinity == nil {
				pod.Spec.Affinity = &corev1.Affinity{}
			}
			if pod.Spec.Affinity.NodeAffinity == nil {
				pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
			}
			pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.DeepCopy()
		}
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectPreferNoSchedule})
		out = append(out, daemon{key: client.ObjectKeyFromObject(pod).String(), pod: pod, terms: alternatives(pod)})
	}
	slices.SortStableFunc(out, func(a, b daemon) int { return strings.Compare(a.key, b.key) })
	return out, nil
}

// alternatives are the requirements of a pod for each term of its required node
// affinity, first term first.
func alternatives(pod *corev1.Pod) []scheduling.Requirements {
	pod = pod.DeepCopy()
	out := []scheduling.Requirements{scheduling.NewStrictPodRequirements(pod)}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return out
	}
	selector := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for len(selector.NodeSelectorTerms) > 1 {
		selector.NodeSelectorTerms = selector.NodeSelectorTerms[1:]
		out = append(out, scheduling.NewStrictPodRequirements(pod))
	}
	return out
}

func (d *daemon) runsOn(t *scheduler.NodeClaimTemplate, it *cloudprovider.InstanceType) bool {
	if scheduling.Taints(t.Spec.Taints).ToleratesPod(d.pod) != nil {
		return false
	}
	return slices.ContainsFunc(d.terms, func(reqs scheduling.Requirements) bool {
		return t.Requirements.IsCompatible(reqs, scheduling.AllowUndefinedWellKnownLabels) && it.Requirements.Intersects(reqs) == nil
	})
}

// overhead is what daemons take on nodes of some instance types.
type overhead struct {
	requests corev1.ResourceList
	ports    *scheduling.HostPortUsage
	held     map[string]bool // host ports, by portKey
}

// overheads groups the types of a template by the daemons that run on them.
func overheads(t *scheduler.NodeClaimTemplate, types []*cloudprovider.InstanceType, daemons []daemon) map[*cloudprovider.InstanceType]*overhead {
	groups, out := map[string]*overhead{}, make(map[*cloudprovider.InstanceType]*overhead, len(types))
	for _, it := range types {
		run := lo.Filter(daemons, func(d daemon, _ int) bool { return d.runsOn(t, it) })
		key := strings.Join(lo.Map(run, func(d daemon, _ int) string { return d.key }), ",")
		if groups[key] == nil {
			groups[key] = newOverhead(run)
		}
		out[it] = groups[key]
	}
	return out
}

func newOverhead(daemons []daemon) *overhead {
	o := &overhead{ports: scheduling.NewHostPortUsage(), held: map[string]bool{}}
	if len(daemons) == 0 {
		return o
	}
	o.requests = resources.RequestsForPods(lo.Map(daemons, func(d daemon, _ int) *corev1.Pod { return d.pod })...)
	for _, d := range daemons {
		ports := scheduling.GetHostPorts(d.pod)
		o.ports.Add(d.pod, ports)
		for _, p := range ports {
			o.held[portKey(p)] = true
		}
	}
	return o
}

// portKey names a host port whatever its address: two pods with the same port on
// different addresses could share a node, and the packing does not try.
func portKey(p scheduling.HostPort) string { return fmt.Sprintf("port:%s/%d", p.Protocol, p.Port) }
