package cluster

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
)

// Config says which cluster. The zero value is that of kubectl.
type Config struct {
	// Path of a kubeconfig; empty is KUBECONFIG or the file in the home directory.
	Path string
	// Context in it; empty is the current one.
	Context string
}

// Reader connects.
func (c Config) Reader() (client.Reader, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Path
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig, %w", err)
	}
	config.QPS, config.Burst, config.UserAgent = 50, 100, "kubectl-gpupool"
	reader, err := client.New(config, client.Options{Scheme: manifest.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster, %w", err)
	}
	return reader, nil
}
