package parity_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awsv1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/aws/karpenter-provider-aws/pkg/fake"
	awsoptions "github.com/aws/karpenter-provider-aws/pkg/operator/options"
	"github.com/aws/karpenter-provider-aws/pkg/providers/instancetype"
	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

var update = flag.Bool("update", false, "rewrite data/ec2-interfaces.csv from the AWS provider's limits")

// classes are EC2NodeClasses that reach every branch of the arithmetic.
var classes = map[string]string{
	"plain AL2023": `{spec: {amiSelectorTerms: [{alias: al2023@latest}]}}`,
	"Bottlerocket with pods and disk set": `{spec: {amiFamily: Bottlerocket, kubelet: {maxPods: 42, podsPerCore: 3},
		blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 4Gi}}, {deviceName: /dev/xvdb, ebs: {volumeSize: 200Gi}}]}}`,
	"AL2 with reservations and RAID0": `{spec: {amiFamily: AL2, instanceStorePolicy: RAID0, kubelet: {podsPerCore: 2,
		kubeReserved: {cpu: 200m, memory: 1Gi}, systemReserved: {cpu: 100m, memory: 100Mi, ephemeral-storage: 1Gi},
		evictionHard: {memory.available: 5%, nodefs.available: 12%}}}}`,
	"Custom with a last volume": `{spec: {amiFamily: Custom, kubelet: {evictionHard: {memory.available: 300Mi}},
		blockDeviceMappings: [{deviceName: /dev/sda1, ebs: {volumeSize: 40Gi}}, {deviceName: /dev/sdb, ebs: {volumeSize: 70Gi}}]}}`,
	"EFA-only interfaces and a root volume": `{spec: {amiSelectorTerms: [{alias: bottlerocket@latest}],
		blockDeviceMappings: [{deviceName: /dev/xvda, rootVolume: true, ebs: {volumeSize: 90Gi}}],
		networkInterfaces: [{networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}, {networkCardIndex: 0, deviceIndex: 1, interfaceType: efa-only}, {networkCardIndex: 1, deviceIndex: 1, interfaceType: efa-only}]}}`,
	"subnets known": `{spec: {amiFamily: AL2023}, status: {subnets: [{id: subnet-1, zone: us-east-1a, zoneID: use1-az1}, {id: subnet-2, zone: us-east-1b, zoneID: use1-az2}]}}`,
}

func ours(t *testing.T, text string) *catalogprovider.NodeClass {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetName("default")
	u.SetGroupVersionKind(catalogprovider.NodeClassGVK)
	c, err := catalogprovider.ParseNodeClass(u)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func theirs(t *testing.T, text string) *awsv1.EC2NodeClass {
	t.Helper()
	out := &awsv1.EC2NodeClass{}
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(text, "\t", " ")), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// upstream is what the AWS provider makes of the figures that EC2 would give.
func upstream(t *testing.T, info ec2types.InstanceTypeInfo, class *awsv1.EC2NodeClass, zones []string) *corecloudprovider.InstanceType {
	t.Helper()
	ctx := awsoptions.ToContext(context.Background(), &awsoptions.Options{VMMemoryOverheadPercent: 0.075})
	var kubelet struct {
		MaxPods, PodsPerCore                       *int32
		KubeReserved, SystemReserved, EvictionHard map[string]string
	}
	raw, err := json.Marshal(class.KubeletConfiguration())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &kubelet); err != nil {
		t.Fatal(err)
	}
	zoneInfo := class.ZoneInfo()
	if len(zoneInfo) == 0 {
		zoneInfo = lo.Map(zones, func(z string, _ int) awsv1.ZoneInfo { return awsv1.ZoneInfo{Zone: z} })
	}
	return instancetype.NewInstanceType(ctx, info, "us-east-1", zones, zoneInfo, class.BlockDeviceMappings(), class.InstanceStorePolicy(), class.NetworkInterfaces(),
		kubelet.MaxPods, kubelet.PodsPerCore, kubelet.KubeReserved, kubelet.SystemReserved, kubelet.EvictionHard, nil, class.AMIFamily(), nil)
}

// cardENIs are the interfaces of the default card.
func cardENIs(s catalog.Shape) int64 {
	if l, ok := instancetype.Limits[s.Name]; ok {
		return l.NetworkCards[l.DefaultNetworkCardIndex].MaximumNetworkInterfaces
	}
	return int64(s.MaxENIs)
}

// infoOf states a shape as EC2 would.
func infoOf(s catalog.Shape, maker string) ec2types.InstanceTypeInfo {
	out := ec2types.InstanceTypeInfo{
		InstanceType: ec2types.InstanceType(s.Name), Hypervisor: ec2types.InstanceTypeHypervisor(s.Hypervisor),
		SupportedUsageClasses: []ec2types.UsageClassType{ec2types.UsageClassTypeOnDemand, ec2types.UsageClassTypeSpot},
		VCpuInfo:              &ec2types.VCpuInfo{DefaultVCpus: aws.Int32(int32(s.VCPU))},
		MemoryInfo:            &ec2types.MemoryInfo{SizeInMiB: aws.Int64(int64(s.MemoryMiB))},
		ProcessorInfo: &ec2types.ProcessorInfo{Manufacturer: aws.String(maker),
			SupportedArchitectures: []ec2types.ArchitectureType{lo.Ternary(s.Arch == "arm64", ec2types.ArchitectureTypeArm64, ec2types.ArchitectureTypeX8664)}},
		NetworkInfo: &ec2types.NetworkInfo{DefaultNetworkCardIndex: aws.Int32(0), Ipv4AddressesPerInterface: aws.Int32(int32(s.IPv4PerENI)),
			NetworkCards: []ec2types.NetworkCardInfo{{NetworkCardIndex: aws.Int32(0), MaximumNetworkInterfaces: aws.Int32(int32(cardENIs(s)))}}},
	}
	if s.EFAInterfaces > 0 {
		out.NetworkInfo.EfaInfo = &ec2types.EfaInfo{MaximumEfaInterfaces: aws.Int32(int32(s.EFAInterfaces))}
	}
	if s.LocalNVMeGB > 0 {
		out.InstanceStorageInfo = &ec2types.InstanceStorageInfo{TotalSizeInGB: aws.Int64(int64(s.LocalNVMeGB)), NvmeSupport: ec2types.EphemeralNvmeSupportRequired}
	}
	if s.HasGPU() {
		out.GpuInfo = &ec2types.GpuInfo{Gpus: []ec2types.GpuDeviceInfo{{Name: aws.String(s.EC2GPUName), Manufacturer: aws.String("NVIDIA"),
			Count: aws.Int32(int32(s.EC2GPUs)), MemoryInfo: &ec2types.GpuDeviceMemoryInfo{SizeInMiB: aws.Int32(int32(s.EC2GPUMemoryMiB))}}}}
	}
	return out
}

