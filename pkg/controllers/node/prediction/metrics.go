package prediction

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/karpenter/pkg/metrics"
)

const (
	labelKey        = "label"
	predictedKey    = "predicted"
	actualKey       = "actual"
	instanceTypeKey = "instance_type"
)

// MismatchesTotal counts the labels of nodes that were predicted otherwise, each once
// per node and value. Its cardinality is that of instance types that the catalogue
// is wrong about.
var MismatchesTotal = opmetrics.NewPrometheusCounter(
	crmetrics.Registry,
	prometheus.CounterOpts{
		Namespace: metrics.Namespace,
		Subsystem: "gpu",
		Name:      "label_mismatches_total",
		Help:      "Number of labels of GPU feature discovery that differ from the predicted value, each once per node and value.",
	},
	[]opmetrics.Label{
		{Name: labelKey, Help: "The label, such as nvidia.com/gpu.product."},
		{Name: predictedKey, Help: "The value that was predicted when the node was launched."},
		{Name: actualKey, Help: "The value on the node."},
		{Name: instanceTypeKey, Help: "The instance type of the node."},
	},
	opmetrics.Alpha,
)
