package status

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// member is a NodePool of the pool with what the status is made from.
type member struct {
	nodePool *karpv1.NodePool
	// types are those that the NodePool's requirements allow, by name; typesErr says
	// why they are not known.
	types    map[string]*corecloudprovider.InstanceType
	typesErr error
	// shapes are those of the types that carry GPUs, by name.
	shapes []catalog.Shape
	nodes  []node
}

// node is a launched NodeClaim.
type node struct {
	claim *karpv1.NodeClaim
	// node is nil until it registers.
	node  *corev1.Node
	shape catalog.Shape
}

// members returns the NodePools of a pool by name.
func (c *Controller) members(ctx context.Context, p *v1alpha1.GPUPool) ([]member, error) {
	var list karpv1.NodePoolList
	if err := c.kubeClient.List(ctx, &list, client.MatchingLabels{v1alpha1.PoolLabelKey: p.Name}); err != nil {
		return nil, fmt.Errorf("listing nodepools, %w", err)
	}
	slices.SortFunc(list.Items, func(a, b karpv1.NodePool) int { return strings.Compare(a.Name, b.Name) })
	var members []member
	for i := range list.Items {
		m := member{nodePool: &list.Items[i]}
		c.addTypes(ctx, &m)
		if err := c.addNodes(ctx, &m); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	return members, nil
}

func (c *Controller) addTypes(ctx context.Context, m *member) {
	its, err := c.cloudProvider.GetInstanceTypes(ctx, m.nodePool)
	if err != nil {
		m.typesErr = err
		return
	}
	m.types = map[string]*corecloudprovider.InstanceType{}
	template := m.nodePool.Spec.Template
	reqs := scheduling.NewNodeSelectorRequirementsWithMinValues(template.Spec.Requirements...)
	reqs.Add(scheduling.NewLabelRequirements(template.Labels).Values()...)
	for _, it := range its {
		// Layouts and labels that the pool adds are no reason to leave a type out here.
		allowed := reqs.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels)
		m.types[it.Name] = it
		if shape, ok := c.catalog.Shape(it.Name); ok && shape.HasGPU() && allowed {
			m.shapes = append(m.shapes, shape)
		}
	}
	slices.SortFunc(m.shapes, func(a, b catalog.Shape) int { return strings.Compare(a.Name, b.Name) })
}

func (c *Controller) addNodes(ctx context.Context, m *member) error {
	var claims karpv1.NodeClaimList
	if err := c.kubeClient.List(ctx, &claims, client.MatchingLabels{karpv1.NodePoolLabelKey: m.nodePool.Name}); err != nil {
		return fmt.Errorf("listing nodeclaims, %w", err)
	}
	var nodes corev1.NodeList
	if err := c.kubeClient.List(ctx, &nodes, client.MatchingLabels{karpv1.NodePoolLabelKey: m.nodePool.Name}); err != nil {
		return fmt.Errorf("listing nodes, %w", err)
	}
	byProvider := lo.KeyBy(lo.ToSlicePtr(nodes.Items), func(n *corev1.Node) string { return n.Spec.ProviderID })
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Status.ProviderID == "" {
			continue // not launched
		}
		shape, _ := c.catalog.Shape(claim.Labels[corev1.LabelInstanceTypeStable])
		m.nodes = append(m.nodes, node{claim: claim, node: byProvider[claim.Status.ProviderID], shape: shape})
	}
	return nil
}

// price is what a node costs; zero where nobody knows.
func (m member) price(n node) v1alpha1.Price {
	it, ok := m.types[n.claim.Labels[corev1.LabelInstanceTypeStable]]
	if !ok {
		return 0
	}
	price, _ := it.OfferingPrice(n.claim.Labels[corev1.LabelTopologyZone], n.claim.Labels[karpv1.CapacityTypeLabelKey])
	return v1alpha1.PriceFromFloat(price)
}
