package operator

import (
	"context"

	awsoperator "github.com/aws/karpenter-provider-aws/pkg/operator"
	awsoptions "github.com/aws/karpenter-provider-aws/pkg/operator/options"
	"github.com/awslabs/operatorpkg/controller"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/state"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/nodeclaim/trial"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/operator/options"
)

// readinessGate is the gate around one CloudProvider, with what its parts share.
type readinessGate struct {
	pools    *pools.Store
	book     *trials.Book
	verifier *readiness.Verifier
	hook     *readiness.Hook
	provider corecloudprovider.CloudProvider
}

// newReadinessGate decorates the provider that shows layouts; limits go around it, so that
// what the gate refuses counts for nothing.
func newReadinessGate(ctx context.Context, op *awsoperator.Operator, inner corecloudprovider.CloudProvider, p *pools.Store, gpus *catalog.Catalog) readinessGate {
	g := readinessGate{pools: p, book: trials.NewBook(op.Clock), verifier: readiness.NewVerifier(gpus)}
	g.hook = readiness.NewHook(op.GetClient(), p, readiness.NewGate(op.GetClient()), g.verifier, op.Clock)
	g.provider = readiness.Decorate(inner, op.GetClient(), p, g.book, readiness.Options{
		RepairToleration: options.FromContext(ctx).GPURepairToleration,
		RebootForRepair:  awsoptions.FromContext(ctx).FeatureGates.RebootForRepair,
	})
	return g
}

func (g readinessGate) controllers(op *awsoperator.Operator, cloudProvider corecloudprovider.CloudProvider, cluster *state.Cluster, rounds trial.Rounds) []controller.Controller {
	return controllers.Readiness{
		Clock: op.Clock, Client: op.GetClient(), CloudProvider: cloudProvider, Recorder: op.EventRecorder,
		Pools: g.pools, Verifier: g.verifier, Book: g.book, Hook: g.hook, Demand: cluster, Rounds: rounds,
	}.Controllers()
}
