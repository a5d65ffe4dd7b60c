package aws

import (
	"slices"
	"strings"
	"time"
)

// terminatedShown is how long EC2 goes on to describe a terminated instance.
const terminatedShown = time.Hour

type stateXML struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

func toState(name string) stateXML { return stateXML{Code: stateCode(name), Name: name} }

type placementXML struct {
	Zone    string `xml:"availabilityZone"`
	ZoneID  string `xml:"availabilityZoneId"`
	Tenancy string `xml:"tenancy"`
}

type reasonXML struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type interfaceXML struct {
	ID     string     `xml:"networkInterfaceId"`
	Subnet string     `xml:"subnetId"`
	VPC    string     `xml:"vpcId"`
	Status string     `xml:"status"`
	IP     string     `xml:"privateIpAddress,omitempty"`
	Kind   string     `xml:"interfaceType"`
	Groups []groupXML `xml:"groupSet>item"`
}

type preferenceXML struct {
	Preference string `xml:"capacityReservationPreference"`
	TargetID   string `xml:"capacityReservationTarget>capacityReservationId,omitempty"`
}

type instanceXML struct {
	ID            string         `xml:"instanceId"`
	ImageID       string         `xml:"imageId"`
	State         stateXML       `xml:"instanceState"`
	DNS           string         `xml:"privateDnsName"`
	Reason        string         `xml:"reason,omitempty"`
	StateReason   *reasonXML     `xml:"stateReason"`
	Type          string         `xml:"instanceType"`
	Launched      string         `xml:"launchTime"`
	Placement     placementXML   `xml:"placement"`
	Subnet        string         `xml:"subnetId"`
	VPC           string         `xml:"vpcId"`
	IP            string         `xml:"privateIpAddress"`
	Architecture  string         `xml:"architecture"`
	Lifecycle     string         `xml:"instanceLifecycle,omitempty"`
	SpotRequest   string         `xml:"spotInstanceRequestId,omitempty"`
	ReservationID string         `xml:"capacityReservationId,omitempty"`
	Preference    preferenceXML  `xml:"capacityReservationSpecification"`
	Groups        []groupXML     `xml:"groupSet>item"`
	Interfaces    []interfaceXML `xml:"networkInterfaceSet>item"`
	Tags          []tag          `xml:"tagSet>item"`
}

type reservationSetXML struct {
	ID        string        `xml:"reservationId"`
	Owner     string        `xml:"ownerId"`
	Instances []instanceXML `xml:"instancesSet>item"`
}

type describeInstancesResponse struct {
	envelope
	Reservations []reservationSetXML `xml:"reservationSet>item"`
	NextToken    string              `xml:"nextToken,omitempty"`
}

// requested are the instances that a call names, all that are shown where it names none.
func (s *Server) requested(ids []string) ([]*Instance, error) {
	now := s.opts.Clock.Now()
	shown := func(i *Instance) bool {
		return i != nil && (i.TerminatedAt == nil || now.Sub(*i.TerminatedAt) < terminatedShown)
	}
	var missing []string
	for _, id := range ids {
		if !shown(s.st.Instances[id]) {
			missing = append(missing, id)
		}
	}
	if len(missing) == 1 {
		return nil, newError("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", missing[0])
	}
	if len(missing) > 1 {
		return nil, newError("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(missing, ", "))
	}
	return slices.DeleteFunc(sortedValues(s.st.Instances), func(i *Instance) bool {
		return !shown(i) || len(ids) > 0 && !slices.Contains(ids, i.ID)
	}), nil
}

func (s *Server) describeInstances(p *params) (sealer, error) {
	items, err := s.requested(p.strings("InstanceId"))
	if err != nil {
		return nil, err
	}
	if items, err = filtered(p, items, s.instanceFilters()); err != nil {
		return nil, err
	}
	items, next, err := page(p, items)
	out := &describeInstancesResponse{NextToken: next}
	for _, i := range items {
		out.Reservations = append(out.Reservations, reservationSetXML{
			ID: "r-" + hash17(i.FleetID+i.ID), Owner: s.opts.AccountID, Instances: []instanceXML{s.instanceXML(i)}})
	}
	return out, err
}

func (s *Server) instanceFilters() filterValues[*Instance] {
	return taggedValues(func(i *Instance) map[string]string { return i.Tags },
		fields(func(i *Instance) map[string]string {
			return map[string]string{
				"instance-id": i.ID, "instance-type": i.Type, "instance-state-name": i.State, "image-id": i.ImageID,
				"instance-lifecycle": ec2Lifecycle(i), "availability-zone": i.Zone, "availability-zone-id": i.ZoneID,
				"subnet-id": i.SubnetID, "vpc-id": s.vpcID(), "private-dns-name": i.PrivateDNS, "private-ip-address": i.PrivateIP,
				"capacity-reservation-id": i.ReservationID, "tenancy": i.Tenancy,
			}
		}))
}

// ec2Lifecycle is "spot" or empty: EC2 has no lifecycle for on-demand instances.
func ec2Lifecycle(i *Instance) string {
	if i.CapacityType == Spot {
		return Spot
	}
	return ""
}

func (s *Server) instanceXML(i *Instance) instanceXML {
	out := instanceXML{
		ID: i.ID, ImageID: i.ImageID, State: toState(i.State), DNS: i.PrivateDNS, Type: i.Type, Launched: timestamp(i.LaunchedAt),
		Placement: placementXML{Zone: i.Zone, ZoneID: i.ZoneID, Tenancy: i.Tenancy},
		Subnet:    i.SubnetID, VPC: s.vpcID(), IP: i.PrivateIP, Architecture: s.types[i.Type].ec2Arch(),
		Lifecycle: ec2Lifecycle(i), ReservationID: i.ReservationID,
		Preference: preferenceXML{Preference: i.Preference}, Tags: tagSet(i.Tags),
	}
	set(&out.Preference.Preference, "open")
	if i.CapacityType == Reserved {
		out.Preference.TargetID = i.ReservationID
	}
	if i.CapacityType == Spot {
		out.SpotRequest = "sir-" + hash17(i.ID)[:8]
	}
	if i.Reason != "" {
		out.Reason, out.StateReason = i.Reason, &reasonXML{Code: i.Reason, Message: i.Reason}
	}
	for _, id := range i.GroupIDs {
		out.Groups = append(out.Groups, groupXML{ID: id, Name: s.groupName()})
	}
	out.Interfaces = s.interfaces(i, out.Groups)
	return out
}

func (s *Server) interfaces(i *Instance, groups []groupXML) []interfaceXML {
	out := make([]interfaceXML, 0, max(i.EFAs, 1))
	for n := range max(i.EFAs, 1) {
		nic := interfaceXML{ID: "eni-" + hash17(i.ID+string(rune('a'+n))), Subnet: i.SubnetID, VPC: s.vpcID(), Status: "in-use",
			Kind: "interface", Groups: groups}
		if i.EFAs > 0 {
			nic.Kind = "efa"
		}
		if n == 0 {
			nic.IP = i.PrivateIP
		}
		out = append(out, nic)
	}
	return out
}
