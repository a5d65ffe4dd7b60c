package controllers

import (
	"github.com/awslabs/operatorpkg/controller"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/gate"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/node/verification"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/nodeclaim/trial"
)

// Readiness is what the controllers of the readiness gate share.
type Readiness struct {
	Clock         clock.Clock
	Client        client.Client
	CloudProvider cloudprovider.CloudProvider
	Recorder      events.Recorder
	Pools         *pools.Store
	Verifier      *readiness.Verifier
	Book          *trials.Book
	Hook          *readiness.Hook
	// Demand is Karpenter's cluster state.
	Demand trial.Demand
	// Rounds counts the provisioner's decisions.
	Rounds trial.Rounds
}

// Controllers returns those that open and shut the gate of nodes, end trials, and tell of
// both in conditions.
func (r Readiness) Controllers() []controller.Controller {
	return []controller.Controller{
		verification.NewController(r.Clock, r.Client, r.Recorder, r.Pools, r.Verifier, r.Book),
		trial.NewController(trial.Dependencies{
			Clock: r.Clock, Client: r.Client, CloudProvider: r.CloudProvider, Recorder: r.Recorder,
			Pools: r.Pools, Verifier: r.Verifier, Book: r.Book, Demand: r.Demand, Rounds: r.Rounds,
		}),
		gate.NewController(r.Clock, r.Client, r.Recorder, r.Pools, r.Book, r.Hook),
	}
}
