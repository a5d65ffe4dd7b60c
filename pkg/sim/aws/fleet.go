package aws

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"
)

// token is what a client token has done, for repeated requests with it.
type token struct {
	At       time.Time       `json:"at"`
	Request  string          `json:"request"`
	Response json.RawMessage `json:"response"`
}

// tokenLife is how long a client token is remembered.
const tokenLife = 48 * time.Hour

type overrideXML struct {
	Type     string `xml:"instanceType" json:"type"`
	SubnetID string `xml:"subnetId,omitempty" json:"subnetID,omitempty"`
	Zone     string `xml:"availabilityZone,omitempty" json:"zone,omitempty"`
	ImageID  string `xml:"imageId,omitempty" json:"imageID,omitempty"`
	Priority string `xml:"priority,omitempty" json:"priority,omitempty"`
}

type templateRefXML struct {
	ID      string `xml:"launchTemplateId" json:"id"`
	Name    string `xml:"launchTemplateName,omitempty" json:"name,omitempty"`
	Version string `xml:"version" json:"version"`
}

type templateAndOverrideXML struct {
	Template templateRefXML `xml:"launchTemplateSpecification" json:"template"`
	Override overrideXML    `xml:"overrides" json:"override"`
}

type fleetInstanceXML struct {
	Source    templateAndOverrideXML `xml:"launchTemplateAndOverrides" json:"source"`
	Lifecycle string                 `xml:"lifecycle" json:"lifecycle"`
	IDs       []string               `xml:"instanceIds>item" json:"ids"`
	Type      string                 `xml:"instanceType" json:"type"`
}

type fleetErrorXML struct {
	Source    templateAndOverrideXML `xml:"launchTemplateAndOverrides" json:"source"`
	Lifecycle string                 `xml:"lifecycle" json:"lifecycle"`
	Code      string                 `xml:"errorCode" json:"code"`
	Message   string                 `xml:"errorMessage" json:"message"`
}

type createFleetResponse struct {
	envelope  `json:"-"`
	FleetID   string             `xml:"fleetId" json:"fleetID"`
	Errors    []fleetErrorXML    `xml:"errorSet>item" json:"errors"`
	Instances []fleetInstanceXML `xml:"fleetInstanceSet>item" json:"instances"`
}

// createFleet launches an instant fleet: all that fits now, errors for the rest.
func (s *Server) createFleet(p *params) (sealer, error) {
	if kind := p.str("Type"); kind != "instant" {
		return nil, newError("UnsupportedOperation", "The simulator launches fleets of type instant, not '%s'.", kind)
	}
	target := p.int("TargetCapacitySpecification.TotalTargetCapacity", 0)
	if target < 1 || target > 1000 {
		return nil, newError("InvalidParameterValue", "TotalTargetCapacity %d is not between 1 and 1000", target)
	}
	key, request := p.str("ClientToken"), p.fingerprint()
	if seen, err := s.replay(key, request); seen != nil || err != nil {
		return seen, err
	}
	candidates, failed, err := s.candidates(p)
	if err != nil {
		return nil, err
	}
	out := &createFleetResponse{FleetID: "fleet-" + s.id(""), Errors: failed}
	s.allocate(p, out, candidates, target)
	for _, e := range out.Errors {
		s.st.LaunchErrors[e.Code]++
	}
	return out, s.remember(key, request, out)
}

// replay answers a client token that has been used.
func (s *Server) replay(key, request string) (sealer, error) {
	t := s.st.Tokens[key]
	if key == "" || t == nil {
		return nil, nil
	}
	if t.Request != request {
		return nil, newError("IdempotentParameterMismatch", "The client token '%s' was used before with other parameters.", key)
	}
	out := &createFleetResponse{}
	if err := json.Unmarshal(t.Response, out); err != nil {
		return nil, fmt.Errorf("reading the answer to a client token, %w", err)
	}
	return out, nil
}

