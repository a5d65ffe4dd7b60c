package provisioning

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	metricsNamespace = "karpenter_gpu"
	metricsSubsystem = "provisioning"
	poolLabel        = "gpupool"
	outcomeLabel     = "outcome"
	reasonLabel      = "reason"
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
	// Pool is the GPUPool that a figure is of.
	Pool = opmetrics.Label{Name: poolLabel, Help: "The GPUPool."}
	// Outcome is cheaper, stock, timeout or error.
	Outcome = opmetrics.Label{Name: outcomeLabel, Help: "What became of a repacking: cheaper (launched), stock (nothing cheaper found), timeout, error."}
	// Reason is a RefusalKind.
	Reason = opmetrics.Label{Name: reasonLabel, Help: "The rule that held the launch back: OversizeRefused, GPULimitReached, PriceLimitReached."}
)

var (
	decisions = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "decisions_total",
		Help: "Groups of new NodeClaims that were packed again, by outcome.",
	}, []opmetrics.Label{Pool, Outcome}, opmetrics.Alpha)
	savedPrice = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "saved_dollars_per_hour_total",
		Help: "Price per hour by which the launched NodeClaims were cheaper than stock's, summed over decisions.",
	}, []opmetrics.Label{Pool}, opmetrics.Alpha)
	planSeconds = opmetrics.NewPrometheusHistogram(crmetrics.Registry, prometheus.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "repack_duration_seconds",
		Help:    "Seconds that one round spent beyond stock's scheduling.",
		Buckets: []float64{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30},
	}, []opmetrics.Label{}, opmetrics.Alpha)
	refusedPods = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "refused_pods_total",
		Help: "Pods for which a launch was held back by a rule of their pool, each round anew.",
	}, []opmetrics.Label{Pool, Reason}, opmetrics.Alpha)
	failedOfferings = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "failed_offerings_total",
		Help: "Offerings set aside after a failed launch, by reason: Capacity or Quota.",
	}, []opmetrics.Label{{Name: reasonLabel, Help: "Capacity (the cloud has none to sell) or Quota (the account may not buy more)."}}, opmetrics.Alpha)
)
