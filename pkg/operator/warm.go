package operator

import (
	"os"

	awsoperator "github.com/aws/karpenter-provider-aws/pkg/operator"
	"github.com/awslabs/operatorpkg/controller"
	"github.com/samber/lo"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// newWarmControllers keeps spec.warm of GPUPools. The charts of Karpenter and ours tell the
// process its own namespace in SYSTEM_NAMESPACE.
func newWarmControllers(op *awsoperator.Operator, cloudProvider corecloudprovider.CloudProvider, gpuPools *pools.Store, spaces *provisioning.Spaces) []controller.Controller {
	return controllers.Warm{
		Clock: op.Clock, Client: op.GetClient(), CloudProvider: cloudProvider, Recorder: op.EventRecorder,
		Pools: gpuPools, Spaces: spaces, Namespace: lo.CoalesceOrEmpty(os.Getenv("SYSTEM_NAMESPACE"), "kube-system"),
	}.Controllers()
}
