package aws

import (
	"slices"
	"strings"
)

type stateChangeXML struct {
	ID       string   `xml:"instanceId"`
	Current  stateXML `xml:"currentState"`
	Previous stateXML `xml:"previousState"`
}

type terminateInstancesResponse struct {
	envelope
	Instances []stateChangeXML `xml:"instancesSet>item"`
}

// terminateInstances ends instances; as with EC2, ending one twice is fine and one
// unknown ID refuses the whole call.
func (s *Server) terminateInstances(p *params) (sealer, error) {
	ids := p.strings("InstanceId")
	if len(ids) == 0 {
		return nil, newError("MissingParameter", "The request must contain the parameter InstanceId")
	}
	items, err := s.requested(ids)
	if err != nil {
		return nil, err
	}
	out := &terminateInstancesResponse{}
	for _, i := range items {
		previous := i.State
		if i.live() {
			s.shutdown(i, ReasonUser)
		}
		out.Instances = append(out.Instances, stateChangeXML{ID: i.ID, Previous: toState(previous), Current: toState(i.State)})
	}
	return out, nil
}

type returnResponse struct {
	envelope
	Return bool `xml:"return"`
}

// rebootInstances restarts machines, and revives one that has failed, as a reboot often
// does: its kubelet comes back after the boot delay, with another boot ID.
func (s *Server) rebootInstances(p *params) (sealer, error) {
	items, err := s.requested(p.strings("InstanceId"))
	if err != nil {
		return nil, err
	}
	for _, i := range items {
		if i.live() {
			s.restart(i)
		}
	}
	return &returnResponse{Return: true}, nil
}

// runInstances exists for its dry run, which Karpenter uses to check permissions.
func (s *Server) runInstances(*params) (sealer, error) {
	return nil, newError("UnsupportedOperation", "The simulator launches instances through CreateFleet alone.")
}

// createTags tags instances and launch templates. Keys of AWS's own cannot be set.
func (s *Server) createTags(p *params) (sealer, error) {
	tags, resources := p.tags("Tag"), p.strings("ResourceId")
	if len(tags) == 0 || len(resources) == 0 {
		return nil, newError("MissingParameter", "The request must contain the parameters ResourceId and Tag")
	}
	for key := range tags {
		if strings.HasPrefix(key, "aws:") {
			return nil, newError("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use: %s", key)
		}
	}
	targets := []map[string]string{}
	for _, id := range resources {
		target, err := s.tagged(id)
		if err != nil {
			return nil, err
		}
		targets = append(targets, target)
	}
	for _, target := range targets {
		for k, v := range tags {
			target[k] = v
		}
	}
	return &returnResponse{Return: true}, nil
}

func (s *Server) tagged(id string) (map[string]string, error) {
	kind, _, _ := strings.Cut(id, "-")
	switch kind {
	case "i":
		items, err := s.requested([]string{id})
		if err != nil {
			return nil, err
		}
		return items[0].Tags, nil
	case "lt":
		if t := s.template(id, ""); t != nil {
			return t.Tags, nil
		}
		return nil, newError("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
	default:
		return nil, newError("InvalidID", "The ID '%s' is not of an instance or a launch template", id)
	}
}

type statusDetailXML struct {
	Name     string `xml:"name"`
	Status   string `xml:"status"`
	Impaired string `xml:"impairedSince,omitempty"`
}

type statusSummaryXML struct {
	Status  string            `xml:"status"`
	Details []statusDetailXML `xml:"details>item"`
}

type instanceStatusXML struct {
	ID       string           `xml:"instanceId"`
	Zone     string           `xml:"availabilityZone"`
	State    stateXML         `xml:"instanceState"`
	Instance statusSummaryXML `xml:"instanceStatus"`
	System   statusSummaryXML `xml:"systemStatus"`
}

type describeInstanceStatusResponse struct {
	envelope
	Statuses  []instanceStatusXML `xml:"instanceStatusSet>item"`
	NextToken string              `xml:"nextToken,omitempty"`
}

func checks(i *Instance) statusSummaryXML {
	if i.FailedAt == nil {
		return statusSummaryXML{Status: "ok", Details: []statusDetailXML{{Name: "reachability", Status: "passed"}}}
	}
	return statusSummaryXML{Status: "impaired", Details: []statusDetailXML{
		{Name: "reachability", Status: "failed", Impaired: timestamp(*i.FailedAt)}}}
}

func (s *Server) describeInstanceStatus(p *params) (sealer, error) {
	items, err := s.requested(p.strings("InstanceId"))
	if err != nil {
		return nil, err
	}
	if !p.bool("IncludeAllInstances") {
		items = slices.DeleteFunc(items, func(i *Instance) bool { return i.State != Running })
	}
	items, err = filtered(p, items, fields(func(i *Instance) map[string]string {
		return map[string]string{"instance-status.status": checks(i).Status, "system-status.status": checks(i).Status,
			"event.code": "", "availability-zone": i.Zone, "instance-state-name": i.State}
	}))
	if err != nil {
		return nil, err
	}
	items, next, err := page(p, items)
	out := &describeInstanceStatusResponse{NextToken: next}
	for _, i := range items {
		out.Statuses = append(out.Statuses, instanceStatusXML{ID: i.ID, Zone: i.Zone, State: toState(i.State), Instance: checks(i), System: checks(i)})
	}
	return out, err
}
