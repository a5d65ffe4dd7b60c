package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/converter"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/printer"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

type convertOptions struct {
	Streams
	files  []string
	output string

	format printer.Format
}

func newConvert(s Streams) *cobra.Command {
	o := &convertOptions{Streams: s}
	cmd := &cobra.Command{
		Use:   "convert -f FILE|DIR... [-o yaml|json]",
		Short: "Convert older Karpenter manifests and TensorFusion's into NodePools and GPUPools",
		Long: `Convert manifests into karpenter.sh/v1 NodePools and karpenter-gpu.dev GPUPools:

  karpenter.sh/v1beta1 NodePool             a NodePool
  karpenter.k8s.aws/v1beta1 EC2NodeClass    an EC2NodeClass, with its NodePools' kubelet
  tensor-fusion.ai/v1 TensorFusionCluster   a GPUPool, and a NodePool, for each pool
  tensor-fusion.ai/v1 GPUPool               a GPUPool, and a NodePool

Objects of the present versions pass through. What cannot be carried over, or only with
another meaning, is said on standard error and in comments of the result. NodePools and
GPUPools are held to the rules that the API server holds them to. Nothing is read but
the files.

Exit code: 0 all was carried over, 1 something was not, 2 the input or the result is wrong.`,
		Example: `  kubectl gpupool convert -f examples/convert/v1beta1.yaml
  kubectl get tensorfusionclusters -o yaml | kubectl gpupool convert -f - > pools.yaml`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(contextOf(cmd))
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "file or directory to convert, - for standard input; can be given more than once")
	f.StringVarP(&o.output, "output", "o", string(printer.YAML), "yaml or json")
	return cmd
}

// complete checks the flags.
func (o *convertOptions) complete() error {
	o.format = printer.Format(o.output)
	if o.format != printer.YAML && o.format != printer.JSON {
		return fmt.Errorf("--output: %q is no format; use yaml or json", o.output)
	}
	if len(o.files) == 0 {
		return fmt.Errorf("nothing to read; give files or directories with -f")
	}
	return nil
}

// run reads, converts and prints.
func (o *convertOptions) run(ctx context.Context) error {
	documents, err := manifest.Documents(o.files, o.In)
	if err != nil {
		return err
	}
	result, err := converter.Convert(ctx, documents, catalogprovider.DefaultOptions())
	if err != nil {
		return err
	}
	if err := printer.Converted(o.Out, o.format, result); err != nil {
		return err
	}
	for _, l := range result.Losses {
		fmt.Fprintln(o.Err, l)
	}
	if len(result.Losses) > 0 {
		return errUnmet
	}
	return nil
}
