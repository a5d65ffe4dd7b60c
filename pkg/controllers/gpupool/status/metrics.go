package status

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
)

const (
	subsystem  = "pool"
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

// state is the state of GPUs.
var state = opmetrics.Label{Name: stateLabel, Help: "ready, provisioning, warm or unhealthy.", Values: []opmetrics.Value{
	{Name: stateReady, Help: "Verified and at work or free, warm ones included."},
	{Name: stateProvisioning, Help: "Of nodes that are launched and not yet verified."},
	{Name: stateWarm, Help: "Ready and held for a warm entry."},
	{Name: stateUnhealthy, Help: "Of nodes that are fenced because of a fault."},
}}

var (
	// gpusGauge is status.gpus as a metric.
	gpusGauge = metrics.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "gpus",
		Help: "Physical GPUs of a pool by state: ready, provisioning, unhealthy, and warm, which are among the ready ones.",
	}, metrics.Pool, state)
	// gpuLimitGauge is spec.limits.gpus; there is no series without a limit.
	gpuLimitGauge = metrics.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "gpus_limit",
		Help: "Limit of the GPUs of a pool, spec.limits.gpus; absent where there is none.",
	}, metrics.Pool)
	// nodesGauge is status.nodes as a metric.
	nodesGauge = metrics.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "nodes",
		Help: "NodeClaims of a pool.",
	}, metrics.Pool)
	// priceGauge is status.pricePerHour as a metric.
	priceGauge = metrics.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "price_dollars_per_hour",
		Help: "What the nodes of a pool cost per hour at the prices that Karpenter knows.",
	}, metrics.Pool)
	// priceLimitGauge is spec.limits.pricePerHour; there is no series without a limit.
	priceLimitGauge = metrics.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "price_limit_dollars_per_hour",
		Help: "Limit of the price of a pool, spec.limits.pricePerHour; absent where there is none.",
	}, metrics.Pool)
)

// measure publishes the counts of a status, and the limits that they are held to.
func measure(p *v1alpha1.GPUPool, price v1alpha1.Price) {
	pool := map[string]string{metrics.PoolLabel: p.Name}
	for name, n := range map[string]int32{
		stateReady: p.Status.GPUs.Ready, stateProvisioning: p.Status.GPUs.Provisioning,
		stateWarm: p.Status.GPUs.Warm, stateUnhealthy: p.Status.GPUs.Unhealthy,
	} {
		gpusGauge.Set(float64(n), map[string]string{metrics.PoolLabel: p.Name, stateLabel: name})
	}
	nodesGauge.Set(float64(p.Status.Nodes), pool)
	priceGauge.Set(price.Float(), pool)
	if limit := p.Spec.Limits.GPUs; limit != nil {
		gpuLimitGauge.Set(float64(*limit), pool)
	} else {
		gpuLimitGauge.Delete(pool)
	}
	if limit, bounded := p.Spec.Limits.Price(); bounded {
		priceLimitGauge.Set(limit.Float(), pool)
	} else {
		priceLimitGauge.Delete(pool)
	}
}
