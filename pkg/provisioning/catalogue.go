package provisioning

import (
	"context"
	"slices"
	"sync"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

type catalogueKey struct{}

// Catalogue is what the CloudProvider answered within one round of scheduling. The
// repacking decides on the same NodePools and the same instance types, with the
// same availability and prices, as the stock decision that it compares itself
// with; asking again could give others.
type Catalogue struct {
	mu        sync.Mutex
	nodePools []*karpv1.NodePool
	types     map[string][]*cloudprovider.InstanceType
}

// Watch returns a context in which answers of a CloudProvider made by Guard are
// noted in the Catalogue.
func Watch(ctx context.Context) (context.Context, *Catalogue) {
	c := &Catalogue{types: map[string][]*cloudprovider.InstanceType{}}
	return context.WithValue(ctx, catalogueKey{}, c), c
}

// note keeps the first answer for each NodePool, in the order of the questions,
// which is the scheduler's order of preference.
func note(ctx context.Context, nodePool *karpv1.NodePool, types []*cloudprovider.InstanceType) {
	c, ok := ctx.Value(catalogueKey{}).(*Catalogue)
	if !ok || nodePool == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, seen := c.types[nodePool.Name]; seen {
		return
	}
	c.nodePools = append(c.nodePools, nodePool)
	c.types[nodePool.Name] = slices.Clone(types)
}