func (s *Server) remember(key, request string, out *createFleetResponse) error {
	if key == "" {
		return nil
	}
	now := s.opts.Clock.Now()
	for k, t := range s.st.Tokens {
		if now.Sub(t.At) > tokenLife {
			delete(s.st.Tokens, k)
		}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("keeping the answer to a client token, %w", err)
	}
	s.st.Tokens[key] = &token{At: now, Request: request, Response: raw}
	return nil
}

// fingerprint is the same for requests with the same parameters.
func (p *params) fingerprint() string {
	flat := url.Values{}
	p.flatten("", flat)
	return hash17(flat.Encode())
}

func (p *params) flatten(prefix string, into url.Values) {
	if p.value != "" {
		into.Set(prefix, p.value)
	}
	for key, kid := range p.kids {
		kid.flatten(prefix+"."+key, into)
	}
}

// candidate is an override of the request that names a pool which exists.
type candidate struct {
	pool
	template *launchTemplate
	source   templateAndOverrideXML
	priority float64
	order    int
}

func (s *Server) candidates(p *params) ([]*candidate, []fleetErrorXML, error) {
	var out []*candidate
	var failed []fleetErrorXML
	for _, config := range p.list("LaunchTemplateConfigs") {
		spec := config.at("LaunchTemplateSpecification")
		t, err := s.requireTemplate(spec)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range config.list("Overrides") {
			c, refused := s.candidate(p, t, spec, o)
			if refused != nil {
				failed = append(failed, c.failure(refused))
				continue
			}
			c.order = len(out)
			out = append(out, c)
		}
	}
	if len(out)+len(failed) == 0 {
		return nil, nil, newError("InvalidParameterValue", "The request names no instance type, add an override")
	}
	return out, failed, nil
}

// candidate reads one override. The candidate is set even where it is refused.
func (s *Server) candidate(p *params, t *launchTemplate, spec, o *params) (*candidate, *apiError) {
	c := &candidate{template: t, priority: o.float("Priority")}
	c.instanceType = o.str("InstanceType")
	c.capacityType = requestedCapacityType(p, t)
	c.reservationID = t.Data.ReservationID
	c.subnetID = o.str("SubnetId")
	if c.subnetID == "" {
		c.subnetID = t.Data.SubnetID
	}
	zone := o.str("AvailabilityZone")
	c.source = templateAndOverrideXML{
		Template: templateRefXML{ID: t.ID, Name: spec.str("LaunchTemplateName"), Version: "1"},
		Override: overrideXML{Type: c.instanceType, SubnetID: o.str("SubnetId"), Zone: zone, ImageID: o.str("ImageId"), Priority: o.str("Priority")},
	}
	net, ok := s.subnet(func(n subnet) bool {
		return n.id == c.subnetID || c.subnetID == "" && (n.zone == zone || zone == "")
	})
	if !ok {
		return c, newError("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", c.subnetID)
	}
	c.subnetID, c.zone = net.id, net.zone
	if _, known := s.types[c.instanceType]; !known {
		return c, newError("InvalidParameterValue", "Invalid value '%s' for InstanceType.", c.instanceType)
	}
	if !s.offered(c.instanceType, c.zone) {
		return c, newError("Unsupported", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s).", c.instanceType, c.zone)
	}
	return c, nil
}

// requestedCapacityType is spot or on-demand by the target, reserved where the launch
// template accepts nothing but a reservation.
func requestedCapacityType(p *params, t *launchTemplate) string {
	if p.str("TargetCapacitySpecification.DefaultTargetCapacityType") == Spot {
		return Spot
	}
	if t.Data.Preference == "capacity-reservations-only" {
		return Reserved
	}
	return OnDemand
}

func (c *candidate) lifecycle() string {
	if c.capacityType == Spot {
		return Spot
	}
	return OnDemand
}

func (c *candidate) failure(e *apiError) fleetErrorXML {
	return fleetErrorXML{Source: c.source, Lifecycle: c.lifecycle(), Code: e.Code, Message: e.Message}
}
