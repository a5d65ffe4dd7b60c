package provisioning

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
)

const (
	metricsSubsystem = "provisioning"
	poolLabel        = metrics.PoolLabel
	outcomeLabel     = "outcome"
	reasonLabel      = metrics.ReasonLabel
)

// Outcomes of repacking one group of NodeClaims.
const (
	// OutcomeCheaper: the repacked NodeClaims were launched.
	OutcomeCheaper = "cheaper"
	// OutcomeStock: nothing cheaper was found, so that stock's decision stood.
	OutcomeStock = "stock"
	// OutcomeTimeout: the time for it ran out, so that stock's decision stood.
	OutcomeTimeout = "timeout"
	// OutcomeError: it failed, so that stock's decision stood.
	OutcomeError = "error"
)

var (
	// Outcome is cheaper, stock, timeout or error.
	Outcome = opmetrics.Label{Name: outcomeLabel, Help: "What became of a repacking: cheaper, stock, timeout or error.", Values: []opmetrics.Value{
		{Name: OutcomeCheaper, Help: "The repacked NodeClaims were launched."},
		{Name: OutcomeStock, Help: "Nothing cheaper was found, stock's decision stood."},
		{Name: OutcomeTimeout, Help: "The time for it ran out, stock's decision stood."},
		{Name: OutcomeError, Help: "It failed, stock's decision stood."},
	}}
	// Reason is a RefusalKind.
	Reason = opmetrics.Label{Name: reasonLabel, Help: "The rule that held the launch back: OversizeRefused, GPULimitReached, PriceLimitReached.", Values: []opmetrics.Value{
		{Name: string(RefusedOversize), Help: "spec.selection.maxUnusedGPUs."},
		{Name: string(RefusedGPULimit), Help: "spec.limits.gpus."},
		{Name: string(RefusedPriceLimit), Help: "spec.limits.pricePerHour."},
	}}
)

var (
	decisions = metrics.NewCounter(prometheus.CounterOpts{Subsystem: metricsSubsystem, Name: "decisions_total",
		Help: "Groups of new NodeClaims that were packed again, by outcome.",
	}, metrics.Pool, Outcome)
	savedPrice = metrics.NewCounter(prometheus.CounterOpts{Subsystem: metricsSubsystem, Name: "saved_dollars_per_hour_total",
		Help: "Price per hour by which the launched NodeClaims were cheaper than stock's, summed over decisions.",
	}, metrics.Pool)
	planSeconds = metrics.NewHistogram(prometheus.HistogramOpts{Subsystem: metricsSubsystem, Name: "repack_duration_seconds",
		Help:    "Seconds that one round spent beyond stock's scheduling.",
		Buckets: []float64{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30},
	})
	refusedPods = metrics.NewCounter(prometheus.CounterOpts{Subsystem: metricsSubsystem, Name: "refused_pods_total",
		Help: "Pods for which a launch was held back by a rule of their pool, each round anew.",
	}, metrics.Pool, Reason)
	failedOfferings = metrics.NewCounter(prometheus.CounterOpts{Subsystem: metricsSubsystem, Name: "failed_offerings_total",
		Help: "Offerings set aside after a failed launch, by reason: Capacity or Quota.",
	}, opmetrics.Label{Name: reasonLabel, Help: "Capacity (the cloud has none to sell) or Quota (the account may not buy more)."})
)
