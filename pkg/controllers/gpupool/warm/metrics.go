package warm

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
)

// entryLabel is the name of an entry of spec.warm, of which a pool has sixteen at most.
const entryLabel = "entry"

var (
	entry = opmetrics.Label{Name: entryLabel, Help: "The entry of spec.warm."}
	// wantedGauge is status.warm[].wanted as a metric.
	wantedGauge = metrics.NewGauge(prometheus.GaugeOpts{
		Subsystem: "pool", Name: "warm_wanted",
		Help: "What a warm entry holds at present by its schedule and price, in GPUs, partitions or pods, whichever the entry counts.",
	}, metrics.Pool, entry)
	// readyGauge is status.warm[].ready as a metric.
	readyGauge = metrics.NewGauge(prometheus.GaugeOpts{
		Subsystem: "pool", Name: "warm_ready",
		Help: "What of a warm entry is verified, holds its images and waits for pods, in the unit of the entry.",
	}, metrics.Pool, entry)
	// provisioningGauge is status.warm[].provisioning as a metric.
	provisioningGauge = metrics.NewGauge(prometheus.GaugeOpts{
		Subsystem: "pool", Name: "warm_provisioning",
		Help: "What of a warm entry is on its way, in the unit of the entry.",
	}, metrics.Pool, entry)
)

// measure publishes the state of an entry.
func measure(pool string, w v1alpha1.WarmStatus) {
	labels := map[string]string{metrics.PoolLabel: pool, entryLabel: w.Name}
	wantedGauge.Set(float64(w.Wanted), labels)
	readyGauge.Set(float64(w.Ready), labels)
	provisioningGauge.Set(float64(w.Provisioning), labels)
}

// forget removes the metrics of an entry that is gone. Those of a pool go with the pool.
func forget(pool, name string) {
	labels := map[string]string{metrics.PoolLabel: pool, entryLabel: name}
	wantedGauge.Delete(labels)
	readyGauge.Delete(labels)
	provisioningGauge.Delete(labels)
}
