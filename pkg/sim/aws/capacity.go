package aws

import (
	"fmt"
	"slices"
)

// pool is one place where a fleet may launch: a type in a zone at a capacity type.
type pool struct {
	instanceType, zone, capacityType string
	reservationID                    string // of a launch into a named reservation
	subnetID                         string
}

// unlimited is the room of a pool that nothing limits.
const unlimited = 1 << 30

// limit is the room that one rule leaves in a pool and the error of asking for more.
type limit struct {
	left int
	err  *apiError
}

// room is how many more instances a pool takes and the error of one more: that of the
// tightest rule, the earlier of two equals.
func (s *Server) room(p pool) (int, *apiError) {
	tightest := limit{left: unlimited}
	rules := slices.Concat(s.reservationLimits(p), s.faultLimits(p), s.quotaLimits(p), []limit{{s.freeAddresses(p.subnetID),
		newError("InsufficientFreeAddressesInSubnet",
			"There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", p.subnetID)}})
	for _, rule := range rules {
		if rule.left < tightest.left {
			tightest = rule
		}
	}
	return max(tightest.left, 0), tightest.err
}

func (s *Server) reservationLimits(p pool) []limit {
	if p.capacityType != Reserved {
		return nil
	}
	r := s.st.Reservations[p.reservationID]
	if r == nil || s.reservationState(r) != "active" || r.InstanceType != p.instanceType || r.Zone != p.zone {
		return []limit{{0, newError("InvalidCapacityReservationId.NotFound",
			"The capacity reservation '%s' does not exist or does not match.", p.reservationID)}}
	}
	return []limit{{r.Count - s.reservationUsed(r.ID), newError("ReservationCapacityExceeded",
		"The requested reservation does not have sufficient compatible and available capacity for this request.")}}
}

func (s *Server) faultLimits(p pool) (out []limit) {
	now := s.opts.Clock.Now()
	for _, f := range s.st.Faults {
		if f.Kind == CapacityFault && !f.over(now) && f.matches(p.instanceType, p.zone, p.capacityType) {
			out = append(out, limit{f.Left - s.admitted(f), s.iceError(f, p)})
		}
	}
	return out
}

func (s *Server) quotaLimits(p pool) (out []limit) {
	for _, q := range s.opts.Quotas {
		if q.CapacityType == quotaClass(p.capacityType) && matchOr(q.InstanceTypes, p.instanceType) {
			out = append(out, limit{(q.VCPUs - s.vcpus(q)) / s.types[p.instanceType].VCPU, quotaError(q)})
		}
	}
	return out
}

// admitted counts the live instances that a capacity fault let in.
func (s *Server) admitted(f *Fault) int {
	n := 0
	for _, i := range s.st.Instances {
		if i.live() && slices.Contains(i.CapacityFault, f.ID) {
			n++
		}
	}
	return n
}

// admit writes down the capacity faults that the instance now counts against.
func (s *Server) admit(i *Instance) {
	now := s.opts.Clock.Now()
	for _, f := range s.st.Faults {
		if f.Kind == CapacityFault && !f.over(now) && f.matches(i.Type, i.Zone, i.CapacityType) {
			i.CapacityFault = append(i.CapacityFault, f.ID)
		}
	}
}

// release gives back what an instance held. Its state alone frees everything else.
func (s *Server) release(i *Instance) { i.CapacityFault = nil }

func (s *Server) iceError(f *Fault, p pool) *apiError {
	if f.Code != "" {
		message := f.Message
		set(&message, "The simulator was told to answer this.")
		return newError(f.Code, "%s", message)
	}
	if p.capacityType == Spot {
		return newError("InsufficientInstanceCapacity", "There is no Spot capacity available that matches your request.")
	}
	if p.capacityType == Reserved {
		return newError("ReservationCapacityExceeded",
			"The requested reservation does not have sufficient compatible and available capacity for this request.")
	}
	return newError("InsufficientInstanceCapacity", "We currently do not have sufficient %s capacity in the Availability Zone you requested (%s). "+
		"Our system will be working on provisioning additional capacity.", p.instanceType, p.zone)
}

func quotaError(q Quota) *apiError {
	if q.CapacityType == Spot {
		return newError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
	}
	return newError("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of %d allows "+
		"for the instance bucket that the specified instance type belongs to.", q.VCPUs)
}

// quotaClass is the quota that a capacity type counts against; reserved capacity is
// bought on demand.
func quotaClass(capacityType string) string {
	if capacityType == Spot {
		return Spot
	}
	return OnDemand
}

func (s *Server) vcpus(q Quota) int {
	n := 0
	for _, i := range s.st.Instances {
		if i.live() && quotaClass(i.CapacityType) == q.CapacityType && matchOr(q.InstanceTypes, i.Type) {
			n += s.types[i.Type].VCPU
		}
	}
	return n
}

// launchFault is the error that a launch fault puts in place of a launch.
func (s *Server) launchFault(p pool) *apiError {
	f := s.strike(LaunchFault, func(f *Fault) bool { return f.matches(p.instanceType, p.zone, p.capacityType) })
	if f == nil {
		return nil
	}
	message := f.Message
	set(&message, fmt.Sprintf("The simulator was told to refuse %s in %s.", p.instanceType, p.zone))
	return newError(f.Code, "%s", message)
}
