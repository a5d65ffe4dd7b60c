package aws

import (
	"encoding/base64"
	"slices"
	"time"
)

// TemplateData is the part of a launch template that shapes an instance.
type TemplateData struct {
	ImageID         string   `json:"imageID"`
	UserData        string   `json:"userData"` // base64, as the API carries it
	InstanceProfile string   `json:"instanceProfile,omitempty"`
	GroupIDs        []string `json:"groupIDs,omitempty"`
	SubnetID        string   `json:"subnetID,omitempty"`
	EFAs            int      `json:"efas,omitempty"`
	Tenancy         string   `json:"tenancy,omitempty"`
	Preference      string   `json:"preference,omitempty"` // of capacity reservations
	ReservationID   string   `json:"reservationID,omitempty"`
	VolumeGiB       int      `json:"volumeGiB,omitempty"` // of the largest EBS volume, 0 if not said
}

// Script is the decoded user data.
func (t TemplateData) Script() (string, error) {
	raw, err := base64.StdEncoding.DecodeString(t.UserData)
	return string(raw), err
}

// maxUserData is EC2's limit for decoded user data.
const maxUserData = 16384

type launchTemplate struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	CreatedAt time.Time         `json:"createdAt"`
	Deleted   bool              `json:"deleted,omitempty"` // kept for the instances made from it
	Tags      map[string]string `json:"tags"`
	Data      TemplateData      `json:"data"`
}

type launchTemplateXML struct {
	ID      string `xml:"launchTemplateId"`
	Name    string `xml:"launchTemplateName"`
	Created string `xml:"createTime"`
	Creator string `xml:"createdBy"`
	Default int    `xml:"defaultVersionNumber"`
	Latest  int    `xml:"latestVersionNumber"`
	Tags    []tag  `xml:"tagSet>item"`
}

type launchTemplateResponse struct {
	envelope
	Template launchTemplateXML `xml:"launchTemplate"`
}

type describeLaunchTemplatesResponse struct {
	envelope
	Templates []launchTemplateXML `xml:"launchTemplates>item"`
	NextToken string              `xml:"nextToken,omitempty"`
}

func (s *Server) templateXML(t *launchTemplate) launchTemplateXML {
	return launchTemplateXML{ID: t.ID, Name: t.Name, Created: timestamp(t.CreatedAt), Default: 1, Latest: 1,
		Creator: "arn:aws:iam::" + s.opts.AccountID + ":user/karpenter", Tags: tagSet(t.Tags)}
}

func (s *Server) createLaunchTemplate(p *params) (sealer, error) {
	name := p.str("LaunchTemplateName")
	if name == "" {
		return nil, newError("MissingParameter", "The request must contain the parameter LaunchTemplateName")
	}
	if s.template("", name) != nil {
		return nil, newError("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
	}
	data, err := readTemplate(p.at("LaunchTemplateData"))
	if err != nil {
		return nil, err
	}
	t := &launchTemplate{ID: s.id("lt-"), Name: name, CreatedAt: s.opts.Clock.Now(),
		Tags: p.tagsFor("launch-template"), Data: data}
	s.st.Templates[t.ID] = t
	return &launchTemplateResponse{Template: s.templateXML(t)}, nil
}

func readTemplate(p *params) (TemplateData, error) {
	data := TemplateData{
		ImageID:         p.str("ImageId"),
		UserData:        p.str("UserData"),
		InstanceProfile: p.str("IamInstanceProfile.Name"),
		GroupIDs:        p.strings("SecurityGroupId"),
		Tenancy:         p.str("Placement.Tenancy"),
		Preference:      p.str("CapacityReservationSpecification.CapacityReservationPreference"),
		ReservationID:   p.str("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"),
	}
	script, err := data.Script()
	if err != nil {
		return data, newError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	if len(script) > maxUserData {
		return data, newError("InvalidUserData.Malformed", "User data is limited to %d bytes", maxUserData)
	}
	for _, nic := range p.list("NetworkInterface") {
		data.GroupIDs = append(data.GroupIDs, nic.strings("SecurityGroupId")...)
		if subnet := nic.str("SubnetId"); subnet != "" {
			data.SubnetID = subnet
		}
		if kind := nic.str("InterfaceType"); kind == "efa" || kind == "efa-only" {
			data.EFAs++
		}
	}
	slices.Sort(data.GroupIDs)
	data.GroupIDs = slices.Compact(data.GroupIDs)
	for _, volume := range p.list("BlockDeviceMapping") {
		data.VolumeGiB = max(data.VolumeGiB, volume.int("Ebs.VolumeSize", 0))
	}
	return data, nil
}

// template finds a template that is not deleted by ID, or by name where id is empty.
func (s *Server) template(id, name string) *launchTemplate {
	for _, t := range s.st.Templates {
		if !t.Deleted && (id != "" && t.ID == id || id == "" && t.Name == name) {
			return t
		}
	}
	return nil
}

// requireTemplate is template with EC2's error for one that does not exist.
func (s *Server) requireTemplate(p *params) (*launchTemplate, error) {
	id, name := p.str("LaunchTemplateId"), p.str("LaunchTemplateName")
	if t := s.template(id, name); t != nil {
		return t, nil
	}
	if id != "" {
		return nil, newError("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
	}
	return nil, newError("InvalidLaunchTemplateName.NotFoundException", "The specified launch template, with template name %s, does not exist.", name)
}

func (s *Server) deleteLaunchTemplate(p *params) (sealer, error) {
	t, err := s.requireTemplate(p)
	if err != nil {
		return nil, err
	}
	t.Deleted = true
	return &launchTemplateResponse{Template: s.templateXML(t)}, nil
}

func (s *Server) describeLaunchTemplates(p *params) (sealer, error) {
	var items []*launchTemplate
	names, ids := p.strings("LaunchTemplateName"), p.strings("LaunchTemplateId")
	for _, name := range names {
		t, err := s.requireTemplate(&params{kids: map[string]*params{"LaunchTemplateName": {value: name}}})
		if err != nil {
			return nil, err
		}
		items = append(items, t)
	}
	for _, id := range ids {
		t, err := s.requireTemplate(&params{kids: map[string]*params{"LaunchTemplateId": {value: id}}})
		if err != nil {
			return nil, err
		}
		items = append(items, t)
	}
	if len(names)+len(ids) == 0 {
		items = slices.DeleteFunc(sortedValues(s.st.Templates), func(t *launchTemplate) bool { return t.Deleted })
	}
	items, err := filtered(p, items, taggedValues(func(t *launchTemplate) map[string]string { return t.Tags },
		fields(func(t *launchTemplate) map[string]string {
			return map[string]string{"launch-template-name": t.Name, "create-time": timestamp(t.CreatedAt)}
		})))
	if err != nil {
		return nil, err
	}
	items, next, err := page(p, items)
	out := &describeLaunchTemplatesResponse{NextToken: next}
	for _, t := range items {
		out.Templates = append(out.Templates, s.templateXML(t))
	}
	return out, err
}
