package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/cluster"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/planner"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/printer"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

// compareStock is the one value of --compare.
const compareStock = "stock"

type planOptions struct {
	Streams
	clock       clock.Clock
	files       []string
	fromCluster bool
	kubeconfig  cluster.Config
	compare     string
	output      string
	catalog     catalogFile
	cloud       catalogprovider.Options

	format printer.Format
}

func newPlan(s Streams, clk clock.Clock) *cobra.Command {
	o := &planOptions{Streams: s, clock: clk, cloud: catalogprovider.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "plan -f FILE|DIR... [--compare stock] [-o table|json|yaml]",
		Short: "Show the nodes that would be launched for workloads, and what they cost",
		Long: `Show the nodes that karpenter-gpu would launch for workloads, which pods go where,
what is left unused and what it costs, without a cluster and without a cloud.

Reads NodePools, GPUPools, EC2NodeClasses and workloads (Pods, Deployments,
StatefulSets, ReplicaSets, Jobs, CronJobs; DaemonSets as overhead) and decides with
the same code as the controller. For each pod that would get no node it says why,
and the nearest change that would help. --from-cluster reads the same from a
cluster, with its nodes and the pods that wait there; files come on top.

Exit code: 0 every pod has a node, 1 some pod has none, 2 the input is wrong.`,
		Example: `  kubectl gpupool plan -f examples/plan/inference.yaml --compare stock
  kubectl gpupool plan -f pools/ -f workloads/ -o json
  kubectl gpupool plan --from-cluster
  helm template chart | kubectl gpupool plan --from-cluster -f -`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(contextOf(cmd))
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "file or directory to read, - for standard input; can be given more than once")
	f.BoolVar(&o.fromCluster, "from-cluster", false, "read from the cluster of the kubeconfig, pods that wait included")
	f.StringVar(&o.kubeconfig.Path, "kubeconfig", "", "kubeconfig for --from-cluster (default: that of kubectl)")
	f.StringVar(&o.kubeconfig.Context, "context", "", "context of the kubeconfig for --from-cluster (default: the current one)")
	f.StringVar(&o.compare, "compare", "", "stock shows beside the plan what Karpenter alone would launch")
	f.StringVarP(&o.output, "output", "o", string(printer.Table), "table, json or yaml")
	o.catalog.add(cmd)
	f.StringVar(&o.cloud.Region, "region", o.cloud.Region, "value of topology.kubernetes.io/region; prices stay those of us-east-1")
	f.StringSliceVar(&o.cloud.Zones, "zones", o.cloud.Zones, "zones in which every instance type is taken to be on sale, where the EC2NodeClass does not know its subnets")
	f.Float64Var(&o.cloud.SpotPercent, "spot-price-percent", o.cloud.SpotPercent, "assumed price of spot capacity in percent of on-demand; real spot prices change by the minute")
	f.Float64Var(&o.cloud.VMMemoryOverheadPercent, "vm-memory-overhead-percent", o.cloud.VMMemoryOverheadPercent, "the controller's setting of that name, a fraction of the advertised memory")
	f.IntVar(&o.cloud.ReservedENIs, "reserved-enis", o.cloud.ReservedENIs, "the controller's setting of that name")
	return cmd
}

// complete checks the flags.
func (o *planOptions) complete() (err error) {
	if o.format, err = printer.ParseFormat(o.output); err != nil {
		return err
	}
	if o.compare != "" && o.compare != compareStock {
		return fmt.Errorf("--compare: %q cannot be compared with; use %s", o.compare, compareStock)
	}
	if len(o.files) == 0 && !o.fromCluster {
		return fmt.Errorf("nothing to read; give files or directories with -f, or --from-cluster")
	}
	if !o.fromCluster && o.kubeconfig != (cluster.Config{}) {
		return fmt.Errorf("--kubeconfig and --context are for --from-cluster; add it, or leave them out")
	}
	if o.cloud.Catalog, err = o.catalog.read(); err != nil {
		return err
	}
	return o.cloud.Validate()
}

// run reads, plans and prints.
func (o *planOptions) run(ctx context.Context) error {
	input, err := o.read(ctx)
	if err != nil {
		return err
	}
	plan, err := planner.Run(ctx, input, planner.Options{Cloud: o.cloud, CompareStock: o.compare == compareStock, Clock: o.clock})
	if err != nil {
		return err
	}
	if err := o.print(plan); err != nil {
		return err
	}
	if plan.Decision.Unplaced > 0 {
		return errUnmet
	}
	return nil
}

// read lets files take the place of what the cluster has by the same name.
func (o *planOptions) read(ctx context.Context) (*manifest.Set, error) {
	input := &manifest.Set{}
	if o.fromCluster {
		reader, err := o.kubeconfig.Reader()
		if err != nil {
			return nil, err
		}
		if input, err = cluster.Read(ctx, reader); err != nil {
			return nil, err
		}
	}
	files, err := manifest.Load(o.files, o.In)
	if err != nil {
		return nil, err
	}
	input.Override(files)
	return input, nil
}

func (o *planOptions) print(plan *planner.Plan) error {
	if o.format != printer.Table {
		return printer.Encode(o.Out, o.format, plan)
	}
	return printer.Plan(o.Out, plan, o.style())
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s: no such argument; give files with -f", strings.Join(args, " "))
	}
	return nil
}
