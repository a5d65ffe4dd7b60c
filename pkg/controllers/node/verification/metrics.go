package verification

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
)

const (
	subsystem   = "verification"
	poolLabel   = metrics.PoolLabel
	reasonLabel = metrics.ReasonLabel
)

// reason is bounded: reasons are those of the agent's condition and of verdicts, some fifty in
// all.
var reason = opmetrics.Label{Name: reasonLabel, Help: "Why: a reason of the condition GPUReady or of a verdict."}

var (
	verifySeconds = metrics.NewHistogram(prometheus.HistogramOpts{Subsystem: subsystem, Name: "duration_seconds",
		Help: "Seconds from a node's launch until it was verified.",
		// A warm image takes some 40 s, a driver that is built on the node 5 minutes and more.
		Buckets: []float64{5, 10, 20, 40, 60, 90, 120, 180, 300, 450, 600, 900, 1800},
	}, metrics.Pool)
	fenced = metrics.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: "fenced_total",
		Help: "Nodes that were at work and get no new pods.",
	}, metrics.Pool, reason)
)
