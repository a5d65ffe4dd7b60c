package scenario

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var origin = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func world() *Snapshot {
	return &Snapshot{
		Pods: []Pod{
			{Namespace: "default", Name: "a", Phase: "Running", Node: "n1", Labels: map[string]string{"app": "web"}},
			{Namespace: "default", Name: "b", Phase: "Pending", Labels: map[string]string{"app": "web"}, Waiting: "no node fits"},
			{Namespace: "other", Name: "c", Phase: "Succeeded", Node: "n2", Labels: map[string]string{"app": "job"}},
		},
		GonePods:  []Pod{{Namespace: "default", Name: "d", Phase: "Succeeded", Node: "n3", Labels: map[string]string{"app": "job"}}},
		GoneNodes: []Node{{Name: "n3", Labels: map[string]string{labelNodePool: "p"}}},
		Disrupted: []Pod{{Namespace: "default", Name: "x", Labels: map[string]string{"app": "web"}, Disruption: "PreemptionByScheduler"},
			{Namespace: "default", Name: "y", Labels: map[string]string{"app": "web"}, Disruption: "DeletionByTaintManager", LateTaint: true}},
		Nodes: []Node{
			{Name: "n1", Ready: true, Cordoned: true, Taints: []string{"team"}, Allocatable: map[string]int64{"nvidia.com/gpu": 8}, Labels: map[string]string{labelZone: "local"}},
			{Name: "n2", Allocatable: map[string]int64{"nvidia.com/gpu": 1}, Labels: map[string]string{
				labelNodePool: "p", labelInstanceType: "g5.xlarge", labelCapacityType: "spot", labelZone: "us-east-1a"}},
		},
		Unverified: []Pod{{Namespace: "default", Name: "a", Node: "n1"}},
		NodeClaims: []string{"p-1"},
		Events:     []Event{{Kind: "Pod", Name: "b", Reason: "FailedScheduling", Message: "0/2 nodes are available"}},
		Conditions: map[Ref][]Condition{{Kind: "NodePool", Name: "p"}: {{Type: "Ready", Status: "False", Reason: "NodeClassNotReady", Message: "no subnets"}}},
		Cloud: Cloud{
			Instances: []Instance{
				{ID: "i-1", Type: "g5.xlarge", Zone: "us-east-1a", CapacityType: "spot", Price: 0.4, Start: origin},
				{ID: "i-2", Type: "g5.2xlarge", Zone: "us-east-1b", CapacityType: "on-demand", Price: 1.2, Start: origin, End: origin.Add(time.Minute)},
			},
			Orphans: []string{"i-1"}, DoubleLaunches: []string{"p-1: [i-1 i-2]"},
		},
	}
}

