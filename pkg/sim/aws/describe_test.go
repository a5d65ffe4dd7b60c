package aws_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
)

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: &name, Values: values}
}

func TestDescribeInstanceTypes(t *testing.T) {
	w, ctx := start(t, aws.Options{}), context.Background()
	var names []string
	pages := ec2.NewDescribeInstanceTypesPaginator(w.ec2, &ec2.DescribeInstanceTypesInput{MaxResults: awssdk.Int32(2), Filters: []types.Filter{
		filter("supported-virtualization-type", "hvm"), filter("processor-info.supported-architecture", "x86_64")}})
	infos := map[string]types.InstanceTypeInfo{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		w.must(err)
		for _, info := range page.InstanceTypes {
			names = append(names, string(info.InstanceType))
			infos[string(info.InstanceType)] = info
		}
	}
	if diff := cmp.Diff([]string{"c5.metal", "g5.2xlarge", "g5.xlarge", "p4d.24xlarge"}, names); diff != "" {
		t.Error(diff)
	}
	g5, p4d := infos["g5.xlarge"], infos["p4d.24xlarge"]
	if got := []int64{int64(*g5.VCpuInfo.DefaultVCpus), *g5.MemoryInfo.SizeInMiB, int64(*g5.GpuInfo.Gpus[0].Count), int64(*g5.GpuInfo.Gpus[0].MemoryInfo.SizeInMiB),
		*g5.InstanceStorageInfo.TotalSizeInGB, int64(*g5.NetworkInfo.NetworkCards[*g5.NetworkInfo.DefaultNetworkCardIndex].MaximumNetworkInterfaces),
		int64(*g5.NetworkInfo.Ipv4AddressesPerInterface)}; !slices.Equal(got, []int64{4, 16384, 1, 24576, 250, 4, 15}) {
		t.Errorf("g5.xlarge is %v", got)
	}
	if g5.NetworkInfo.EfaInfo != nil || *p4d.NetworkInfo.EfaInfo.MaximumEfaInterfaces != 4 || len(p4d.NetworkInfo.NetworkCards) != 4 {
		t.Error("EFA is wrong")
	}
	if !*infos["c5.metal"].BareMetal || infos["c5.metal"].GpuInfo != nil {
		t.Error("c5.metal is wrong")
	}
	_, err := w.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"x1.none"}})
	if w.code(err) != "InvalidInstanceType" {
		t.Error(err)
	}
	_, err = w.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{DryRun: awssdk.Bool(true)})
	if w.code(err) != "DryRunOperation" {
		t.Error(err)
	}
}

func TestDescribeOfferingsLeavesOutWhatIsNotOffered(t *testing.T) {
	w, ctx := start(t, aws.Options{NotOffered: []aws.Pool{{InstanceType: "p4d.*", Zone: zoneB}}}), context.Background()
	out, err := w.ec2.DescribeInstanceTypeOfferings(ctx, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: types.LocationTypeAvailabilityZone, Filters: []types.Filter{filter("instance-type", "p4d.24xlarge")}})
	w.must(err)
	var zones []string
	for _, o := range out.InstanceTypeOfferings {
		zones = append(zones, *o.Location)
	}
	if diff := cmp.Diff([]string{zoneA, zoneC}, zones); diff != "" {
		t.Error(diff)
	}
	regional, err := w.ec2.DescribeInstanceTypeOfferings(ctx, &ec2.DescribeInstanceTypeOfferingsInput{LocationType: types.LocationTypeRegion})
	w.must(err)
	if len(regional.InstanceTypeOfferings) != 5 {
		t.Errorf("the region offers %d types, want 5", len(regional.InstanceTypeOfferings))
	}
	prices, err := w.ec2.DescribeSpotPriceHistory(ctx, &ec2.DescribeSpotPriceHistoryInput{ProductDescriptions: []string{"Linux/UNIX"}})
	w.must(err)
	if len(prices.SpotPriceHistory) != 14 {
		t.Errorf("%d spot prices, want 14", len(prices.SpotPriceHistory))
	}
	for _, p := range prices.SpotPriceHistory {
		price, _ := strconv.ParseFloat(*p.SpotPrice, 64)
		onDemand := map[types.InstanceType]float64{"g5.xlarge": 1, "g5.2xlarge": 1.2, "p4d.24xlarge": 22, "m7g.large": 0.08, "c5.metal": 4}[p.InstanceType]
		if part := price / onDemand; part < 0.299 || part > 0.551 || p.Timestamp == nil {
			t.Errorf("spot price of %s in %s is %.2f of on-demand", p.InstanceType, *p.AvailabilityZone, part)
		}
	}
}

