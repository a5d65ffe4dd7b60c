package catalogprovider

import (
	"context"
	"errors"
	"fmt"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// ErrOffline is what everything that needs a cloud answers.
var ErrOffline = errors.New("there is no cloud to ask, instance types come from the catalogue")

// Provider is the CloudProvider. It is safe for concurrent use.
type Provider struct {
	opts    Options
	classes map[string]*NodeClass
	types   map[string][]*cloudprovider.InstanceType
}

var _ cloudprovider.CloudProvider = (*Provider)(nil)

// New returns a Provider for NodePools of these EC2NodeClasses.
func New(o Options, classes ...*NodeClass) (*Provider, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("reading options of the offline provider, %w", err)
	}
	p := &Provider{opts: o, classes: map[string]*NodeClass{}, types: map[string][]*cloudprovider.InstanceType{}}
	for _, c := range classes {
		p.classes[c.GetName()] = c
		p.types[c.GetName()] = p.build(c)
	}
	return p, nil
}

func (p *Provider) build(c *NodeClass) []*cloudprovider.InstanceType {
	return lo.FilterMap(p.opts.Catalog.Shapes(), func(s catalog.Shape, _ int) (*cloudprovider.InstanceType, bool) {
		return InstanceType(s, c, p.opts), s.Provider == "aws"
	})
}

// InstanceType is what the AWS provider would say of a shape.
func InstanceType(s catalog.Shape, c *NodeClass, o Options) *cloudprovider.InstanceType {
	m, zones := machine{Shape: s, class: c, opts: o}, c.zones
	if len(zones) == 0 {
		zones = lo.Map(o.Zones, func(name string, _ int) zone { return zone{name: name} })
	}
	return &cloudprovider.InstanceType{
		Name: s.Name, Requirements: m.requirements(zones), Offerings: m.offerings(zones), Capacity: m.capacity(), Overhead: m.overhead(),
	}
}

// GetInstanceTypes returns fresh structs over shared maps, as the AWS provider does:
// callers copy what they change.
func (p *Provider) GetInstanceTypes(_ context.Context, nodePool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	ref := nodePool.Spec.Template.Spec.NodeClassRef
	if ref == nil || ref.Group != NodeClassGVK.Group || ref.Kind != NodeClassGVK.Kind {
		return nil, fmt.Errorf("NodePool %s: spec.template.spec.nodeClassRef names no EC2NodeClass of %s", nodePool.Name, Group)
	}
	types, ok := p.types[ref.Name]
	if !ok {
		return nil, fmt.Errorf("NodePool %s: EC2NodeClass %q is not known", nodePool.Name, ref.Name)
	}
	return lo.Map(types, func(it *cloudprovider.InstanceType, _ int) *cloudprovider.InstanceType {
		return &cloudprovider.InstanceType{Name: it.Name, Requirements: it.Requirements, Offerings: it.Offerings, Capacity: it.Capacity, Overhead: it.Overhead}
	}), nil
}

// Create is refused.
func (p *Provider) Create(context.Context, *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	return nil, ErrOffline
}

// Delete is refused.
func (p *Provider) Delete(context.Context, *karpv1.NodeClaim) error { return ErrOffline }

// Get is refused.
func (p *Provider) Get(context.Context, string) (*karpv1.NodeClaim, error) { return nil, ErrOffline }

// List is refused.
func (p *Provider) List(context.Context) ([]*karpv1.NodeClaim, error) { return nil, ErrOffline }

// IsDrifted is refused.
func (p *Provider) IsDrifted(context.Context, *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", ErrOffline
}

// Reboot is refused.
func (p *Provider) Reboot(context.Context, *karpv1.NodeClaim, string) error {
	return cloudprovider.NewNodeRebootNotImplementedError()
}

// RepairPolicies are none.
func (p *Provider) RepairPolicies() []cloudprovider.RepairPolicy { return nil }

// Name is that of the AWS provider, for which it stands in.
func (p *Provider) Name() string { return "aws" }

// GetSupportedNodeClasses is EC2NodeClass.
func (p *Provider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{DefaultNodeClass("")}
}
