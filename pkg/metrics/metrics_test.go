package metrics_test

import (
	"testing"

	"github.com/awslabs/operatorpkg/docs"
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
)

var (
	state   = opmetrics.Label{Name: "state", Help: "A state.", Values: []docs.Value{{Name: "on"}, {Name: "off"}}}
	counter = metrics.NewCounter(prometheus.CounterOpts{Subsystem: "test", Name: "things_total", Help: "Things."}, metrics.Pool)
	gauge   = metrics.NewGauge(prometheus.GaugeOpts{Subsystem: "test", Name: "things", Help: "Things now."}, metrics.Pool, state)
	seconds = metrics.NewHistogram(prometheus.HistogramOpts{Subsystem: "test", Name: "duration_seconds", Help: "Seconds.", Buckets: []float64{1, 2}}, metrics.Pool)
	others  = metrics.NewCounter(prometheus.CounterOpts{Namespace: "other", Name: "rounds_total", Help: "Rounds."})
)

func TestDeclaredTellsWhatWasDeclared(t *testing.T) {
	want := []metrics.Metric{
		{Name: "karpenter_gpu_test_duration_seconds", Kind: metrics.Histogram, Help: "Seconds.", Labels: []opmetrics.Label{metrics.Pool}, Buckets: []float64{1, 2}},
		{Name: "karpenter_gpu_test_things", Kind: metrics.Gauge, Help: "Things now.", Labels: []opmetrics.Label{metrics.Pool, state}},
		{Name: "karpenter_gpu_test_things_total", Kind: metrics.Counter, Help: "Things.", Labels: []opmetrics.Label{metrics.Pool}},
		{Name: "other_rounds_total", Kind: metrics.Counter, Help: "Rounds."},
	}
	if diff := cmp.Diff(want, metrics.Declared(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A pool that goes takes its series of every kind with it, and nobody else's.
func TestForgetPool(t *testing.T) {
	for _, pool := range []string{"gone", "stays"} {
		labels := map[string]string{metrics.PoolLabel: pool}
		counter.Inc(labels)
		seconds.Observe(1, labels)
		gauge.Set(1, map[string]string{metrics.PoolLabel: pool, "state": "on"})
		gauge.Set(1, map[string]string{metrics.PoolLabel: pool, "state": "off"})
	}
	others.Inc(nil)
	metrics.ForgetPool("gone")
	want := map[string][]string{
		"karpenter_gpu_test_duration_seconds": {"stays"},
		"karpenter_gpu_test_things":           {"stays", "stays"},
		"karpenter_gpu_test_things_total":     {"stays"},
		"other_rounds_total":                  {""},
	}
	if diff := cmp.Diff(want, series(t)); diff != "" {
		t.Errorf("pools by metric (-want +got):\n%s", diff)
	}
}

// series are the pools of the series of this test's metrics.
func series(t *testing.T) map[string][]string {
	t.Helper()
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, m := range metrics.Declared() {
		for _, family := range families {
			if family.GetName() != m.Name {
				continue
			}
			for _, s := range family.GetMetric() {
				pool := ""
				for _, l := range s.GetLabel() {
					if l.GetName() == metrics.PoolLabel {
						pool = l.GetValue()
					}
				}
				found[m.Name] = append(found[m.Name], pool)
			}
		}
	}
	return found
}
