package operator

import (
	"context"

	awsoperator "github.com/aws/karpenter-provider-aws/pkg/operator"
	"github.com/awslabs/operatorpkg/controller"
	"github.com/samber/lo"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers"
)

// withReclaim gives Karpenter's controllers, our provisioner among them, the removal of empty
// nodes. The CloudProvider and the cluster state are those that core was constructed with.
func withReclaim(ctx context.Context, op *awsoperator.Operator, cloudProvider corecloudprovider.CloudProvider, cluster *state.Cluster, gpuPools *pools.Store, core []controller.Controller) []controller.Controller {
	return lo.Must(controllers.Reclaim{
		Clock: op.Clock, Client: op.GetClient(), Uncached: op.GetAPIReader(), CloudProvider: cloudProvider, Cluster: cluster,
		Recorder: op.EventRecorder, Pools: gpuPools, Buffers: coreoptions.FromContext(ctx).FeatureGates.CapacityBuffer,
	}.AddTo(core))
}
