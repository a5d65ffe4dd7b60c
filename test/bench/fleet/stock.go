package main

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet/openb"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning/simulate"
)

const (
	benchPool = "bench"
	benchZone = "us-east-1a"
)

// packAsStock packs with Karpenter's own scheduler.
func packAsStock(c Cell) (price, seconds float64, err error) { return schedule(c, false) }

// packAsController packs with the scheduler and the repacking after it, as the
// controller does.
func packAsController(c Cell) (price, seconds float64, err error) { return schedule(c, true) }

func schedule(c Cell, rightSize bool) (price, seconds float64, err error) {
	ctx := context.Background()
	w, err := newWorld(ctx, c)
	if err != nil {
		return 0, 0, err
	}
	batch := c.Batch
	if batch == 0 {
		batch = len(c.Pods)
	}
	for at := 0; at < len(c.Pods); at += batch {
		for i, p := range c.Pods[at:min(at+batch, len(c.Pods))] {
			if err := w.Add(ctx, c.pod(p, at+i)); err != nil {
				return 0, 0, err
			}
		}
		decide := w.Stock
		if rightSize {
			decide = w.RightSized
		}
		d, err := decide(ctx)
		if err != nil {
			return 0, 0, err
		}
		if len(d.Unplaced) > 0 {
			return 0, 0, fmt.Errorf("%d pods have no node: %v", len(d.Unplaced), d.Unplaced)
		}
		price, seconds = price+d.Price, seconds+d.Scheduling.Seconds()+d.Repacking.Seconds()
		if err := w.Launch(ctx, d); err != nil {
			return 0, 0, err
		}
	}
	return price, seconds, nil
}

func newWorld(ctx context.Context, c Cell) (*simulate.World, error) {
	np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: benchPool, Labels: map[string]string{v1alpha1.PoolLabelKey: benchPool}}}
	np.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "example.com", Kind: "NodeClass", Name: benchPool}
	types := make([]*cloudprovider.InstanceType, len(c.Shapes))
	for i := range c.Shapes {
		types[i] = c.instanceType(i)
	}
	return simulate.New(ctx, simulate.Input{
		NodePools: []*karpv1.NodePool{np},
		GPUPools:  []*v1alpha1.GPUPool{{ObjectMeta: metav1.ObjectMeta{Name: benchPool}}},
		Clock:     clock.RealClock{},
		InstanceTypes: func(context.Context, *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
			return types, nil
		},
	})
}

// instanceType has as capacity what the shape leaves for pods.
func (c Cell) instanceType(i int) *cloudprovider.InstanceType {
	s := c.Shapes[i]
	labels := map[string]string{corev1.LabelInstanceTypeStable: s.Name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}
	offered := map[string]string{corev1.LabelTopologyZone: benchZone, karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand}
	reqs := scheduling.NewLabelRequirements(labels)
	reqs.Add(scheduling.NewLabelRequirements(offered).Values()...)
	return &cloudprovider.InstanceType{Name: s.Name, Requirements: reqs, Overhead: &cloudprovider.InstanceTypeOverhead{},
		Offerings: cloudprovider.Offerings{{Available: true, Price: s.Price, Requirements: scheduling.NewLabelRequirements(offered)}},
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(s.Allocatable[0], resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(s.Allocatable[1]<<20, resource.BinarySI),
			corev1.ResourcePods:   resource.MustParse("250"),
			v1alpha1.ResourceGPU:  *resource.NewQuantity(s.Allocatable[2], resource.DecimalSI),
		}}
}

func (c Cell) pod(p openb.Pod, at int) *corev1.Pod {
	requests := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(p.CPUMilli, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(p.MemoryMiB<<20, resource.BinarySI),
		v1alpha1.ResourceGPU:  *resource.NewQuantity(int64(p.GPUs), resource.DecimalSI),
	}
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + strconv.Itoa(at)}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests}}}}}
	allowed := p.Allowed(c.Models, c.StandIns)
	if allowed == nil {
		return out
	}
	names := make([]string, len(allowed))
	for i, s := range allowed {
		names[i] = c.Shapes[s].Name
	}
	out.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: names}}}}}}}
	return out
}
