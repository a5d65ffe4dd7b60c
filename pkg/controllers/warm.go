package controllers

import (
	"github.com/awslabs/operatorpkg/controller"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/warm"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// Warm is what capacity that is held ready needs.
type Warm struct {
	Clock  clock.Clock
	Client client.Client
	// CloudProvider is the outermost one.
	CloudProvider cloudprovider.CloudProvider
	Recorder      events.Recorder
	Pools         *pools.Store
	// Spaces is the record that the provisioner keeps. It has one reader.
	Spaces *provisioning.Spaces
	// Namespace is the controller's own.
	Namespace string
}

// Controllers returns the one that keeps warm entries.
func (w Warm) Controllers() []controller.Controller {
	return []controller.Controller{warm.NewController(warm.Options{
		Clock: w.Clock, Client: w.Client, CloudProvider: w.CloudProvider, Recorder: w.Recorder, Pools: w.Pools,
		Spaces: w.Spaces, Changes: w.Spaces.Changes(), Namespace: w.Namespace,
	})}
}