func amounts(list corev1.ResourceList) map[string]string {
	return lo.MapEntries(lo.PickBy(list, func(_ corev1.ResourceName, q resource.Quantity) bool { return !q.IsZero() }),
		func(k corev1.ResourceName, q resource.Quantity) (string, string) {
			return string(k), fmt.Sprint(q.MilliValue()) + "m"
		})
}

func labels(it *corecloudprovider.InstanceType) map[string]string {
	out := map[string]string{}
	for key, r := range it.Requirements {
		values := r.Values()
		slices.Sort(values)
		out[key] = fmt.Sprint(r.Operator(), " ", values)
	}
	for _, key := range catalogprovider.UnknownLabels() {
		delete(out, key)
	}
	if out[awsv1.LabelTopologyZoneID] == "In []" {
		delete(out, awsv1.LabelTopologyZoneID) // subnets without IDs of zones
	}
	return out
}

func compare(t *testing.T, got, want *corecloudprovider.InstanceType) {
	t.Helper()
	if d := cmp.Diff(labels(want), labels(got)); d != "" {
		t.Errorf("%s: labels, AWS provider (-) and ours (+):\n%s", want.Name, d)
	}
	if d := cmp.Diff(amounts(want.Capacity), amounts(got.Capacity)); d != "" {
		t.Errorf("%s: capacity, AWS provider (-) and ours (+):\n%s", want.Name, d)
	}
	if d := cmp.Diff(amounts(want.Allocatable()), amounts(got.Allocatable())); d != "" {
		t.Errorf("%s: allocatable, AWS provider (-) and ours (+):\n%s", want.Name, d)
	}
}

// sample is every GPU shape and every seventh of the others.
func sample() []catalog.Shape {
	i := 0
	return lo.Filter(catalog.Default().Shapes(), func(s catalog.Shape, _ int) bool {
		if s.Provider != "aws" || s.MaxENIs == 0 {
			return false
		}
		i++
		return s.HasGPU() || i%7 == 0
	})
}

func TestArithmeticIsThatOfTheAWSProvider(t *testing.T) {
	options := catalogprovider.DefaultOptions()
	for name, text := range classes {
		t.Run(name, func(t *testing.T) {
			mine, its := ours(t, text), theirs(t, text)
			for _, s := range sample() {
				got := catalogprovider.InstanceType(s, mine, options)
				maker := got.Requirements.Get(awsv1.LabelInstanceCPUManufacturer).Any()
				compare(t, got, upstream(t, infoOf(s, maker), its, options.Zones))
			}
		})
	}
	if n := len(sample()); n < 150 {
		t.Errorf("compared %d types only", n)
	}
}

// TestFactsAreThoseOfEC2 compares with answers of EC2 that the AWS provider has
// recorded, without going through the catalogue.
func TestFactsAreThoseOfEC2(t *testing.T) {
	recorded, err := fake.NewEC2API().DescribeInstanceTypes(context.Background(), &ec2.DescribeInstanceTypesInput{})
	if err != nil {
		t.Fatal(err)
	}
	options, compared := catalogprovider.DefaultOptions(), 0
	for _, info := range recorded.InstanceTypes {
		s, ok := catalog.Default().Shape(string(info.InstanceType))
		if !ok {
			continue // Neuron and burstable types
		}
		compared++
		if s.EFAInterfaces == 0 {
			info.NetworkInfo.EfaInfo = nil // the catalogue knows EFA of types with DRA metadata only
		}
		compare(t, catalogprovider.InstanceType(s, ours(t, classes["plain AL2023"]), options), upstream(t, info, theirs(t, classes["plain AL2023"]), options.Zones))
	}
	if compared < 9 {
		t.Errorf("compared %d types only", compared)
	}
}

func TestInterfacesAreCurrent(t *testing.T) {
	lines := lo.FilterMap(catalog.Default().Shapes(), func(s catalog.Shape, _ int) (string, bool) {
		l, ok := instancetype.Limits[s.Name]
		if !ok {
			return "", false
		}
		return fmt.Sprintf("%s,%d,%d", s.Name, l.NetworkCards[l.DefaultNetworkCardIndex].MaximumNetworkInterfaces, lo.Ternary(l.IsTrunkingCompatible, l.BranchInterface, 0)), true
	})
	want := "# EC2 type, interfaces of the default network card, branch interfaces for pods: karpenter-provider-aws v1.15.0, pkg/providers/instancetype/zz_generated.vpclimits.go, Apache-2.0.\n" +
		strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile("../data/ec2-interfaces.csv", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("../data/ec2-interfaces.csv")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("run go test -update in this package:\n%s", d)
	}
}
