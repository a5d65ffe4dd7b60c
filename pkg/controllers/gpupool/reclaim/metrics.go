package reclaim

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
)

const subsystem = "reclaim"

var (
	removed = metrics.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: "nodes_total",
		Help: "Empty nodes that were removed.",
	}, metrics.Pool)
	spared = metrics.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: "spared_total",
		Help: "Empty nodes that had been tainted to be removed and stayed, because a pod was bound meanwhile or another rule kept them.",
	}, metrics.Pool)
	emptySeconds = metrics.NewHistogram(prometheus.HistogramOpts{Subsystem: subsystem, Name: "empty_seconds",
		Help: "Seconds for which nodes that were removed had been empty, until their NodeClaim was deleted.",
		// emptyAfter is from 0s to 24h; the second look adds two to three seconds.
		Buckets: []float64{2, 3, 5, 8, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400},
	}, metrics.Pool)
)

func poolLabels(pool string) map[string]string { return map[string]string{metrics.PoolLabel: pool} }
