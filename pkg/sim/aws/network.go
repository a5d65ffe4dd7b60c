package aws

import (
	"fmt"
	"slices"
	"strings"
)

// The network has one VPC of 10.0.0.0/16 with a private /19 subnet in each zone.
const subnetSize = 8192 - 5 // EC2 keeps five addresses of every subnet

type subnet struct {
	id, zone, zoneID, cidr string
	index                  int
	tags                   map[string]string
}

func (s *Server) vpcID() string { return "vpc-" + hash17(s.opts.Region+s.opts.AccountID) }

func (s *Server) groupID() string { return "sg-" + hash17(s.opts.Region+s.opts.ClusterName) }

func (s *Server) subnets() []subnet {
	out := make([]subnet, 0, len(s.opts.Zones))
	for n, zone := range s.opts.Zones {
		out = append(out, subnet{
			id: "subnet-" + hash17(s.opts.AccountID+zone), zone: zone, zoneID: zoneID(s.opts.Region, zone), index: n,
			cidr: fmt.Sprintf("10.0.%d.0/19", n*32),
			tags: map[string]string{
				"Name":                   s.opts.ClusterName + "-private-" + zone,
				"karpenter.sh/discovery": s.opts.ClusterName,
				"kubernetes.io/cluster/" + s.opts.ClusterName: "shared",
				"kubernetes.io/role/internal-elb":             "1",
			},
		})
	}
	return out
}

func (s *Server) subnet(match func(subnet) bool) (subnet, bool) {
	all := s.subnets()
	if n := slices.IndexFunc(all, match); n >= 0 {
		return all[n], true
	}
	return subnet{}, false
}

// zoneID is the identifier of a zone across accounts: use1-az1 for us-east-1a.
func zoneID(region, zone string) string {
	short := strings.NewReplacer("north", "n", "south", "s", "east", "e", "west", "w", "central", "c", "-", "").Replace(region)
	return fmt.Sprintf("%s-az%d", short, zone[len(zone)-1]-'a'+1)
}

// address hands out the next private address of a subnet and the host name for it.
func (s *Server) address(n subnet) (ip, dns string) {
	used := s.st.Addresses[n.id] % subnetSize
	s.st.Addresses[n.id]++
	host := n.index*8192 + used + 4
	ip = fmt.Sprintf("10.0.%d.%d", host/256, host%256)
	domain := s.opts.Region + ".compute.internal"
	if s.opts.Region == "us-east-1" {
		domain = "ec2.internal"
	}
	return ip, "ip-" + strings.ReplaceAll(ip, ".", "-") + "." + domain
}

// freeAddresses counts down with the instances that live in a subnet.
func (s *Server) freeAddresses(id string) int {
	free := subnetSize
	for _, i := range s.st.Instances {
		if i.SubnetID == id && i.State != Terminated {
			free--
		}
	}
	return free
}

type subnetXML struct {
	ID        string `xml:"subnetId"`
	ARN       string `xml:"subnetArn"`
	State     string `xml:"state"`
	VPC       string `xml:"vpcId"`
	CIDR      string `xml:"cidrBlock"`
	Available int    `xml:"availableIpAddressCount"`
	Zone      string `xml:"availabilityZone"`
	ZoneID    string `xml:"availabilityZoneId"`
	PublicIP  bool   `xml:"mapPublicIpOnLaunch"`
	Owner     string `xml:"ownerId"`
	Tags      []tag  `xml:"tagSet>item"`
}

type describeSubnetsResponse struct {
	envelope
	Subnets   []subnetXML `xml:"subnetSet>item"`
	NextToken string      `xml:"nextToken,omitempty"`
}

