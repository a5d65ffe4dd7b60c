package aws_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
)

const zoneA, zoneB, zoneC = "us-east-1a", "us-east-1b", "us-east-1c"

var epoch = time.Date(2026, 7, 20, 12, 0, 0, 0, time.UTC)

// launcher records what the simulator asks of it.
type launcher struct {
	mu     sync.Mutex
	calls  []string
	refuse int // calls to fail first
}

func (l *launcher) record(verb string, i aws.Instance) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse > 0 {
		l.refuse--
		return errors.New("the api server is away")
	}
	l.calls = append(l.calls, verb+" "+i.ID)
	return nil
}

func (l *launcher) Launch(_ context.Context, i aws.Instance) error { return l.record("launch", i) }
func (l *launcher) Terminate(_ context.Context, i aws.Instance) error {
	return l.record("terminate", i)
}
func (l *launcher) Fail(_ context.Context, i aws.Instance) error { return l.record("fail", i) }

func (l *launcher) did(call string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.calls, call)
}

// world is a running simulator with a client of the real SDK.
type world struct {
	*testing.T
	*aws.Server
	ec2   *ec2.Client
	clock *clocktesting.FakeClock
	nodes *launcher
}

func start(t *testing.T, opts aws.Options) *world {
	t.Helper()
	w := &world{T: t, clock: clocktesting.NewFakeClock(epoch), nodes: &launcher{}}
	opts.Clock, opts.Launcher = w.clock, w.nodes
	if opts.InstanceTypes == nil {
		opts.InstanceTypes = []aws.InstanceType{
			{Name: "g5.xlarge", VCPU: 4, MemoryMiB: 16384, Arch: "amd64", PricePerHour: 1.0, GPUs: 1, GPUName: "A10G", GPUMemoryMiB: 24576, MaxENIs: 4, IPv4PerENI: 15, LocalNVMeGB: 250},
			{Name: "g5.2xlarge", VCPU: 8, MemoryMiB: 32768, Arch: "amd64", PricePerHour: 1.2, GPUs: 1, GPUName: "A10G", GPUMemoryMiB: 24576},
			{Name: "p4d.24xlarge", VCPU: 96, MemoryMiB: 1179648, Arch: "amd64", PricePerHour: 22, GPUs: 8, GPUName: "A100", GPUMemoryMiB: 40960, EFAInterfaces: 4},
			{Name: "m7g.large", VCPU: 2, MemoryMiB: 8192, Arch: "arm64", PricePerHour: 0.08},
			{Name: "c5.metal", VCPU: 96, MemoryMiB: 196608, Arch: "amd64", PricePerHour: 4, BareMetal: true},
		}
	}
	var err error
	w.Server, err = aws.New(opts)
	w.must(err)
	w.must(w.Start(context.Background()))
	t.Cleanup(func() { w.must(w.Stop()) })
	w.ec2 = ec2.New(ec2.Options{
		Region: "us-east-1", BaseEndpoint: awssdk.String(w.URL()), Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
		RetryMaxAttempts: 1,
	})
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// code is the code of an AWS error, empty for nil.
func (w *world) code(err error) string {
	w.Helper()
	if err == nil {
		return ""
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		w.Fatalf("not an AWS error: %v", err)
	}
	return api.ErrorCode()
}

func (w *world) eventually(what string, true func() bool) {
	w.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if true() {
			return
		}
	}
	w.Fatalf("not within 10 s: %s", what)
}

// pass moves the clock on in steps, so that what is due at each step happens.
func (w *world) pass(d time.Duration) {
	w.Helper()
	for range 10 {
		w.clock.Step(d / 10)
		time.Sleep(5 * time.Millisecond)
	}
}

func (w *world) template(name string, change func(*types.RequestLaunchTemplateData)) {
	w.Helper()
	data := &types.RequestLaunchTemplateData{
		ImageId: awssdk.String("ami-1"), UserData: awssdk.String("aGVsbG8="),
		NetworkInterfaces: []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{DeviceIndex: awssdk.Int32(0), Groups: []string{"sg-1"}}},
	}
	if change != nil {
		change(data)
	}
	_, err := w.ec2.CreateLaunchTemplate(context.Background(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: &name, LaunchTemplateData: data, TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeLaunchTemplate, Tags: []types.Tag{{Key: awssdk.String("cluster"), Value: awssdk.String("x")}}}}})
	w.must(err)
}

