package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/samber/lo"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/cluster"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/overview"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/printer"
)

type statusOptions struct {
	Streams
	clock      clock.Clock
	kubeconfig cluster.Config
	catalog    catalogFile
	output     string
	pools      []string

	format printer.Format
}

func newStatus(s Streams, clk clock.Clock) *cobra.Command {
	o := &statusOptions{Streams: s, clock: clk}
	cmd := &cobra.Command{
		Use:   "status [GPUPOOL...] [-o table|json|yaml]",
		Short: "Show the pools of a cluster: nodes, GPUs, partitions, price, problems",
		Long: `Show how the GPUPools of a cluster stand: GPUs by state, nodes, what is left of each
resource, warm capacity, price per hour, and what is wrong.

With names it shows these pools only. Only get and list are needed, and nothing is
written.

Exit code: 0 the answer is printed, 2 the cluster could not be read.`,
		Example: `  kubectl gpupool status
  kubectl gpupool status inference -o json`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.pools = args
			if o.format, err = printer.ParseFormat(o.output); err != nil {
				return err
			}
			return o.run(contextOf(cmd))
		},
	}
	addCluster(cmd, &o.kubeconfig)
	o.catalog.add(cmd)
	cmd.Flags().StringVarP(&o.output, "output", "o", string(printer.Table), "table, json or yaml")
	return cmd
}

func (o *statusOptions) run(ctx context.Context) error {
	reader, err := o.kubeconfig.Reader()
	if err != nil {
		return err
	}
	in, err := cluster.ReadOverview(ctx, reader)
	if err != nil {
		return err
	}
	if in.Catalog, err = o.catalog.read(); err != nil {
		return err
	}
	in.Now = o.clock.Now()
	have := strings.Join(lo.Map(in.GPUPools, func(p *v1alpha1.GPUPool, _ int) string { return p.Name }), ", ")
	if unknown := in.Only(o.pools...); len(unknown) > 0 {
		return fmt.Errorf("GPUPool %s: no such pool; there are %s", strings.Join(unknown, ", "), lo.CoalesceOrEmpty(have, "none"))
	}
	answer := overview.New(in)
	if o.format != printer.Table {
		return printer.Encode(o.Out, o.format, answer)
	}
	return printer.Status(o.Out, answer, o.style())
}
