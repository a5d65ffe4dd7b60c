package adoption

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
)

const nodePoolLabel = "nodepool"

// AdoptedTotal counts instances that an earlier controller launched and a
// NodeClaim of this one took over. Labeled by NodePool.
var AdoptedTotal = metrics.NewCounter(prometheus.CounterOpts{Subsystem: "instances", Name: "adopted_total",
	Help: "Number of instances that an earlier controller launched without writing them down and that a NodeClaim took over. Labeled by nodepool.",
}, opmetrics.Label{Name: nodePoolLabel, Help: "The NodePool that the instance was launched for."})
