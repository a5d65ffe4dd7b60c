package aws_test

import (
	"context"
	"slices"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
)

var allZones = []string{zoneA, zoneB, zoneC}

func TestFleetTakesTheCheapestPool(t *testing.T) {
	w := start(t, aws.Options{SpotPrices: map[string]float64{"g5.2xlarge/" + zoneC: 0.01}})
	w.template("lt", nil)
	types := []string{"p4d.24xlarge", "g5.2xlarge", "g5.xlarge"}
	_, pools := launched(w.createFleet(w.fleet(2, "on-demand", types, allZones)))
	if diff := cmp.Diff([]string{"g5.xlarge/" + zoneA, "g5.xlarge/" + zoneA}, pools); diff != "" {
		t.Errorf("on-demand: %s", diff)
	}
	_, pools = launched(w.createFleet(w.fleet(1, "on-demand", types, allZones)))
	if diff := cmp.Diff([]string{"g5.xlarge/" + zoneB}, pools); diff != "" {
		t.Errorf("equal prices spread over zones: %s", diff)
	}
	_, pools = launched(w.createFleet(w.fleet(1, "spot", types, allZones)))
	if diff := cmp.Diff([]string{"g5.2xlarge/" + zoneC}, pools); diff != "" {
		t.Errorf("spot: %s", diff)
	}
	in := w.fleet(1, "on-demand", types, []string{zoneA})
	in.OnDemandOptions.AllocationStrategy = "prioritized"
	for n, priority := range []float64{1, 3, 2} {
		in.LaunchTemplateConfigs[0].Overrides[n].Priority = awssdk.Float64(priority)
	}
	_, pools = launched(w.createFleet(in))
	if diff := cmp.Diff([]string{"p4d.24xlarge/" + zoneA}, pools); diff != "" {
		t.Errorf("prioritized: %s", diff)
	}
}

func TestFleetFallsBackAndNamesThePoolsThatRefused(t *testing.T) {
	w := start(t, aws.Options{})
	w.template("lt", nil)
	id, err := w.AddFault(aws.Fault{Kind: aws.CapacityFault, Pool: aws.Pool{InstanceType: "g5.xlarge", Zone: zoneA, CapacityType: aws.OnDemand}, Left: 1})
	w.must(err)
	out := w.createFleet(w.fleet(3, "on-demand", []string{"g5.xlarge", "g5.2xlarge"}, []string{zoneA}))
	ids, pools := launched(out)
	if diff := cmp.Diff([]string{"g5.xlarge/" + zoneA, "g5.2xlarge/" + zoneA, "g5.2xlarge/" + zoneA}, pools); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"InsufficientInstanceCapacity g5.xlarge/" + zoneA}, refusals(out)); diff != "" {
		t.Error(diff)
	}
	only := w.fleet(1, "on-demand", []string{"g5.xlarge"}, []string{zoneA})
	if got, _ := launched(w.createFleet(only)); len(got) != 0 {
		t.Error("launched without capacity")
	}
	// An instance that ends gives its place back, and a cleared fault all.
	w.must(w.Terminate(ids[0]))
	only.ClientToken = awssdk.String("two")
	if got, _ := launched(w.createFleet(only)); len(got) != 1 {
		t.Error("the place of an ended instance is not free")
	}
	w.must(w.ClearFault(id))
	only.ClientToken = awssdk.String("three")
	if got, _ := launched(w.createFleet(only)); len(got) != 1 {
		t.Error("capacity is not back")
	}
}

func TestFleetHonoursQuotas(t *testing.T) {
	w := start(t, aws.Options{Quotas: []aws.Quota{{InstanceTypes: "g*", CapacityType: aws.OnDemand, VCPUs: 9}, {InstanceTypes: "g*", CapacityType: aws.Spot, VCPUs: 0}}})
	w.template("lt", nil)
	out := w.createFleet(w.fleet(3, "on-demand", []string{"g5.xlarge"}, []string{zoneA}))
	if ids, _ := launched(out); len(ids) != 2 || !slices.Equal(refusals(out), []string{"VcpuLimitExceeded g5.xlarge/" + zoneA}) {
		t.Errorf("launched %v, refused %v", ids, refusals(out))
	}
	out = w.createFleet(w.fleet(1, "spot", []string{"g5.xlarge"}, []string{zoneA}))
	if !slices.Equal(refusals(out), []string{"MaxSpotInstanceCountExceeded g5.xlarge/" + zoneA}) {
		t.Errorf("refused %v", refusals(out))
	}
}

