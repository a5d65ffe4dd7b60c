// Package metrics registers the metrics of karpenter-gpu beside Karpenter's own.
//
// They are declared where they are measured, in a metrics.go of the package that does, by
// NewCounter, NewGauge and NewHistogram. That gives all of them one namespace, keeps what
// each was declared with, so that docs/reference/metrics.md is held to the code, and lets a
// GPUPool that is deleted take all its series with it: ForgetPool.
//
// Cardinality is bounded by what labels may hold: names of GPUPools and of their warm entries,
// and fixed sets of states, reasons and outcomes. No label holds the name of a node or a pod.
package metrics

import (
	"cmp"
	"slices"

	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	// Namespace is the prefix of every name.
	Namespace = "karpenter_gpu"
	// PoolLabel is the label that holds the name of a GPUPool.
	PoolLabel = "gpupool"
	// ReasonLabel is the label that says why something happened.
	ReasonLabel = "reason"
)

// Pool is the GPUPool that a figure is of.
var Pool = opmetrics.Label{Name: PoolLabel, Help: "The GPUPool."}

// Kind is the type of a metric, as Prometheus calls it.
type Kind string

// Kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric is what a metric was declared with.
type Metric struct {
	// Name is the full name, without the suffixes that a histogram adds.
	Name string
	Kind Kind
	// Help is the sentence that is exposed with it.
	Help string
	// Labels are its dimensions in the order of their declaration.
	Labels []opmetrics.Label
	// Buckets are the upper bounds of a histogram.
	Buckets []float64
}

// forgettable is what all metrics of operatorpkg have in common.
type forgettable interface {
	DeletePartialMatch(labels map[string]string)
}

// declared and perPool are filled while packages are initialized, which is one goroutine, and
// only read after that.
var (
	declared []Metric
	perPool  []forgettable
)

// NewCounter declares and registers a counter. An empty namespace is Namespace.
func NewCounter(opts prometheus.CounterOpts, labels ...opmetrics.Label) opmetrics.CounterMetric {
	opts.Namespace = cmp.Or(opts.Namespace, Namespace)
	m := opmetrics.NewPrometheusCounter(crmetrics.Registry, opts, labels, opmetrics.Alpha)
	declare(m, Metric{Name: prometheus.BuildFQName(opts.Namespace, opts.Subsystem, opts.Name), Kind: Counter, Help: opts.Help, Labels: labels})
	return m
}

// NewGauge declares and registers a gauge. An empty namespace is Namespace.
func NewGauge(opts prometheus.GaugeOpts, labels ...opmetrics.Label) opmetrics.GaugeMetric {
	opts.Namespace = cmp.Or(opts.Namespace, Namespace)
	m := opmetrics.NewPrometheusGauge(crmetrics.Registry, opts, labels, opmetrics.Alpha)
	declare(m, Metric{Name: prometheus.BuildFQName(opts.Namespace, opts.Subsystem, opts.Name), Kind: Gauge, Help: opts.Help, Labels: labels})
	return m
}

// NewHistogram declares and registers a histogram; opts name its buckets. An empty namespace
// is Namespace.
func NewHistogram(opts prometheus.HistogramOpts, labels ...opmetrics.Label) opmetrics.ObservationMetric {
	opts.Namespace = cmp.Or(opts.Namespace, Namespace)
	m := opmetrics.NewPrometheusHistogram(crmetrics.Registry, opts, labels, opmetrics.Alpha)
	declare(m, Metric{
		Name: prometheus.BuildFQName(opts.Namespace, opts.Subsystem, opts.Name), Kind: Histogram, Help: opts.Help,
		Labels: labels, Buckets: opts.Buckets,
	})
	return m
}

func declare(m forgettable, what Metric) {
	declared = append(declared, what)
	if slices.ContainsFunc(what.Labels, func(l opmetrics.Label) bool { return l.Name == PoolLabel }) {
		perPool = append(perPool, m)
	}
}

// Declared returns the metrics of the packages that are linked into the process, by name. The
// slice is the caller's, what it refers to is not.
func Declared() []Metric {
	all := slices.Clone(declared)
	slices.SortFunc(all, func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// ForgetPool removes the series of a GPUPool that is gone. A pool that is made again by the
// same name counts from zero.
func ForgetPool(name string) {
	for _, m := range perPool {
		m.DeletePartialMatch(map[string]string{PoolLabel: name})
	}
}