func (w *world) subnets() map[string]string {
	w.Helper()
	out, err := w.ec2.DescribeSubnets(context.Background(), &ec2.DescribeSubnetsInput{})
	w.must(err)
	byZone := map[string]string{}
	for _, s := range out.Subnets {
		byZone[*s.AvailabilityZone] = *s.SubnetId
	}
	return byZone
}

// fleet is a request for count instances of the types in the zones.
func (w *world) fleet(count int32, capacityType types.DefaultTargetCapacityType, instanceTypes, zones []string) *ec2.CreateFleetInput {
	w.Helper()
	subnets := w.subnets()
	config := types.FleetLaunchTemplateConfigRequest{LaunchTemplateSpecification: &types.FleetLaunchTemplateSpecificationRequest{
		LaunchTemplateName: awssdk.String("lt"), Version: awssdk.String("$Latest")}}
	for _, it := range instanceTypes {
		for _, zone := range zones {
			config.Overrides = append(config.Overrides, types.FleetLaunchTemplateOverridesRequest{
				InstanceType: types.InstanceType(it), SubnetId: awssdk.String(subnets[zone]), AvailabilityZone: awssdk.String(zone)})
		}
	}
	return &ec2.CreateFleetInput{
		Type: types.FleetTypeInstant, LaunchTemplateConfigs: []types.FleetLaunchTemplateConfigRequest{config},
		TargetCapacitySpecification: &types.TargetCapacitySpecificationRequest{TotalTargetCapacity: &count, DefaultTargetCapacityType: capacityType},
		SpotOptions:                 &types.SpotOptionsRequest{AllocationStrategy: types.SpotAllocationStrategyPriceCapacityOptimized},
		OnDemandOptions:             &types.OnDemandOptionsRequest{AllocationStrategy: types.FleetOnDemandAllocationStrategyLowestPrice},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance,
			Tags: []types.Tag{{Key: awssdk.String("karpenter.sh/nodepool"), Value: awssdk.String("gpu")}}}},
	}
}

// launched are the IDs of a fleet's instances, with "type/zone" of each group.
func launched(out *ec2.CreateFleetOutput) (ids, pools []string) {
	for _, group := range out.Instances {
		ids = append(ids, group.InstanceIds...)
		for range group.InstanceIds {
			pools = append(pools, string(group.InstanceType)+"/"+*group.LaunchTemplateAndOverrides.Overrides.AvailabilityZone)
		}
	}
	return ids, pools
}

func refusals(out *ec2.CreateFleetOutput) (codes []string) {
	for _, e := range out.Errors {
		codes = append(codes, *e.ErrorCode+" "+string(e.LaunchTemplateAndOverrides.Overrides.InstanceType)+"/"+*e.LaunchTemplateAndOverrides.Overrides.AvailabilityZone)
	}
	return codes
}

func (w *world) createFleet(in *ec2.CreateFleetInput) *ec2.CreateFleetOutput {
	w.Helper()
	out, err := w.ec2.CreateFleet(context.Background(), in)
	w.must(err)
	return out
}

// one launches a single instance and returns its ID.
func (w *world) one(capacityType types.DefaultTargetCapacityType) string {
	w.Helper()
	ids, _ := launched(w.createFleet(w.fleet(1, capacityType, []string{"g5.xlarge"}, []string{zoneA})))
	if len(ids) != 1 {
		w.Fatalf("launched %v, want one instance", ids)
	}
	return ids[0]
}

func (w *world) instance(id string) aws.Instance {
	w.Helper()
	for _, i := range w.Instances() {
		if i.ID == id {
			return i
		}
	}
	w.Fatalf("there is no instance %s", id)
	return aws.Instance{}
}