func TestExpectations(t *testing.T) {
	no, yes, most := false, true, 0.3
	pool := Ref{Kind: "NodePool", Name: "p"}
	web := PodSelection{Selector: "app=web"}
	for name, tc := range map[string]struct {
		expect Expectations
		want   []string
	}{
		"all that holds": {expect: Expectations{
			Pods: []PodExpectation{
				{PodSelection: web, Count: *Exactly(2)},
				{PodSelection: PodSelection{Selector: "app=job"}, Phase: Phases{"Succeeded"}, OnNodes: labelNodePool + "=p", Gone: true, Count: *Exactly(2)},
				{PodSelection: PodSelection{Namespace: "other"}, Phase: Phases{"Succeeded"}, OnNodes: labelNodePool + "=p", Count: *Exactly(1)},
			},
			Nodes: []NodeExpectation{
				{Managed: &yes, InstanceType: "g5.xlarge", CapacityType: "spot", Zone: "us-east-1a", Ready: &no, Count: *Exactly(1)},
				{Managed: &no, Ready: &yes, Allocatable: map[string]int64{"nvidia.com/gpu": 8}, Count: *Exactly(1)},
				{Cordoned: &yes, Tainted: "team", Count: *Exactly(1)},
				{Cordoned: &no, Untainted: "team", Count: *Exactly(1)},
				{Tainted: "other", Count: *Exactly(0)},
			},
			Instances:    []InstanceExpectation{{Offering{CapacityType: "spot"}, *Exactly(1)}, {Offering{InstanceType: "g5.2xlarge"}, *Exactly(0)}},
			NodeClaims:   Exactly(1),
			Launches:     &Count{1, 2},
			PricePerHour: &Price{Min: 0.4},
			Events:       []EventExpectation{{Kind: "Pod", Reason: "FailedScheduling", Message: `^0/\d`}},
			Conditions:   []ConditionExpectation{{Ref: pool, Type: "Ready", Status: "False", Message: "subnet"}},
			NoEvictions:  &PodSelection{Selector: "app=job"},
		}},
		"pods, with the reason why one waits": {
			expect: Expectations{Pods: []PodExpectation{{PodSelection: web, Phase: Phases{"Running"}, Count: *Exactly(2)}}},
			want:   []string{"pods app=web Running: 1, want 2; a pod waits: no node fits"},
		},
		"pods on the wrong nodes": {
			expect: Expectations{Pods: []PodExpectation{{PodSelection: PodSelection{Selector: "app=job"}, OnNodes: labelZone + "=local", Count: *AtLeast(1)}}},
			want:   []string{"pods app=job topology.kubernetes.io/zone=local: 0, want >=1"},
		},
		"nodes": {
			expect: Expectations{Nodes: []NodeExpectation{{InstanceType: "p5.48xlarge", Count: *Exactly(1)}, {Managed: &yes, Allocatable: map[string]int64{"nvidia.com/gpu": 0}, Count: *Exactly(1)}}},
			want:   []string{"nodes p5.48xlarge: 0, want 1", "nodes: 0, want 1"},
		},
		"totals": {
			expect: Expectations{NodeClaims: Exactly(0), Launches: &Count{0, 1}, PricePerHour: &Price{Max: &most}, NoOrphans: true, NoDoubleLaunches: true, NoUnverifiedPods: true, NoEvictions: &PodSelection{}},
			want: []string{
				"NodeClaims: 1, want 0", "launches: 2, want <=1", "price per hour: $0.400, want $0.000 to $0.300",
				"orphans: 1, want none (i-1)", "double launches: 1, want none (p-1: [i-1 i-2])",
				"pods on unverified GPUs: 1, want none (default/a on n1)",
				"evictions: 1, want none (default/x PreemptionByScheduler)",
			},
		},
		"events that must not be": {
			expect: Expectations{Events: []EventExpectation{{Reason: "FailedScheduling", Count: Exactly(0)}}},
			want:   []string{"events FailedScheduling: 1, want 0"},
		},
		"conditions": {
			expect: Expectations{Conditions: []ConditionExpectation{
				{Ref: pool, Type: "Ready", Status: "True"}, {Ref: pool, Type: "Odd", Status: "True"}, {Ref: Ref{Kind: "NodePool", Name: "q"}, Type: "Ready", Status: "True"},
			}},
			want: []string{
				"NodePool p: Ready is False (NodeClassNotReady: no subnets), want True  ",
				"NodePool p has no condition Odd, want True",
				"NodePool q does not exist; apply it, or correct its name",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.expect.Check(world())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCostCountsSecondsAMinuteAtLeast(t *testing.T) {
	at := func(s int) time.Time { return origin.Add(time.Duration(s) * time.Second) }
	got := CostOf([]Instance{
		{ID: "c", Type: "big", CapacityType: "spot", Price: 36, Start: at(100), End: at(200)},
		{ID: "a", Type: "big", CapacityType: "spot", Price: 36, Start: at(0), End: at(100)},
		{ID: "b", Type: "big", CapacityType: "on-demand", Price: 60, Start: at(150), End: at(160)},
		{ID: "d", Type: "tiny", CapacityType: "spot", Price: 3.6, Start: at(200)},
	}, at(300))
	want := Cost{
		Total: 3.1, PeakPerHour: 96, PeakInstances: 2,
		Lines: []CostLine{
			{InstanceType: "big", CapacityType: "on-demand", Launches: 1, InstanceHours: 60.0 / 3600, PricePerHour: 60, Total: 1},
			{InstanceType: "big", CapacityType: "spot", Launches: 2, InstanceHours: 200.0 / 3600, PricePerHour: 36, Total: 2},
			{InstanceType: "tiny", CapacityType: "spot", Launches: 1, InstanceHours: 100.0 / 3600, PricePerHour: 3.6, Total: 0.1},
		},
	}
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Error(diff)
	}
}

func TestOwnedFleetIsWrittenOffAndPowered(t *testing.T) {
	f := PeakFleet{GPUs: 12, GPUsPerServer: 8, ServerPrice: 87600, Years: 10, KilowattsEach: 5, PricePerKWh: 0.2}
	if got := f.PerHour(); got != 4 {
		t.Errorf("got %v, want two servers at 1 and 1 dollar an hour", got)
	}
	if got := (PeakFleet{}).PerHour(); got != 0 {
		t.Errorf("the zero fleet costs %v", got)
	}
}
