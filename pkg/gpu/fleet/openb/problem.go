package openb

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
)

// Resources are those of the problems made here: millicores, MiB and GPUs.
func Resources() []string { return []string{"cpu", "memory", "nvidia.com/gpu"} }

// Parts of the advertised size that are left for pods, in thousandths, after
// what the system, the kubelet and daemons take of a GPU host.
const (
	allocatableCPU    = 940
	allocatableMemory = 930
)

// Shapes returns the catalogue's EC2 shapes of the families that have whole GPUs
// and a known price, as shapes of a Problem, with the model of each.
func Shapes(all []catalog.Shape, families []string) (shapes []fleet.Shape, models []string) {
	for _, s := range all {
		if s.Provider != "aws" || !s.HasGPU() || s.Fractional() || s.PricePerHour <= 0 || !slices.Contains(families, s.Family) {
			continue
		}
		shapes = append(shapes, fleet.Shape{Name: s.Name, Price: s.PricePerHour, GPUs: s.GPUs, Allocatable: []int64{
			int64(s.VCPU) * allocatableCPU, int64(s.MemoryMiB) * allocatableMemory / 1000, int64(s.GPUs)}})
		models = append(models, s.Model.Key)
	}
	return shapes, models
}

// Allowed is the indexes of the shapes, given by their models, that the pod may
// run on; nil when it names no model and may run on all.
func (p Pod) Allowed(models []string, standIns map[string][]string) []int {
	if len(p.Models) == 0 {
		return nil
	}
	out := []int{}
	for i, have := range models {
		if slices.ContainsFunc(p.Models, func(want string) bool { return slices.Contains(standIns[want], have) }) {
			out = append(out, i)
		}
	}
	return out
}

// Runs says whether some shape may take the pod and holds it.
func (p Pod) Runs(shapes []fleet.Shape, allowed []int) bool {
	for i, s := range shapes {
		if (allowed == nil || slices.Contains(allowed, i)) && s.Allocatable[0] >= p.CPUMilli &&
			s.Allocatable[1] >= p.MemoryMiB && s.Allocatable[2] >= int64(p.GPUs) {
			return true
		}
	}
	return false
}

// Problem groups equal pods into classes over the shapes. The shapes are not
// copied.
func Problem(pods []Pod, shapes []fleet.Shape, models []string, standIns map[string][]string) fleet.Problem {
	p := fleet.Problem{Resources: Resources(), GPUResources: []string{"nvidia.com/gpu"}, Shapes: shapes}
	at := map[string]int{}
	for _, pod := range pods {
		name := pod.class()
		i, ok := at[name]
		if !ok {
			i = len(p.Classes)
			at[name] = i
			p.Classes = append(p.Classes, fleet.Class{Name: name, Shapes: pod.Allowed(models, standIns),
				Requests: []int64{pod.CPUMilli, pod.MemoryMiB, int64(pod.GPUs)}})
		}
		p.Classes[i].Count++
	}
	return p
}

func (p Pod) class() string {
	return fmt.Sprintf("%dm %dMi %dgpu %s", p.CPUMilli, p.MemoryMiB, p.GPUs, strings.Join(p.Models, "|"))
}
