package cli

import (
	"github.com/spf13/cobra"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/cluster"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/printer"
)

// addCluster adds the flags that say which cluster.
func addCluster(cmd *cobra.Command, c *cluster.Config) {
	f := cmd.Flags()
	f.StringVar(&c.Path, "kubeconfig", "", "kubeconfig of the cluster (default: that of kubectl)")
	f.StringVar(&c.Context, "context", "", "context of the kubeconfig (default: the current one)")
}

// style is how tables look on the output.
func (s Streams) style() printer.Style {
	if s.colors() {
		return printer.Colors()
	}
	return printer.Style{}
}
