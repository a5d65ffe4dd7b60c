package aws

import (
	"cmp"
	"slices"
	"time"
)

// allocate launches up to target instances from the candidates in the order of the
// fleet's allocation strategy. A pool that refuses is left with one error.
func (s *Server) allocate(p *params, out *createFleetResponse, candidates []*candidate, target int) {
	s.rank(p, candidates, target)
	for _, c := range candidates {
		if target == 0 {
			return
		}
		ids, refused := s.fillFrom(c, p.tagsFor("instance"), out.FleetID, target)
		target -= len(ids)
		if len(ids) > 0 {
			out.Instances = append(out.Instances, fleetInstanceXML{
				Source: c.launched(s, ids[0]), Lifecycle: c.lifecycle(), IDs: ids, Type: c.instanceType})
		}
		if refused != nil {
			out.Errors = append(out.Errors, c.failure(refused))
		}
	}
}

func (s *Server) fillFrom(c *candidate, tags map[string]string, fleet string, target int) (ids []string, refused *apiError) {
	for range target {
		if left, limit := s.room(c.pool); left == 0 {
			return ids, limit
		}
		if err := s.launchFault(c.pool); err != nil {
			return ids, err
		}
		ids = append(ids, s.launch(c, tags, fleet).ID)
	}
	return ids, nil
}

// launched is the override of the answer, completed with what the instance got.
func (c *candidate) launched(s *Server, id string) templateAndOverrideXML {
	i, out := s.st.Instances[id], c.source
	out.Override.Zone, out.Override.ImageID = i.Zone, i.ImageID
	if out.Override.SubnetID == "" && c.template.Data.SubnetID == "" {
		out.Override.SubnetID = i.SubnetID
	}
	return out
}

// rank orders candidates by the allocation strategy of the request:
//   - lowest-price: by price.
//   - prioritized: by priority, then price.
//   - price-capacity-optimized: pools that hold the whole target first, then by price.
//   - capacity-optimized: the pools with most room first, then by price.
//   - capacity-optimized-prioritized: as price-capacity-optimized with priority for price.
//
// Between equals the zone with the fewest live instances comes first, then names.
func (s *Server) rank(p *params, candidates []*candidate, target int) {
	strategy := p.str("OnDemandOptions.AllocationStrategy")
	if p.str("TargetCapacitySpecification.DefaultTargetCapacityType") == Spot {
		strategy = p.str("SpotOptions.AllocationStrategy")
	}
	inZone := map[string]int{}
	for _, i := range s.st.Instances {
		if i.live() {
			inZone[i.Zone]++
		}
	}
	shortage := map[*candidate]int{}
	for _, c := range candidates {
		left, _ := s.room(c.pool)
		switch strategy {
		case "price-capacity-optimized", "capacity-optimized-prioritized":
			shortage[c] = max(target-left, 0)
		case "capacity-optimized":
			shortage[c] = -left
		}
	}
	prioritized := strategy == "prioritized" || strategy == "capacity-optimized-prioritized"
	slices.SortStableFunc(candidates, func(a, b *candidate) int {
		byPriority := 0
		if prioritized {
			byPriority = cmp.Compare(a.priority, b.priority)
		}
		return cmp.Or(
			cmp.Compare(shortage[a], shortage[b]),
			byPriority,
			cmp.Compare(s.price(a.instanceType, a.zone, a.capacityType), s.price(b.instanceType, b.zone, b.capacityType)),
			cmp.Compare(inZone[a.zone], inZone[b.zone]),
			cmp.Compare(a.zone, b.zone),
			cmp.Compare(a.instanceType, b.instanceType),
			cmp.Compare(a.order, b.order),
		)
	})
}

// launch makes an instance of a candidate that has room.
func (s *Server) launch(c *candidate, tags map[string]string, fleet string) *Instance {
	now := s.opts.Clock.Now()
	net, _ := s.subnet(func(n subnet) bool { return n.id == c.subnetID })
	id := s.id("i-")
	boot := s.bootTime(c.pool, now)
	i := &Instance{
		ID: id, Type: c.instanceType, Zone: c.zone, ZoneID: net.zoneID, Region: s.opts.Region,
		CapacityType: c.capacityType, Preference: c.template.Data.Preference, Tenancy: c.template.Data.Tenancy,
		SubnetID: c.subnetID, GroupIDs: c.template.Data.GroupIDs, EFAs: c.template.Data.EFAs,
		ImageID: c.source.Override.ImageID, FleetID: fleet, TemplateID: c.template.ID, Tags: map[string]string{},
		PricePerHour: s.price(c.instanceType, c.zone, c.capacityType),
		State:        Pending, LaunchedAt: now, RunningAt: now.Add(startingUp), BootAt: boot,
	}
	set(&i.ImageID, c.template.Data.ImageID)
	set(&i.Tenancy, "default")
	if boot != nil && boot.Before(i.RunningAt) {
		i.RunningAt = *boot
	}
	for k, v := range tags {
		i.Tags[k] = v
	}
	i.Tags["aws:ec2:fleet-id"] = fleet
	i.Tags["aws:ec2launchtemplate:id"] = c.template.ID
	i.Tags["aws:ec2launchtemplate:version"] = "1"
	i.PrivateIP, i.PrivateDNS = s.address(net)
	switch {
	case c.capacityType == Reserved:
		i.ReservationID = c.reservationID
	case c.capacityType == OnDemand && c.template.Data.Preference != "none":
		i.ReservationID = s.openReservation(c.instanceType, c.zone)
	}
	s.admit(i)
	s.st.Instances[id] = i
	s.publishState(i)
	return i
}

// bootTime is when the kubelet registers, nil for an instance that never gets there.
func (s *Server) bootTime(p pool, launched time.Time) *time.Time {
	delay := s.opts.BootDelay.sample(s.opts.Seed, s.st.Counter)
	f := s.strike(BootFault, func(f *Fault) bool { return f.matches(p.instanceType, p.zone, p.capacityType) })
	if f != nil {
		delay = time.Duration(f.Delay)
	}
	if f != nil && f.Never {
		return nil
	}
	at := launched.Add(max(delay, 0))
	return &at
}
