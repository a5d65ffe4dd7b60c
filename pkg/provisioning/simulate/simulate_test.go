package simulate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning/simulate"
)

func gpuType(name string, gpus int, price float64) *cloudprovider.InstanceType {
	return &cloudprovider.InstanceType{
		Name: name,
		Requirements: scheduling.NewRequirements(
			scheduling.NewRequirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, name),
			scheduling.NewRequirement(corev1.LabelArchStable, corev1.NodeSelectorOpIn, "amd64"),
			scheduling.NewRequirement(corev1.LabelOSStable, corev1.NodeSelectorOpIn, "linux"),
			scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "z"),
			scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, "on-demand")),
		Offerings: cloudprovider.Offerings{{Available: true, Price: price, Requirements: scheduling.NewLabelRequirements(map[string]string{
			corev1.LabelTopologyZone: "z", karpv1.CapacityTypeLabelKey: "on-demand"})}},
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(int64(4*gpus), resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(int64(32*gpus)<<30, resource.BinarySI),
			corev1.ResourcePods: resource.MustParse("110"), v1alpha1.ResourceGPU: *resource.NewQuantity(int64(gpus), resource.DecimalSI)},
		Overhead: &cloudprovider.InstanceTypeOverhead{},
	}
}

func input(types ...*cloudprovider.InstanceType) simulate.Input {
	np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Labels: map[string]string{v1alpha1.PoolLabelKey: "inference"}}}
	np.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "example.com", Kind: "NodeClass", Name: "default"}
	return simulate.Input{
		NodePools: []*karpv1.NodePool{np},
		GPUPools:  []*v1alpha1.GPUPool{{ObjectMeta: metav1.ObjectMeta{Name: "inference"}}},
		Clock:     clock.RealClock{},
		InstanceTypes: func(context.Context, *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
			return types, nil
		},
	}
}

func pods(prefix string, n int, gpus int64, cpu string) []*corev1.Pod {
	return lo.Times(n, func(i int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%04d", prefix, i)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
				Limits:   corev1.ResourceList{v1alpha1.ResourceGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}}}}}}
	})
}

func summary(d simulate.Decision) map[string]int {
	out := map[string]int{}
	for _, n := range d.Nodes {
		out[fmt.Sprintf("%s with %d", n.Type, len(n.Pods))]++
	}
	return out
}

func TestDecisions(t *testing.T) {
	ctx := context.Background()
	w, err := simulate.New(ctx, input(gpuType("gpu1", 1, 1), gpuType("gpu8", 8, 16)))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(ctx, pods("a", 10, 1, "2")...); err != nil {
		t.Fatal(err)
	}
	stock, err := w.Stock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"gpu8 with 8": 1, "gpu8 with 2": 1}, summary(stock)); diff != "" || stock.Price != 32 {
		t.Errorf("stock pays %v (-want +got):\n%s", stock.Price, diff)
	}
	ours, err := w.RightSized(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"gpu1 with 1": 10}, summary(ours)); diff != "" || ours.Price != 10 {
		t.Errorf("ours pays %v (-want +got):\n%s", ours.Price, diff)
	}
}

func TestArrival(t *testing.T) {
	ctx := context.Background()
	w, err := simulate.New(ctx, input(gpuType("gpu4", 4, 3)))
	if err != nil {
		t.Fatal(err)
	}
	for batch, want := range []struct{ nodes, existing int }{{1, 0}, {0, 2}, {1, 0}} {
		if err := w.Add(ctx, pods(fmt.Sprintf("b%d", batch), 2, 1, "1")...); err != nil {
			t.Fatal(err)
		}
		d, err := w.RightSized(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Nodes) != want.nodes || len(d.Existing) != want.existing || len(d.Unplaced) != 0 {
			t.Errorf("batch %d got %d nodes, %d pods on existing ones and %v, want %+v", batch, len(d.Nodes), len(d.Existing), d.Unplaced, want)
		}
		if err := w.Launch(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnplacedSayWhy(t *testing.T) {
	ctx := context.Background()
	in := input(gpuType("gpu8", 8, 16))
	in.GPUPools[0].Spec.Selection.MaxUnusedGPUs = lo.ToPtr[int32](2)
	w, err := simulate.New(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(ctx, append(pods("small", 1, 1, "1"), pods("large", 1, 9, "1")...)...); err != nil {
		t.Fatal(err)
	}
	d, err := w.RightSized(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := "waiting: the cheapest launch, gpu8 (on-demand) at $16.00 per hour, leaves 7 of 8 GPUs unused and spec.selection.maxUnusedGPUs of GPUPool inference is 2; raise it, or let more pods share the node"
	if d.Unplaced["default/small-0000"] != want {
		t.Errorf("got %q, want %q", d.Unplaced["default/small-0000"], want)
	}
	if d.Unplaced["default/large-0000"] == "" || len(d.Nodes) != 0 {
		t.Errorf("got %+v, want a reason for the pod that no type holds", d)
	}
}

// TestTimeOfManyPods compares with stock in the same run: the repacking may take half
// of stock's time again.
func TestTimeOfManyPods(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ctx := context.Background()
	types := lo.Times(400, func(i int) *cloudprovider.InstanceType {
		gpus := 1 << (i % 4)
		return gpuType(fmt.Sprintf("t%03d", i), gpus, float64(gpus)*(1+float64(i%37)/37))
	})
	w, err := simulate.New(ctx, input(types...))
	if err != nil {
		t.Fatal(err)
	}
	for i, cpu := range []string{"1", "2", "2500m", "3"} {
		if err := w.Add(ctx, pods("p"+cpu, 250, int64(1+i%2), cpu)...); err != nil {
			t.Fatal(err)
		}
	}
	stock, err := w.Stock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := w.RightSized(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("1,000 pods, 400 types: scheduling %v for $%.2f/h, repacking %v for $%.2f/h", ours.Scheduling.Round(time.Millisecond), stock.Price, ours.Repacking.Round(time.Millisecond), ours.Price)
	if ours.Price > stock.Price+1e-9 || ours.Repacking > ours.Scheduling/2 {
		t.Errorf("repacking takes %v for $%.2f/h, scheduling %v for $%.2f/h, want at most half of the time and no higher price", ours.Repacking, ours.Price, ours.Scheduling, stock.Price)
	}
}
