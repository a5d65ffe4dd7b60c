package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/cluster"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/doctor"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/printer"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

// Values of --fail-on.
const (
	failOnError   = "error"
	failOnWarning = "warning"
)

type doctorOptions struct {
	Streams
	clock       clock.Clock
	files       []string
	fromCluster bool
	kubeconfig  cluster.Config
	catalog     catalogFile
	failOn      string
	output      string

	format printer.Format
}

func newDoctor(s Streams, clk clock.Clock) *cobra.Command {
	o := &doctorOptions{Streams: s, clock: clk}
	cmd := &cobra.Command{
		Use:   "doctor [-f FILE|DIR...] [--from-cluster] [-o table|json|yaml]",
		Short: "Find what keeps pools from working, and the command that mends it",
		Long: `Examine a cluster for what keeps GPUPools from doing what they promise: definitions,
the controller and its feature gates, NodePools without instance types, budgets that
block, DaemonSets that would deadlock the readiness gate, agents that are not there,
settings of NVIDIA's software that contradict the pool, labels that no node can have.
Each finding has the reason and, where one command mends it, that command.

With -f it examines manifests and no cluster; --from-cluster with -f puts the manifests
over what the cluster has, so that a change can be examined before it is applied. Only
get and list are needed, and nothing is written.

Exit code: 0 no finding that counts, 1 there are findings, 2 the input is wrong.`,
		Example: `  kubectl gpupool doctor
  kubectl gpupool doctor -f examples/doctor/broken.yaml
  kubectl gpupool doctor --from-cluster -f pool.yaml --fail-on warning`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(contextOf(cmd))
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "file or directory to examine, - for standard input; can be given more than once")
	f.BoolVar(&o.fromCluster, "from-cluster", false, "examine the cluster of the kubeconfig (default: where no -f is given)")
	addCluster(cmd, &o.kubeconfig)
	o.catalog.add(cmd)
	f.StringVar(&o.failOn, "fail-on", failOnError, "error or warning: the least severity that makes the exit code 1")
	f.StringVarP(&o.output, "output", "o", string(printer.Table), "table, json or yaml")
	return cmd
}

// complete checks the flags.
func (o *doctorOptions) complete() (err error) {
	if o.format, err = printer.ParseFormat(o.output); err != nil {
		return err
	}
	if o.failOn != failOnError && o.failOn != failOnWarning {
		return fmt.Errorf("--fail-on: %q is no severity; use %s or %s", o.failOn, failOnError, failOnWarning)
	}
	o.fromCluster = o.fromCluster || len(o.files) == 0
	if !o.fromCluster && o.kubeconfig != (cluster.Config{}) {
		return fmt.Errorf("--kubeconfig and --context are for a cluster; add --from-cluster, or leave them out")
	}
	return nil
}

// run reads, examines and prints.
func (o *doctorOptions) run(ctx context.Context) error {
	facts, err := o.read(ctx)
	if err != nil {
		return err
	}
	cloud := catalogprovider.DefaultOptions()
	if cloud.Catalog, err = o.catalog.read(); err != nil {
		return err
	}
	report, err := doctor.Examine(ctx, facts, doctor.Options{Cloud: cloud, Now: o.clock.Now()})
	if err != nil {
		return err
	}
	if o.format == printer.Table {
		err = printer.Doctor(o.Out, report, o.style())
	} else {
		err = printer.Encode(o.Out, o.format, report)
	}
	if err != nil {
		return err
	}
	if report.Errors > 0 || o.failOn == failOnWarning && report.Warnings > 0 {
		return errUnmet
	}
	return nil
}

// read lets files take the place of what the cluster has by the same name.
func (o *doctorOptions) read(ctx context.Context) (*doctor.Facts, error) {
	facts := &doctor.Facts{}
	if o.fromCluster {
		reader, err := o.kubeconfig.Reader()
		if err != nil {
			return nil, err
		}
		if facts, err = cluster.ReadFacts(ctx, reader); err != nil {
			return nil, err
		}
	}
	documents, err := manifest.Documents(o.files, o.In)
	if err != nil {
		return nil, err
	}
	facts.Override(doctor.FromDocuments(documents))
	return facts, nil
}
