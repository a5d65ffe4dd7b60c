package planner

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// greatest is the most of a resource that a node of any of the types has left for
// pods, and the type.
func greatest(types []*cloudprovider.InstanceType, name corev1.ResourceName) (most resource.Quantity, on string) {
	for _, it := range types {
		for _, g := range it.AllocatableOfferingsList() {
			if have := g.Allocatable[name]; len(g.Offerings) > 0 && have.Cmp(most) > 0 {
				most, on = have, it.Name
			}
		}
	}
	return most, on
}

// readable rounds memory down to whole MiB.
func readable(q resource.Quantity) string {
	const mib = 1 << 20
	if q.Format == resource.BinarySI && q.Value() >= mib {
		return fmt.Sprintf("%dMi", q.Value()/mib)
	}
	return q.String()
}

// allowing names the cheapest instance type that would hold the pod if the NodePool
// allowed it; empty if there is none.
func (r *run) allowing(p *corev1.Pod, t *template, term scheduling.Requirements) string {
	nodePool, ok := lo.Find(r.nodePools, func(n *karpv1.NodePool) bool { return n.Name == t.NodePoolName })
	if !ok {
		return ""
	}
	types, err := r.ours.GetInstanceTypes(context.Background(), nodePool)
	if err != nil {
		return ""
	}
	requests, name, best := resources.RequestsForPods(p), "", math.Inf(1)
	for _, it := range types {
		if it.Requirements.Intersects(term) != nil || !holds(it, requests) {
			continue
		}
		if price := onDemand(it, term); price < best {
			name, best = it.Name, price
		}
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf("allow %s ($%s/h on demand) in spec.template.spec.requirements of NodePool %s", name, v1alpha1.PriceFromFloat(best), t.NodePoolName)
}

// onDemand is the least on-demand price of the offerings that a term allows; infinite
// where there is none.
func onDemand(it *cloudprovider.InstanceType, term scheduling.Requirements) float64 {
	best := math.Inf(1)
	for _, o := range it.Offerings {
		if o.Launchable() && o.CapacityType() == string(v1alpha1.CapacityTypeOnDemand) && term.IsCompatible(o.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
			best = min(best, o.Price)
		}
	}
	return best
}

// offering says how GPUs come to be offered under the name of a resource.
func (r *run) offering(name string) string {
	profile, isMIG := strings.CutPrefix(name, v1alpha1.ResourceMIGPrefix)
	switch {
	case isMIG:
		profile = strings.ReplaceAll(profile, ".me", "+me")
		models := modelsWith(profile)
		if len(models) == 0 {
			return fmt.Sprintf("no GPU has the profile %s; nvidia-smi mig -lgip lists those of a GPU", profile)
		}
		return fmt.Sprintf("join the NodePool to a GPUPool whose spec.partitioning.mig has the profile %s, with GPUs of %s", profile, strings.Join(models, ", "))
	case name == string(v1alpha1.ResourceGPUShared):
		return "join the NodePool to a GPUPool whose spec.partitioning.timeSlicing or .mps has renameByDefault: true"
	}
	return ""
}

// modelsWith are the keys of the geometries that have a profile.
func modelsWith(profile string) []string {
	var out []string
	for _, g := range mig.Geometries() {
		if _, err := g.Profile(profile); err == nil {
			out = append(out, g.Key())
		}
	}
	slices.Sort(out)
	return out
}
