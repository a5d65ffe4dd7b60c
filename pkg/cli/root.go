package cli

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// New returns the root command.
func New(s Streams, clk clock.Clock) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-gpupool",
		Short: "Plan and look after pools of GPU nodes",
		Long: `Plan and look after pools of GPU nodes that karpenter-gpu launches.

With the binary kubectl-gpupool on the PATH, kubectl runs it as kubectl gpupool.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gpupool"},
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			// The scheduler logs what the answer says better.
			klog.SetLogger(logr.Discard())
			log.SetLogger(logr.Discard())
			cmd.SetContext(log.IntoContext(contextOf(cmd), logr.Discard()))
		},
	}
	cmd.SetIn(s.In)
	cmd.SetOut(s.Out)
	cmd.SetErr(s.Err)
	cmd.AddCommand(newPlan(s, clk), newStatus(s, clk), newDoctor(s, clk), newConvert(s))
	return cmd
}

func contextOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
