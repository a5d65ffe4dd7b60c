package status

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

const (
	poolLabel  = "gpupool"
	stateLabel = "state"
)

// States of GPUs, with the meaning that they have in a pool's status. Ready,
// provisioning and unhealthy add up to all; warm GPUs are ready ones.
const (
	stateReady        = "ready"
	stateProvisioning = "provisioning"
	stateWarm         = "warm"
	stateUnhealthy    = "unhealthy"
)

var (
	pool = opmetrics.Label{Name: poolLabel, Help: "The GPUPool."}
	// gpusGauge is status.gpus as a metric.
	gpusGauge = opmetrics.NewPrometheusGauge(crmetrics.Registry, prometheus.GaugeOpts{
		Namespace: "karpenter_gpu", Subsystem: "pool", Name: "gpus",
		Help: "Physical GPUs of a pool by state: ready, provisioning, unhealthy, and warm, which are among the ready ones.",
	}, []opmetrics.Label{pool, {Name: stateLabel, Help: "ready, provisioning, warm or unhealthy."}}, opmetrics.Alpha)
	// nodesGauge is status.nodes as a metric.
	nodesGauge = opmetrics.NewPrometheusGauge(crmetrics.Registry, prometheus.GaugeOpts{
		Namespace: "karpenter_gpu", Subsystem: "pool", Name: "nodes",
		Help: "NodeClaims of a pool.",
	}, []opmetrics.Label{pool}, opmetrics.Alpha)
	// priceGauge is status.pricePerHour as a metric.
	priceGauge = opmetrics.NewPrometheusGauge(crmetrics.Registry, prometheus.GaugeOpts{
		Namespace: "karpenter_gpu", Subsystem: "pool", Name: "price_dollars_per_hour",
		Help: "What the nodes of a pool cost per hour at the prices that Karpenter knows.",
	}, []opmetrics.Label{pool}, opmetrics.Alpha)
)

// measure publishes the counts of a status.
func measure(p *v1alpha1.GPUPool, price v1alpha1.Price) {
	for state, n := range map[string]int32{
		stateReady: p.Status.GPUs.Ready, stateProvisioning: p.Status.GPUs.Provisioning,
		stateWarm: p.Status.GPUs.Warm, stateUnhealthy: p.Status.GPUs.Unhealthy,
	} {
		gpusGauge.Set(float64(n), map[string]string{poolLabel: p.Name, stateLabel: state})
	}
	nodesGauge.Set(float64(p.Status.Nodes), map[string]string{poolLabel: p.Name})
	priceGauge.Set(price.Float(), map[string]string{poolLabel: p.Name})
}

// forget removes the metrics of a pool that is gone.
func forget(name string) {
	gpusGauge.DeletePartialMatch(map[string]string{poolLabel: name})
	nodesGauge.Delete(map[string]string{poolLabel: name})
	priceGauge.Delete(map[string]string{poolLabel: name})
}
