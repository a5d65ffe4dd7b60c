package verification

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	metricsNamespace = "karpenter_gpu"
	metricsSubsystem = "verification"
	poolLabel        = "gpupool"
	reasonLabel      = "reason"
)

// Labels of the metrics. Reasons are those of the agent's condition and of verdicts, some
// fifty in all.
var (
	pool   = opmetrics.Label{Name: poolLabel, Help: "The GPUPool."}
	reason = opmetrics.Label{Name: reasonLabel, Help: "Why: a reason of the condition GPUReady or of a verdict."}
)

var (
	verifySeconds = opmetrics.NewPrometheusHistogram(crmetrics.Registry, prometheus.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "duration_seconds",
		Help: "Seconds from a node's launch until it was verified.",
		// A warm image takes some 40 s, a driver that is built on the node 5 minutes and more.
		Buckets: []float64{5, 10, 20, 40, 60, 90, 120, 180, 300, 450, 600, 900, 1800},
	}, []opmetrics.Label{pool}, opmetrics.Alpha)
	fenced = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "fenced_total",
		Help: "Nodes that were at work and get no new pods.",
	}, []opmetrics.Label{pool, reason}, opmetrics.Alpha)
)