func (s *Server) describeSubnets(p *params) (sealer, error) {
	ids := p.strings("SubnetId")
	items := slices.DeleteFunc(s.subnets(), func(n subnet) bool { return len(ids) > 0 && !slices.Contains(ids, n.id) })
	if len(items) < len(ids) {
		return nil, newError("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", strings.Join(ids, ", "))
	}
	items, err := filtered(p, items, taggedValues(func(n subnet) map[string]string { return n.tags },
		fields(func(n subnet) map[string]string {
			return map[string]string{"subnet-id": n.id, "availability-zone": n.zone, "availability-zone-id": n.zoneID,
				"vpc-id": s.vpcID(), "state": "available", "cidr-block": n.cidr}
		})))
	if err != nil {
		return nil, err
	}
	items, next, err := page(p, items)
	out := &describeSubnetsResponse{NextToken: next}
	for _, n := range items {
		out.Subnets = append(out.Subnets, subnetXML{
			ID: n.id, ARN: fmt.Sprintf("arn:aws:ec2:%s:%s:subnet/%s", s.opts.Region, s.opts.AccountID, n.id),
			State: "available", VPC: s.vpcID(), CIDR: n.cidr, Available: s.freeAddresses(n.id),
			Zone: n.zone, ZoneID: n.zoneID, Owner: s.opts.AccountID, Tags: tagSet(n.tags),
		})
	}
	return out, err
}

type groupXML struct {
	ID          string `xml:"groupId"`
	Name        string `xml:"groupName"`
	Description string `xml:"groupDescription,omitempty"`
	VPC         string `xml:"vpcId,omitempty"`
	Owner       string `xml:"ownerId,omitempty"`
	Tags        []tag  `xml:"tagSet>item"`
}

type describeSecurityGroupsResponse struct {
	envelope
	Groups    []groupXML `xml:"securityGroupInfo>item"`
	NextToken string     `xml:"nextToken,omitempty"`
}

func (s *Server) groupTags() map[string]string {
	return map[string]string{
		"Name":                   s.groupName(),
		"karpenter.sh/discovery": s.opts.ClusterName,
		"kubernetes.io/cluster/" + s.opts.ClusterName: "owned",
		"aws:eks:cluster-name":                        s.opts.ClusterName,
	}
}

func (s *Server) groupName() string { return "eks-cluster-sg-" + s.opts.ClusterName }

func (s *Server) describeSecurityGroups(p *params) (sealer, error) {
	group := groupXML{ID: s.groupID(), Name: s.groupName(), Description: "Nodes of the simulated cluster",
		VPC: s.vpcID(), Owner: s.opts.AccountID, Tags: tagSet(s.groupTags())}
	items, err := filtered(p, []groupXML{group}, taggedValues(func(groupXML) map[string]string { return s.groupTags() },
		fields(func(g groupXML) map[string]string {
			return map[string]string{"group-id": g.ID, "group-name": g.Name, "vpc-id": g.VPC}
		})))
	if err != nil {
		return nil, err
	}
	items, next, err := page(p, items)
	return &describeSecurityGroupsResponse{Groups: items, NextToken: next}, err
}

type describePlacementGroupsResponse struct {
	envelope
	Groups []struct{} `xml:"placementGroupSet>item"`
}

// describePlacementGroups answers that the account has none.
func (s *Server) describePlacementGroups(*params) (sealer, error) {
	return &describePlacementGroupsResponse{}, nil
}

type zoneXML struct {
	Name   string `xml:"zoneName"`
	ID     string `xml:"zoneId"`
	Region string `xml:"regionName"`
	State  string `xml:"zoneState"`
	Type   string `xml:"zoneType"`
	OptIn  string `xml:"optInStatus"`
}

type describeAvailabilityZonesResponse struct {
	envelope
	Zones []zoneXML `xml:"availabilityZoneInfo>item"`
}

func (s *Server) describeAvailabilityZones(*params) (sealer, error) {
	out := &describeAvailabilityZonesResponse{}
	for _, zone := range s.opts.Zones {
		out.Zones = append(out.Zones, zoneXML{Name: zone, ID: zoneID(s.opts.Region, zone), Region: s.opts.Region,
			State: "available", Type: "availability-zone", OptIn: "opt-in-not-required"})
	}
	return out, nil
}
