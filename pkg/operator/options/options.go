// Package options holds the flags that karpenter-gpu adds to those of Karpenter
// and of its AWS provider.
//
// The flags join Karpenter's own flag set through its Injectables, so that one
// command line, one set of environment variables and one --help cover all three.
// Every flag has a default under which the process behaves as stock Karpenter.
package options

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/utils/env"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
)

func init() {
	coreoptions.Injectables = append(coreoptions.Injectables, &Options{})
}

var _ coreoptions.Injectable = (*Options)(nil)

// DefaultGPUOperatorNamespace is where the GPU Operator's chart is usually installed.
const DefaultGPUOperatorNamespace = "gpu-operator"

type contextKey struct{}

// Options are the flags of karpenter-gpu. Its zero value leaves every feature
// that works without a GPUPool off.
type Options struct {
	// PredictGPULabels turns the prediction of GPU Feature Discovery's labels on
	// for every NodePool, not only for those of a GPUPool.
	PredictGPULabels bool
	// CatalogFile names a YAML file with corrections and additions to the GPU
	// catalogue. Empty means the built-in catalogue alone.
	CatalogFile string
	// GPUOperatorNamespace is where NVIDIA's GPU Operator runs and reads the ConfigMaps
	// with MIG layouts and sharing configurations.
	GPUOperatorNamespace string
	// GPURepairToleration is how long a GPU fault must last before node repair acts, where
	// Karpenter's feature gate NodeRepair is on. Zero means the default.
	GPURepairToleration time.Duration
}

// AddFlags declares the flags, each with an environment variable of the same name.
func (o *Options) AddFlags(fs *coreoptions.FlagSet) {
	fs.BoolVarWithEnv(&o.PredictGPULabels, "predict-gpu-labels", "PREDICT_GPU_LABELS", false,
		"Predict the nvidia.com labels that GPU Feature Discovery will set for every NodePool, not only for those that belong to a GPUPool.")
	fs.StringVar(&o.CatalogFile, "gpu-catalog-file", env.WithDefaultString("GPU_CATALOG_FILE", ""),
		"A YAML file with GPU models and instance types that correct or extend the built-in catalogue, usually mounted from a ConfigMap.")
	fs.StringVar(&o.GPUOperatorNamespace, "gpu-operator-namespace", env.WithDefaultString("GPU_OPERATOR_NAMESPACE", DefaultGPUOperatorNamespace),
		"The namespace of NVIDIA's GPU Operator. The ConfigMaps with MIG layouts and sharing configurations are written there, once a GPUPool needs them.")
	fs.DurationVar(&o.GPURepairToleration, "gpu-repair-toleration", env.WithDefaultDuration("GPU_REPAIR_TOLERATION", readiness.DefaultRepairToleration),
		"How long the condition karpenter-gpu.dev/GPUReady must be False before node repair reboots or replaces the node. Has no effect without the feature gate NodeRepair.")
}

// Parse reads the command line. It returns an error that names the flag, its
// value and the way out when a value cannot work.
func (o *Options) Parse(fs *coreoptions.FlagSet, args ...string) error {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(0)
		}
		return fmt.Errorf("parsing flags, %w", err)
	}
	return o.Validate()
}

// Validate checks what can be checked before anything starts.
func (o *Options) Validate() error {
	if problems := validation.IsDNS1123Label(o.GPUOperatorNamespace); len(problems) > 0 {
		return fmt.Errorf("--gpu-operator-namespace=%q is no name of a namespace, %s", o.GPUOperatorNamespace, strings.Join(problems, ", "))
	}
	if o.GPURepairToleration < 0 {
		return fmt.Errorf("--gpu-repair-toleration=%s is negative, use 0s or more", o.GPURepairToleration)
	}
	if o.CatalogFile == "" {
		return nil
	}
	info, err := os.Stat(o.CatalogFile)
	if err != nil {
		return fmt.Errorf("--gpu-catalog-file=%q cannot be read, mount the ConfigMap at that path or leave the flag out, %w", o.CatalogFile, err)
	}
	if info.IsDir() {
		return fmt.Errorf("--gpu-catalog-file=%q is a directory, name the YAML file in it", o.CatalogFile)
	}
	return nil
}

// ToContext stores the options where FromContext finds them.
func (o *Options) ToContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, o)
}

// FromContext returns the options of the process, or the defaults where none
// were stored (as in most unit tests). It never returns nil.
func FromContext(ctx context.Context) *Options {
	if o, ok := ctx.Value(contextKey{}).(*Options); ok {
		return o
	}
	return &Options{}
}
