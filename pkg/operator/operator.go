package operator

import (
	"context"
	"slices"

	awsv1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	awscloudprovider "github.com/aws/karpenter-provider-aws/pkg/cloudprovider"
	"github.com/aws/karpenter-provider-aws/pkg/cloudprovider/registrationhooks"
	awscontrollers "github.com/aws/karpenter-provider-aws/pkg/controllers"
	awserrors "github.com/aws/karpenter-provider-aws/pkg/errors"
	awsoperator "github.com/aws/karpenter-provider-aws/pkg/operator"
	awsoptions "github.com/aws/karpenter-provider-aws/pkg/operator/options"
	"github.com/awslabs/operatorpkg/controller"
	"github.com/awslabs/operatorpkg/option"
	operatorstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/metrics"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	corecontrollers "sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/adoption"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/operator/options"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/provisioning"
)

// NewControllers returns every controller that the process runs, Karpenter's
// first, then the AWS provider's, then ours. All of them see the same decorated
// CloudProvider. It panics on a configuration that cannot work, as Karpenter's
// own start does.
func NewControllers(ctx context.Context, op *awsoperator.Operator) []controller.Controller {
	if coreoptions.FromContext(ctx).FeatureGates.ReservedCapacity {
		awsv1.CapacityReservationsEnabled = true
	}
	measured := metrics.Decorate(adoption.Decorate(newAWSCloudProvider(ctx, op), adoption.Options{
		Reader: op.GetAPIReader(), Cache: op.GetClient(), Clock: op.Clock, Complete: completeAdopted(op.GetClient(), op.CABundle),
	}))
	gpuPools := &pools.Store{}
	gpus := lo.Must(loadCatalog(options.FromContext(ctx).CatalogFile))
	cloudProvider := cloudprovider.Decorate(
		overlay.Decorate(measured, op.GetClient(), op.InstanceTypeStore),
		cloudprovider.Options{Pools: gpuPools, Reader: op.GetClient(), Catalog: gpus, PredictAll: options.FromContext(ctx).PredictGPULabels},
	)
	if !poolsInstalled(op) {
		log.FromContext(ctx).Info("GPUPool is not installed, all NodePools behave as stock; install the chart karpenter-gpu-crd and restart to use it")
		gpuPools.Bypass()
		return append(newCoreControllers(ctx, op, newCluster(ctx, op, cloudProvider), cloudProvider, measured), newAWSControllers(ctx, op, cloudProvider)...)
	}
	gate := newReadinessGate(ctx, op, cloudProvider, gpuPools, gpus)
	ledger, holds := provisioning.NewLedger(op.GetClient(), op.Clock, provisioning.GPUs{Catalog: gpus}), provisioning.NewHolds(op.Clock)
	spaces := provisioning.NewSpaces()
	cloudProvider = provisioning.Guard(gate.provider, provisioning.GuardOptions{Client: op.GetClient(), Clock: op.Clock, Ledger: ledger, Quota: quotaError})
	cluster := newCluster(ctx, op, cloudProvider)
	core := newCoreControllers(ctx, op, cluster, cloudProvider, measured, corecontrollers.WithRegistrationHook(gate.hook))
	return slices.Concat(
		withReclaim(ctx, op, cloudProvider, cluster, gpuPools, lo.Must(provisioning.Replace(ctx, lo.Must(readiness.PlanWithTrials(core, op.GetClient(), cluster)), provisioning.Dependencies{
			Client: op.GetClient(), Cluster: cluster, Clock: op.Clock, Recorder: op.EventRecorder, Ledger: ledger, Holds: holds, Spaces: spaces,
		}))),
		newAWSControllers(ctx, op, cloudProvider),
		newPoolControllers(ctx, op, cloudProvider, gpuPools, gpus, holds),
		gate.controllers(op, cloudProvider, cluster, holds),
		newWarmControllers(op, cloudProvider, gpuPools, spaces),
	)
}

// poolsInstalled is false after an upgrade of the image alone. Nothing of ours may
// read GPUPools then: a watch of a kind that does not exist would end the process.
func poolsInstalled(op *awsoperator.Operator) bool {
	_, err := op.GetRESTMapper().RESTMapping(schema.GroupKind{Group: v1alpha1.Group, Kind: "GPUPool"}, v1alpha1.SchemeGroupVersion.Version)
	return !meta.IsNoMatchError(err)
}

