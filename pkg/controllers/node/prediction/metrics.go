package prediction

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/metrics"
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
var MismatchesTotal = metrics.NewCounter(prometheus.CounterOpts{Subsystem: "label", Name: "mismatches_total",
	Help: "Number of labels of GPU feature discovery that differ from the predicted value, each once per node and value.",
},
	opmetrics.Label{Name: labelKey, Help: "The label, such as nvidia.com/gpu.product."},
	opmetrics.Label{Name: predictedKey, Help: "The value that was predicted when the node was launched."},
	opmetrics.Label{Name: actualKey, Help: "The value on the node."},
	opmetrics.Label{Name: instanceTypeKey, Help: "The instance type of the node."},
)