func TestDescribeNetworkByTags(t *testing.T) {
	w, ctx := start(t, aws.Options{ClusterName: "demo"}), context.Background()
	for _, tc := range []struct {
		filter types.Filter
		want   int
	}{
		{filter("tag:karpenter.sh/discovery", "demo"), 3},
		{filter("tag:karpenter.sh/discovery", "other"), 0},
		{filter("tag-key", "karpenter.sh/*"), 3},
		{filter("availability-zone", zoneB), 1},
		{filter("availability-zone-id", "use1-az3"), 1},
	} {
		out, err := w.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: []types.Filter{tc.filter}})
		w.must(err)
		if len(out.Subnets) != tc.want {
			t.Errorf("%s=%v gives %d subnets, want %d", *tc.filter.Name, tc.filter.Values, len(out.Subnets), tc.want)
		}
	}
	groups, err := w.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: []types.Filter{filter("tag:karpenter.sh/discovery", "demo")}})
	w.must(err)
	if len(groups.SecurityGroups) != 1 || *groups.SecurityGroups[0].GroupName != "eks-cluster-sg-demo" {
		t.Errorf("security groups are %v", groups.SecurityGroups)
	}
	_, err = w.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: []types.Filter{filter("color", "red")}})
	if w.code(err) != "InvalidParameterValue" {
		t.Errorf("an unknown filter gives %v", err)
	}
	pgs, err := w.ec2.DescribePlacementGroups(ctx, &ec2.DescribePlacementGroupsInput{})
	w.must(err)
	if len(pgs.PlacementGroups) != 0 {
		t.Error("there are placement groups")
	}
}

func TestLaunchTemplatesAreMadeFoundAndDeleted(t *testing.T) {
	w, ctx := start(t, aws.Options{}), context.Background()
	w.template("lt", nil)
	find := func(in *ec2.DescribeLaunchTemplatesInput) (int, string) {
		out, err := w.ec2.DescribeLaunchTemplates(ctx, in)
		if err != nil {
			return 0, w.code(err)
		}
		return len(out.LaunchTemplates), ""
	}
	for _, tc := range []struct {
		in       *ec2.DescribeLaunchTemplatesInput
		wantLen  int
		wantCode string
	}{
		{&ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"lt"}}, 1, ""},
		{&ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"no"}}, 0, "InvalidLaunchTemplateName.NotFoundException"},
		{&ec2.DescribeLaunchTemplatesInput{LaunchTemplateIds: []string{"lt-0"}}, 0, "InvalidLaunchTemplateId.NotFound"},
		{&ec2.DescribeLaunchTemplatesInput{Filters: []types.Filter{filter("tag:cluster", "x")}}, 1, ""},
		{&ec2.DescribeLaunchTemplatesInput{Filters: []types.Filter{filter("tag:cluster", "y")}}, 0, ""},
	} {
		if n, code := find(tc.in); n != tc.wantLen || code != tc.wantCode {
			t.Errorf("%+v gives %d templates and code %q", tc.in, n, code)
		}
	}
	_, err := w.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: awssdk.String("lt"), LaunchTemplateData: &types.RequestLaunchTemplateData{}})
	if w.code(err) != "InvalidLaunchTemplateName.AlreadyExistsException" {
		t.Error(err)
	}
	_, err = w.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: awssdk.String("lt")})
	w.must(err)
	_, err = w.ec2.CreateFleet(ctx, w.fleet(1, "on-demand", []string{"g5.xlarge"}, []string{zoneA}))
	if w.code(err) != "InvalidLaunchTemplateName.NotFoundException" {
		t.Errorf("a fleet from a deleted template gives %v", err)
	}
}

func TestUnknownOperationIsNamedAndCounted(t *testing.T) {
	w := start(t, aws.Options{})
	_, err := w.ec2.DescribeVpcs(context.Background(), &ec2.DescribeVpcsInput{})
	if w.code(err) != "InvalidAction" || w.Report(nil).Unknown["DescribeVpcs"] != 1 || w.Report(nil).Errors["InvalidAction"] != 1 {
		t.Errorf("got %v and %v", err, w.Report(nil).Unknown)
	}
}
