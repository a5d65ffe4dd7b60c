package aws

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Image is an AMI.
type Image struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Arch    string            `json:"arch"`            // amd64 or arm64
	Owner   string            `json:"owner,omitempty"` // "amazon" where empty
	Created string            `json:"created,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
}

func (i Image) ec2Arch() string { return InstanceType{Arch: i.Arch}.ec2Arch() }

func (i Image) created() string {
	if i.Created == "" {
		return "2026-07-01T00:00:00.000Z"
	}
	return i.Created
}

// Public parameters that name an AMI of EKS or Bottlerocket. AWS publishes one for
// each Kubernetes version, architecture and variant; the simulator has them all.
var (
	eksParameter          = regexp.MustCompile(`^/aws/service/eks/optimized-ami/1\.\d+/(amazon-linux-2023|amazon-linux-2|amazon-linux-2-gpu|amazon-linux-2-arm64)/.*image_id$`)
	bottlerocketParameter = regexp.MustCompile(`^/aws/service/bottlerocket/aws-k8s-1\.\d+(-nvidia)?/(x86_64|arm64)/[^/]+/image_id$`)
)

// publicImage is the AMI behind a public parameter.
func publicImage(parameter string) (Image, bool) {
	if !eksParameter.MatchString(parameter) && !bottlerocketParameter.MatchString(parameter) {
		return Image{}, false
	}
	image := Image{ID: "ami-" + hash17(parameter), Arch: "amd64"}
	if strings.Contains(parameter, "arm64") {
		image.Arch = "arm64"
	}
	name := strings.TrimSuffix(strings.TrimPrefix(parameter, "/aws/service/"), "/image_id")
	image.Name = strings.NewReplacer("/", "-").Replace(name)
	return image, true
}

type parameterRequest struct {
	Name string `json:"Name"`
}

// getParameter answers SSM and remembers the AMI, so that EC2 can describe it.
func (s *Server) getParameter(_ context.Context, body []byte) (any, error) {
	in := parameterRequest{}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, newError("SerializationException", "%s", err)
	}
	image, ok := publicImage(in.Name)
	if !ok {
		return nil, newError("ParameterNotFound", "Systems Manager parameter not found: %s", in.Name)
	}
	err := s.update(func() error {
		s.st.Images[image.ID] = &image
		return nil
	})
	return map[string]any{"Parameter": map[string]any{
		"Name": in.Name, "Type": "String", "Value": image.ID, "Version": 1,
		"ARN": "arn:aws:ssm:" + s.opts.Region + "::parameter" + in.Name, "DataType": "aws:ec2:image",
	}}, err
}

type imageXML struct {
	ID             string `xml:"imageId"`
	Name           string `xml:"name"`
	Architecture   string `xml:"architecture"`
	Created        string `xml:"creationDate"`
	Owner          string `xml:"imageOwnerId"`
	Alias          string `xml:"imageOwnerAlias,omitempty"`
	State          string `xml:"imageState"`
	Public         bool   `xml:"isPublic"`
	RootDevice     string `xml:"rootDeviceName"`
	RootType       string `xml:"rootDeviceType"`
	Virtualization string `xml:"virtualizationType"`
	Tags           []tag  `xml:"tagSet>item"`
}

type describeImagesResponse struct {
	envelope
	Images    []imageXML `xml:"imagesSet>item"`
	NextToken string     `xml:"nextToken,omitempty"`
}

func (s *Server) describeImages(p *params) (sealer, error) {
	ids, owners := p.strings("ImageId"), p.strings("Owner")
	for _, id := range ids {
		if s.st.Images[id] == nil {
			return nil, newError("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
		}
	}
	items := slices.DeleteFunc(sortedValues(s.st.Images), func(i *Image) bool {
		return len(ids) > 0 && !slices.Contains(ids, i.ID) || len(owners) > 0 && !slices.Contains(owners, i.owner())
	})
	items, err := filtered(p, items, taggedValues(func(i *Image) map[string]string { return i.Tags },
		fields(func(i *Image) map[string]string {
			return map[string]string{"image-id": i.ID, "name": i.Name, "architecture": i.ec2Arch(), "state": "available",
				"owner-alias": i.owner(), "root-device-type": "ebs", "virtualization-type": "hvm"}
		})))
	if err != nil {
		return nil, err
	}
	items, next, err := page(p, items)
	out := &describeImagesResponse{NextToken: next}
	for _, i := range items {
		out.Images = append(out.Images, s.imageXML(i))
	}
	return out, err
}

func (i *Image) owner() string {
	if i.Owner == "" {
		return "amazon"
	}
	return i.Owner
}

func (s *Server) imageXML(i *Image) imageXML {
	out := imageXML{ID: i.ID, Name: i.Name, Architecture: i.ec2Arch(), Created: i.created(), Owner: s.opts.AccountID,
		State: "available", Public: i.owner() == "amazon", RootDevice: "/dev/xvda", RootType: "ebs", Virtualization: "hvm",
		Tags: tagSet(i.Tags)}
	if i.owner() == "amazon" {
		out.Owner, out.Alias = "602401143452", "amazon"
	}
	return out
}
