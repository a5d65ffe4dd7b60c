package controllers

import (
	"github.com/awslabs/operatorpkg/controller"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/reclaim"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// Reclaim is what the removal of empty nodes needs.
type Reclaim struct {
	Clock  clock.Clock
	Client client.Client
	// Uncached reads from the API server.
	Uncached client.Reader
	// CloudProvider and Cluster are those that Karpenter's controllers were given.
	CloudProvider cloudprovider.CloudProvider
	Cluster       *state.Cluster
	Recorder      events.Recorder
	Pools         *pools.Store
	// Buffers is true where the feature gate CapacityBuffer is on.
	Buffers bool
}

// AddTo returns Karpenter's controllers with the one that reclaims empty nodes, and with
// Karpenter's own hands off these nodes. The provisioner among them is ours already.
func (r Reclaim) AddTo(core []controller.Controller) ([]controller.Controller, error) {
	queue, err := reclaim.Queue(core)
	if err != nil {
		return nil, err
	}
	d := reclaim.Dependencies{
		Clock: r.Clock, Client: r.Client, Reader: r.Uncached, Recorder: r.Recorder, Pools: r.Pools, Cluster: r.Cluster, Queue: queue,
	}
	for _, c := range core {
		if p, ok := c.(*provisioning.Provisioner); ok && r.Buffers {
			d.Buffers = p
		}
	}
	held, err := reclaim.Hold(core, r.Clock, r.Client, r.CloudProvider, r.Pools)
	if err != nil {
		return nil, err
	}
	return append(held, reclaim.NewController(d)), nil
}
