package stack

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

// Fail begins a failure of the cloud.
func (s *Stack) Fail(_ context.Context, f scenario.Failure) error {
	id, err := s.cloud.AddFault(faultOf(f))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[f.String()] = id
	return nil
}

// Heal ends a failure that Fail began with the same words.
func (s *Stack) Heal(_ context.Context, f scenario.Failure) error {
	s.mu.Lock()
	id, ok := s.faults[f.String()]
	delete(s.faults, f.String())
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("healing the %s, no earlier step made exactly that fail", f)
	}
	return s.cloud.ClearFault(id)
}

func faultOf(f scenario.Failure) aws.Fault {
	switch {
	case f.Capacity != nil:
		return aws.Fault{Kind: aws.CapacityFault, Pool: poolOf(f.Capacity)}
	case f.Quota != nil:
		code := "VcpuLimitExceeded"
		if f.Quota.CapacityType == aws.Spot {
			code = "MaxSpotInstanceCountExceeded"
		}
		return aws.Fault{Kind: aws.CapacityFault, Pool: poolOf(f.Quota), Code: code, Message: "The account may not launch more."}
	case f.Throttle != nil:
		return aws.Fault{Kind: aws.APIFault, Operation: operation(f.Throttle), Count: f.Throttle.Count, Code: "RequestLimitExceeded"}
	}
	return aws.Fault{Kind: aws.APIFault, Operation: operation(f.Launch), Count: f.Launch.Count, Code: "InternalError"}
}

func poolOf(o *scenario.Offering) aws.Pool {
	return aws.Pool{InstanceType: o.InstanceType, Zone: o.Zone, CapacityType: o.CapacityType}
}

func operation(f *scenario.APIFault) string { return cmp.Or(f.Operation, "CreateFleet") }

// Interrupt warns spot instances.
func (s *Stack) Interrupt(_ context.Context, t scenario.Targets) (int, error) {
	t.CapacityType = aws.Spot
	return s.hit(t, s.cloud.Interrupt)
}

// Kill lets machines die: EC2 goes on to call them running, but they are silent.
func (s *Stack) Kill(_ context.Context, t scenario.Targets) (int, error) {
	return s.hit(t, s.cloud.Fail)
}

// Reboot restarts machines from within: their nodes come back with another boot ID.
func (s *Stack) Reboot(_ context.Context, t scenario.Targets) (int, error) {
	return s.hit(t, s.cloud.Reboot)
}

func (s *Stack) hit(t scenario.Targets, strike func(id string) error) (int, error) {
	n := 0
	for _, i := range s.running() {
		if t.Count > 0 && n == t.Count {
			break
		}
		if !i.Matches(t.Offering) {
			continue
		}
		if err := strike(i.ID); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (s *Stack) running() []scenario.Instance {
	var live []scenario.Instance
	for _, i := range s.account(nil).Instances {
		if i.End.IsZero() {
			live = append(live, i)
		}
	}
	slices.SortFunc(live, func(a, b scenario.Instance) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID))
	})
	return live
}

// account is the simulator's report in the engine's terms. existing is what the cluster owns; nil
// leaves orphans out.
func (s *Stack) account(existing *aws.Existing) scenario.Cloud {
	report := s.cloud.Report(existing)
	cloud := scenario.Cloud{Orphans: report.Orphans}
	for _, i := range report.Instances {
		cloud.Instances = append(cloud.Instances, scenario.Instance{
			ID: i.ID, Type: i.Type, Zone: i.Zone, CapacityType: i.CapacityType, Price: i.PricePerHour, Start: i.LaunchedAt, End: end(i),
		})
	}
	for _, d := range report.DoubleLaunches {
		cloud.DoubleLaunches = append(cloud.DoubleLaunches, fmt.Sprintf("%s: %v", d.NodeClaim, d.Instances))
	}
	return cloud
}

func end(i aws.InstanceReport) time.Time {
	switch {
	case i.ShutdownAt != nil:
		return *i.ShutdownAt
	case i.TerminatedAt != nil:
		return *i.TerminatedAt
	}
	return time.Time{}
}
