package trial

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
)

const (
	subsystem   = "trial"
	poolLabel   = metrics.PoolLabel
	reasonLabel = metrics.ReasonLabel
)

// reasonDimension is bounded by the number of reasons.
var reasonDimension = opmetrics.Label{Name: reasonLabel, Help: "Why: a reason of the condition GPUReady or of a verdict, some fifty in all."}

var (
	failed = metrics.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: "failed_total",
		Help: "Nodes that were replaced because they were not verified by their deadline.",
	}, metrics.Pool, reasonDimension)
	unwanted = metrics.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: "unwanted_total",
		Help: "Nodes in trial that were removed because no pod wanted them any more.",
	}, metrics.Pool)
)
