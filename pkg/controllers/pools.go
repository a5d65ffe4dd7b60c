package controllers

import (
	"github.com/awslabs/operatorpkg/controller"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/membership"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/nodeconfig"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/status"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/node/prediction"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/pod/selector"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// Pools is what the controllers that resolve GPUPools share.
type Pools struct {
	Clock  clock.Clock
	Client client.Client
	// Uncached reads from the API server.
	Uncached client.Reader
	// CloudProvider is the decorated one.
	CloudProvider cloudprovider.CloudProvider
	Recorder      events.Recorder
	Pools         *pools.Store
	Catalog       *catalog.Catalog
	// Holds tells which rules of pools hold launches back.
	Holds *provisioning.Holds
	// Namespace is where the GPU Operator reads its ConfigMaps.
	Namespace string
}

// Controllers returns those that resolve pools, tell their status, and tell of
// labels that are not or cannot be.
func (p Pools) Controllers() []controller.Controller {
	return []controller.Controller{
		membership.NewController(p.Client, p.Recorder, p.Pools, p.Catalog, nodeconfig.NewPublisher(p.Uncached, p.Client, p.Namespace)),
		status.NewController(p.Clock, p.Client, p.CloudProvider, p.Pools, p.Catalog, p.Holds),
		prediction.NewController(p.Client, p.Recorder),
		selector.NewController(p.Clock, p.Client, p.CloudProvider, p.Recorder, p.Pools),
	}
}
