package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/cluster"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/printer"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// addCluster adds the flags that say which cluster.
func addCluster(cmd *cobra.Command, c *cluster.Config) {
	f := cmd.Flags()
	f.StringVar(&c.Path, "kubeconfig", "", "kubeconfig of the cluster (default: that of kubectl)")
	f.StringVar(&c.Context, "context", "", "context of the kubeconfig (default: the current one)")
}

// catalogFile is the flag of the controller of that name, so that an answer rests on the
// catalogue that the controller has.
type catalogFile string

func (c *catalogFile) add(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(c), "gpu-catalog-file", "", "corrections of the GPU catalogue, as the controller has them (gpu.catalog of the chart)")
}

// read returns the built-in catalogue where no file is named.
func (c catalogFile) read() (*catalog.Catalog, error) {
	if c == "" {
		return catalog.Default(), nil
	}
	data, err := os.ReadFile(string(c))
	if err != nil {
		return nil, fmt.Errorf("--gpu-catalog-file: reading the file, %w", err)
	}
	corrected, err := catalog.Corrected(data)
	if err != nil {
		return nil, fmt.Errorf("--gpu-catalog-file=%s: %w", c, err)
	}
	return corrected, nil
}

// style is how tables look on the output.
func (s Streams) style() printer.Style {
	if s.colors() {
		return printer.Colors()
	}
	return printer.Style{}
}
