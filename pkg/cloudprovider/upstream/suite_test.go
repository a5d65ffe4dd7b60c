package upstream_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awsapis "github.com/aws/karpenter-provider-aws/pkg/apis"
	awsv1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	awscloudprovider "github.com/aws/karpenter-provider-aws/pkg/cloudprovider"
	awsoptions "github.com/aws/karpenter-provider-aws/pkg/operator/options"
	awstest "github.com/aws/karpenter-provider-aws/pkg/test"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/client-go/tools/record"
	kwokapis "sigs.k8s.io/karpenter/kwok/apis"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

var (
	ctx    context.Context
	env    *coretest.Environment
	awsEnv *awstest.Environment
	inner  corecloudprovider.CloudProvider
	outer  corecloudprovider.CloudProvider
	store  *pools.Store
)

func TestUpstream(t *testing.T) {
	assets(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Upstream providers")
}

func assets(t testing.TB) {
	testenv.UseAssets(t)
}

var _ = BeforeSuite(func() { start() })

var _ = AfterSuite(func() { Expect(env.Stop()).To(Succeed()) })

var _ = AfterEach(func() { ExpectCleanedUp(ctx, env.Client) })

// start builds the AWS provider on fakes of its APIs, with the types of the
// catalogue and every other type that has a price.
func start() {
	ctx = options.ToContext(context.Background(), coretest.Options())
	ctx = awsoptions.ToContext(ctx, awstest.Options())
	env = coretest.NewEnvironment(coretest.WithCRDs(awsapis.CRDs...), coretest.WithCRDs(testv1alpha1.CRDs...), coretest.WithCRDs(kwokapis.CRDs...))
	awsEnv = awstest.NewEnvironment(ctx, env)
	names := lo.Uniq(append(awsEnv.PricingProvider.InstanceTypes(), lo.FilterMap(catalog.Default().GPUShapes(), func(s catalog.Shape, _ int) (ec2types.InstanceType, bool) {
		return ec2types.InstanceType(s.Name), s.Provider == "aws"
	})...))
	awsEnv.EC2API.DescribeInstanceTypesOutput.Set(&ec2.DescribeInstanceTypesOutput{InstanceTypes: lo.Map(names, func(n ec2types.InstanceType, _ int) ec2types.InstanceTypeInfo { return infoOf(n) })})
	awsEnv.EC2API.DescribeInstanceTypeOfferingsOutput.Set(&ec2.DescribeInstanceTypeOfferingsOutput{InstanceTypeOfferings: lo.FlatMap(names, func(n ec2types.InstanceType, _ int) []ec2types.InstanceTypeOffering {
		return lo.Map([]string{"test-zone-1a", "test-zone-1b", "test-zone-1c"}, func(zone string, _ int) ec2types.InstanceTypeOffering {
			return ec2types.InstanceTypeOffering{InstanceType: n, Location: lo.ToPtr(zone)}
		})
	})})
	lo.Must0(awsEnv.InstanceTypesProvider.UpdateInstanceTypes(ctx))
	lo.Must0(awsEnv.InstanceTypesProvider.UpdateInstanceTypeOfferings(ctx))
	inner = awscloudprovider.New(awsEnv.InstanceTypesProvider, awsEnv.InstanceProvider, events.NewRecorder(&record.FakeRecorder{}), env.Client, awsEnv.AMIProvider,
		awsEnv.SecurityGroupProvider, awsEnv.CapacityReservationProvider, awsEnv.PlacementGroupProvider, awsEnv.InstanceTypeStore, lo.ToPtr("ca"))
	store = &pools.Store{}
	outer = cloudprovider.Decorate(inner, cloudprovider.Options{Pools: store, Reader: env.Client})
}

// infoOf is what DescribeInstanceTypes says of a type, as far as the provider needs it.
func infoOf(name ec2types.InstanceType) ec2types.InstanceTypeInfo {
	shape, known := catalog.Default().Shape(string(name))
	if !known {
		shape = catalog.Shape{VCPU: 4, MemoryMiB: 16384, Arch: "amd64"}
	}
	arch := lo.Ternary(shape.Arch == "arm64", ec2types.ArchitectureTypeArm64, ec2types.ArchitectureTypeX8664)
	info := ec2types.InstanceTypeInfo{
		InstanceType:                  name,
		SupportedUsageClasses:         []ec2types.UsageClassType{ec2types.UsageClassTypeOnDemand, ec2types.UsageClassTypeSpot},
		SupportedVirtualizationTypes:  []ec2types.VirtualizationType{ec2types.VirtualizationTypeHvm},
		BareMetal:                     lo.ToPtr(shape.BareMetal),
		BurstablePerformanceSupported: lo.ToPtr(false),
		Hypervisor:                    ec2types.InstanceTypeHypervisorNitro,
		ProcessorInfo:                 &ec2types.ProcessorInfo{Manufacturer: lo.ToPtr("Intel"), SupportedArchitectures: []ec2types.ArchitectureType{arch}},
		VCpuInfo:                      &ec2types.VCpuInfo{DefaultCores: lo.ToPtr(int32(shape.VCPU / 2)), DefaultVCpus: lo.ToPtr(int32(shape.VCPU))},
		MemoryInfo:                    &ec2types.MemoryInfo{SizeInMiB: lo.ToPtr(int64(shape.MemoryMiB))},
		NetworkInfo: &ec2types.NetworkInfo{
			MaximumNetworkInterfaces: lo.ToPtr[int32](8), Ipv4AddressesPerInterface: lo.ToPtr[int32](30), EncryptionInTransitSupported: lo.ToPtr(true),
			DefaultNetworkCardIndex: lo.ToPtr[int32](0), NetworkCards: []ec2types.NetworkCardInfo{{NetworkCardIndex: lo.ToPtr[int32](0), MaximumNetworkInterfaces: lo.ToPtr[int32](8)}},
		},
	}
	if shape.HasGPU() {
		info.GpuInfo = &ec2types.GpuInfo{Gpus: []ec2types.GpuDeviceInfo{{
			Name: lo.ToPtr(shape.EC2GPUName), Manufacturer: lo.ToPtr("NVIDIA"), Count: lo.ToPtr(int32(shape.EC2GPUs)),
			MemoryInfo: &ec2types.GpuDeviceMemoryInfo{SizeInMiB: lo.ToPtr(int32(shape.EC2GPUMemoryMiB))},
		}}}
	}
	return info
}

func nodeClass() *awsv1.EC2NodeClass {
	c := awstest.EC2NodeClass()
	c.StatusConditions().SetTrue("Ready")
	return c
}
