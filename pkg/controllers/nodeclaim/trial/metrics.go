package trial

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	metricsNamespace = "karpenter_gpu"
	metricsSubsystem = "trial"
	poolLabel        = "gpupool"
	reasonLabel      = "reason"
)

// Labels of the metrics.
var (
	poolDimension   = opmetrics.Label{Name: poolLabel, Help: "The GPUPool."}
	reasonDimension = opmetrics.Label{Name: reasonLabel, Help: "Why: a reason of the condition GPUReady or of a verdict, some fifty in all."}
)

var (
	failed = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "failed_total",
		Help: "Nodes that were replaced because they were not verified by their deadline.",
	}, []opmetrics.Label{poolDimension, reasonDimension}, opmetrics.Alpha)
	unwanted = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "unwanted_total",
		Help: "Nodes in trial that were removed because no pod wanted them any more.",
	}, []opmetrics.Label{poolDimension}, opmetrics.Alpha)
)