func TestFleetIsIdempotentByClientToken(t *testing.T) {
	w, ctx := start(t, aws.Options{}), context.Background()
	w.template("lt", nil)
	in := w.fleet(2, "on-demand", []string{"g5.xlarge"}, []string{zoneA})
	in.ClientToken = awssdk.String("token")
	first, _ := launched(w.createFleet(in))
	second, _ := launched(w.createFleet(in))
	if diff := cmp.Diff(first, second); diff != "" || len(w.Instances()) != 2 {
		t.Errorf("%d instances, %s", len(w.Instances()), diff)
	}
	in.TargetCapacitySpecification.TotalTargetCapacity = awssdk.Int32(3)
	_, err := w.ec2.CreateFleet(ctx, in)
	if w.code(err) != "IdempotentParameterMismatch" {
		t.Error(err)
	}
	// An answer that is lost makes the SDK ask again, with the same token.
	_, err = w.AddFault(aws.Fault{Kind: aws.DropFault, Operation: "CreateFleet", Count: 1})
	w.must(err)
	in.ClientToken = awssdk.String("lost")
	_, err = w.ec2.CreateFleet(ctx, in, func(o *ec2.Options) { o.RetryMaxAttempts = 3 })
	w.must(err)
	if len(w.Instances()) != 5 {
		t.Errorf("%d instances after a lost answer, want 5", len(w.Instances()))
	}
}

func TestFleetRefusesWhatItDoesNotKnow(t *testing.T) {
	w, ctx := start(t, aws.Options{NotOffered: []aws.Pool{{InstanceType: "g5.2xlarge", Zone: zoneA}}}), context.Background()
	w.template("lt", nil)
	out := w.createFleet(w.fleet(1, "on-demand", []string{"g5.2xlarge", "x9.huge"}, []string{zoneA}))
	if diff := cmp.Diff([]string{"Unsupported g5.2xlarge/" + zoneA, "InvalidParameterValue x9.huge/" + zoneA}, refusals(out)); diff != "" {
		t.Error(diff)
	}
	in := w.fleet(1, "on-demand", []string{"g5.xlarge"}, []string{zoneA})
	in.Type = types.FleetTypeMaintain
	if _, err := w.ec2.CreateFleet(ctx, in); w.code(err) != "UnsupportedOperation" {
		t.Error(err)
	}
	in.DryRun = awssdk.Bool(true)
	if _, err := w.ec2.CreateFleet(ctx, in); w.code(err) != "DryRunOperation" {
		t.Error(err)
	}
}

func TestReservationsAreUsedUpAndGivenBack(t *testing.T) {
	end := epoch.Add(time.Hour)
	w, ctx := start(t, aws.Options{Reservations: []aws.Reservation{
		{ID: "cr-1", InstanceType: "g5.xlarge", Zone: zoneA, Count: 1, Tags: map[string]string{"team": "a"}, EndDate: &end},
		{ID: "cr-2", InstanceType: "g5.xlarge", Zone: zoneA, Count: 1, Open: true},
	}}), context.Background()
	w.template("lt", func(d *types.RequestLaunchTemplateData) {
		d.CapacityReservationSpecification = &types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: types.CapacityReservationPreferenceCapacityReservationsOnly,
			CapacityReservationTarget:     &types.CapacityReservationTarget{CapacityReservationId: awssdk.String("cr-1")}}
	})
	available := func() int32 {
		out, err := w.ec2.DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{Filters: []types.Filter{filter("state", "active"), filter("tag:team", "a")}})
		w.must(err)
		if len(out.CapacityReservations) == 0 {
			return -1
		}
		return *out.CapacityReservations[0].AvailableInstanceCount
	}
	in := w.fleet(2, "on-demand", []string{"g5.xlarge"}, []string{zoneA})
	out := w.createFleet(in)
	ids, _ := launched(out)
	if len(ids) != 1 || !slices.Equal(refusals(out), []string{"ReservationCapacityExceeded g5.xlarge/" + zoneA}) || available() != 0 {
		t.Fatalf("launched %v, refused %v, %d left", ids, refusals(out), available())
	}
	described, err := w.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: ids})
	w.must(err)
	i := described.Reservations[0].Instances[0]
	if *i.CapacityReservationId != "cr-1" || i.CapacityReservationSpecification.CapacityReservationPreference != "capacity-reservations-only" || i.SpotInstanceRequestId != nil {
		t.Errorf("the reserved instance is %+v", i)
	}
	w.must(w.Terminate(ids[0]))
	if available() != 1 {
		t.Errorf("%d left after the end of the instance, want 1", available())
	}
	w.clock.Step(2 * time.Hour)
	if available() != -1 {
		t.Error("an expired reservation is active")
	}
	_, err = w.ec2.DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{"cr-9"}})
	if w.code(err) != "InvalidCapacityReservationId.NotFound" {
		t.Error(err)
	}
}
