package aws

import (
	"fmt"
	"slices"
	"time"
)

// Reservation is an on-demand capacity reservation.
type Reservation struct {
	// ID is made from the other fields where empty.
	ID           string `json:"id,omitempty"`
	InstanceType string `json:"instanceType"`
	Zone         string `json:"zone"`
	Count        int    `json:"count"`
	// Open lets any matching on-demand instance use it; otherwise only those that name it.
	Open bool              `json:"open,omitempty"`
	Tags map[string]string `json:"tags,omitempty"`
	// EndDate ends it; nil lasts until it is canceled.
	EndDate *time.Time `json:"endDate,omitempty"`
}

func (r Reservation) validate(o *Options) error {
	known := slices.ContainsFunc(o.InstanceTypes, func(t InstanceType) bool { return t.Name == r.InstanceType })
	switch {
	case !known:
		return fmt.Errorf("reservation of instanceType %q, there is no such type on offer", r.InstanceType)
	case !slices.Contains(o.Zones, r.Zone):
		return fmt.Errorf("reservation of %s in zone %q, use one of %v", r.InstanceType, r.Zone, o.Zones)
	case r.Count < 1:
		return fmt.Errorf("reservation of %s in %s has count %d, use 1 or more", r.InstanceType, r.Zone, r.Count)
	}
	return nil
}

func (r *Reservation) complete(s *Server) {
	if r.ID == "" {
		r.ID = "cr-" + hash17(fmt.Sprintf("%s/%s/%d/%t", r.InstanceType, r.Zone, r.Count, r.Open))
	}
	if r.Tags == nil {
		r.Tags = map[string]string{"karpenter.sh/discovery": s.opts.ClusterName}
	}
}

// Reserve adds a reservation, or replaces the one with its ID, and returns its ID.
func (s *Server) Reserve(r Reservation) (string, error) {
	if err := r.validate(&s.opts); err != nil {
		return "", err
	}
	err := s.update(func() error {
		r.complete(s)
		s.st.Reservations[r.ID] = &r
		return nil
	})
	return r.ID, err
}

// CancelReservation removes a reservation. Instances in it run on.
func (s *Server) CancelReservation(id string) error {
	return s.update(func() error {
		if s.st.Reservations[id] == nil {
			return fmt.Errorf("reservation %q does not exist", id)
		}
		delete(s.st.Reservations, id)
		return nil
	})
}

func (s *Server) reservationUsed(id string) int {
	used := 0
	for _, i := range s.st.Instances {
		if i.ReservationID == id && i.live() {
			used++
		}
	}
	return used
}

func (s *Server) reservationState(r *Reservation) string {
	if reached(r.EndDate, s.opts.Clock.Now()) {
		return "expired"
	}
	return "active"
}

// openReservation is the first open reservation with room for an on-demand instance.
func (s *Server) openReservation(instanceType, zone string) string {
	for _, r := range sortedValues(s.st.Reservations) {
		if r.Open && r.InstanceType == instanceType && r.Zone == zone &&
			s.reservationState(r) == "active" && s.reservationUsed(r.ID) < r.Count {
			return r.ID
		}
	}
	return ""
}

type reservationXML struct {
	ID        string `xml:"capacityReservationId"`
	ARN       string `xml:"capacityReservationArn"`
	Owner     string `xml:"ownerId"`
	Type      string `xml:"instanceType"`
	Platform  string `xml:"instancePlatform"`
	Zone      string `xml:"availabilityZone"`
	ZoneID    string `xml:"availabilityZoneId"`
	Tenancy   string `xml:"tenancy"`
	Total     int    `xml:"totalInstanceCount"`
	Available int    `xml:"availableInstanceCount"`
	State     string `xml:"state"`
	StartDate string `xml:"startDate"`
	EndDate   string `xml:"endDate,omitempty"`
	EndType   string `xml:"endDateType"`
	Criteria  string `xml:"instanceMatchCriteria"`
	Kind      string `xml:"reservationType"`
	Tags      []tag  `xml:"tagSet>item"`
}

type describeCapacityReservationsResponse struct {
	envelope
	Reservations []reservationXML `xml:"capacityReservationSet>item"`
	NextToken    string           `xml:"nextToken,omitempty"`
}

func (r *Reservation) criteria() string {
	if r.Open {
		return "open"
	}
	return "targeted"
}

func (s *Server) describeCapacityReservations(p *params) (sealer, error) {
	ids := p.strings("CapacityReservationId")
	for _, id := range ids {
		if s.st.Reservations[id] == nil {
			return nil, newError("InvalidCapacityReservationId.NotFound", "The capacity reservation '%s' does not exist", id)
		}
	}
	items := slices.DeleteFunc(sortedValues(s.st.Reservations), func(r *Reservation) bool {
		return len(ids) > 0 && !slices.Contains(ids, r.ID)
	})
	items, err := filtered(p, items, taggedValues(func(r *Reservation) map[string]string { return r.Tags },
		fields(func(r *Reservation) map[string]string {
			return map[string]string{"state": s.reservationState(r), "owner-id": s.opts.AccountID, "instance-type": r.InstanceType,
				"availability-zone": r.Zone, "instance-match-criteria": r.criteria(), "tenancy": "default"}
		})))
	if err != nil {
		return nil, err
	}
	items, next, err := page(p, items)
	out := &describeCapacityReservationsResponse{NextToken: next}
	for _, r := range items {
		out.Reservations = append(out.Reservations, s.reservationXML(r))
	}
	return out, err
}

func (s *Server) reservationXML(r *Reservation) reservationXML {
	out := reservationXML{
		ID: r.ID, ARN: fmt.Sprintf("arn:aws:ec2:%s:%s:capacity-reservation/%s", s.opts.Region, s.opts.AccountID, r.ID),
		Owner: s.opts.AccountID, Type: r.InstanceType, Platform: "Linux/UNIX", Zone: r.Zone, ZoneID: zoneID(s.opts.Region, r.Zone),
		Tenancy: "default", Total: r.Count, Available: max(r.Count-s.reservationUsed(r.ID), 0), State: s.reservationState(r),
		StartDate: timestamp(s.st.StartedAt), EndType: "unlimited", Criteria: r.criteria(), Kind: "default", Tags: tagSet(r.Tags),
	}
	if r.EndDate != nil {
		out.EndDate, out.EndType = timestamp(*r.EndDate), "limited"
	}
	return out
}