// quotaError tells a used-up quota from a lack of capacity, by the AWS provider's own
// classification: both reach Karpenter as insufficient capacity.
func quotaError(err error) bool {
	reason, _ := awserrors.ToReasonMessage(err)
	return slices.Contains([]string{"SpotQuotaExceeded", "VCPULimitExceeded", "FleetQuotaExceeded"}, reason)
}

func newPoolControllers(ctx context.Context, op *awsoperator.Operator, cloudProvider corecloudprovider.CloudProvider, gpuPools *pools.Store, gpus *catalog.Catalog, holds *provisioning.Holds) []controller.Controller {
	own := controllers.Pools{
		Clock: op.Clock, Client: op.GetClient(), Uncached: op.GetAPIReader(), CloudProvider: cloudProvider, Recorder: op.EventRecorder,
		Pools: gpuPools, Catalog: gpus, Holds: holds, Namespace: options.FromContext(ctx).GPUOperatorNamespace,
	}.Controllers()
	// Conditions as metrics and their transitions as events, as Karpenter has them for NodePools.
	return append(own, operatorstatus.NewController[*v1alpha1.GPUPool](op.GetClient(), op.GetEventRecorderFor("karpenter"))) //nolint:staticcheck // SA1019: operatorpkg takes the recorder of client-go
}

func newAWSCloudProvider(ctx context.Context, op *awsoperator.Operator) corecloudprovider.CloudProvider {
	return awscloudprovider.New(
		op.InstanceTypesProvider,
		op.InstanceProvider,
		op.EventRecorder,
		op.GetClient(),
		op.AMIProvider,
		op.SecurityGroupProvider,
		op.CapacityReservationProvider,
		op.PlacementGroupProvider,
		op.InstanceTypeStore,
		op.CABundle,
		awscloudprovider.WithLegacyRepairPolicies(coreoptions.FromContext(ctx).LegacyNodeRepair),
		awscloudprovider.WithRebootForRepair(awsoptions.FromContext(ctx).FeatureGates.RebootForRepair),
	)
}

func newCluster(ctx context.Context, op *awsoperator.Operator, cloudProvider corecloudprovider.CloudProvider) *state.Cluster {
	matcher := lo.Must(health.NewRepairPolicyMatcher(ctx, cloudProvider))
	return state.NewCluster(op.Clock, op.GetClient(), cloudProvider, state.WithRepairPolicyMatcher(matcher))
}

// newCoreControllers takes the provider twice: decorated for every decision, and
// undecorated by overlays for the controller that computes those overlays.
func newCoreControllers(ctx context.Context, op *awsoperator.Operator, cluster *state.Cluster, cloudProvider, overlayUndecorated corecloudprovider.CloudProvider, opts ...option.Function[corecontrollers.ControllerOptions]) []controller.Controller {
	return corecontrollers.NewControllers(
		ctx,
		op.Manager,
		op.Clock,
		op.GetClient(),
		op.EventRecorder,
		cloudProvider,
		overlayUndecorated,
		cluster,
		op.InstanceTypeStore,
		op.PredictionStore,
		append(opts, corecontrollers.WithRegistrationHook(registrationhooks.NewPlacementGroupRegistrationHook(op.InstanceProvider)))...,
	)
}

func newAWSControllers(ctx context.Context, op *awsoperator.Operator, cloudProvider corecloudprovider.CloudProvider) []controller.Controller {
	return awscontrollers.NewControllers(
		ctx,
		op.Manager,
		op.Config,
		op.Clock,
		op.EC2API,
		op.GetClient(),
		op.EventRecorder,
		op.UnavailableOfferingsCache,
		op.SSMCache,
		op.ValidationCache,
		op.RecreationCache,
		cloudProvider,
		op.SubnetProvider,
		op.SecurityGroupProvider,
		op.InstanceProfileProvider,
		op.InstanceProvider,
		op.PricingProvider,
		op.AMIProvider,
		op.LaunchTemplateProvider,
		op.VersionProvider,
		op.InstanceTypesProvider,
		op.CapacityReservationProvider,
		op.PlacementGroupProvider,
		op.AMIResolver,
		op.ZonalShiftProvider,
		op.InstanceStatusProvider,
		op.CABundle,
		op.CELEnvironment,
	)
}
