package simulate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning/simulate"
)

// varied are pods whose requests differ as a trace's do.
func varied(n int) []*corev1.Pod {
	rng := rand.New(rand.NewPCG(1, 2))
	return lo.Times(n, func(i int) *corev1.Pod {
		return pods(fmt.Sprintf("v%05d", i), 1, 1<<rng.IntN(4), fmt.Sprintf("%dm", 500*(1+rng.IntN(24))))[0]
	})
}

func market(n int) []*cloudprovider.InstanceType {
	return lo.Times(n, func(i int) *cloudprovider.InstanceType {
		gpus := 1 << (i % 4)
		return gpuType(fmt.Sprintf("t%03d", i), gpus, float64(gpus)*(1+float64(i%37)/37))
	})
}

// BenchmarkDecision splits the time of a decision into stock's scheduling and the
// repacking after it.
func BenchmarkDecision(b *testing.B) {
	for _, size := range []struct{ pods, types int }{{100, 400}, {1000, 400}, {5000, 40}} {
		b.Run(fmt.Sprintf("pods=%d/types=%d", size.pods, size.types), func(b *testing.B) {
			ctx := context.Background()
			for b.Loop() {
				w, err := simulate.New(ctx, input(market(size.types)...))
				if err != nil {
					b.Fatal(err)
				}
				if err := w.Add(ctx, varied(size.pods)...); err != nil {
					b.Fatal(err)
				}
				d, err := w.RightSized(ctx)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(d.Scheduling.Seconds(), "scheduling-s")
				b.ReportMetric(d.Repacking.Seconds(), "repacking-s")
				b.ReportMetric(d.Price, "$/h")
			}
		})
	}
}
