package readiness

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/trials"
)

// Options are the settings of a Provider.
type Options struct {
	// RepairToleration is how long a GPU fault must last before node repair acts; zero means
	// DefaultRepairToleration.
	RepairToleration time.Duration
	// RebootForRepair lets repair reboot nodes whose fault a reboot may cure.
	RebootForRepair bool
}

var _ corecloudprovider.CloudProvider = (*Provider)(nil)

// Provider decorates a CloudProvider with the readiness gate. It stands outside of the
// decorator that shows layouts, and inside of the one that keeps limits.
type Provider struct {
	corecloudprovider.CloudProvider
	reader client.Reader
	pools  Pools
	gate   *Gate
	book   *trials.Book
	opts   Options
}

// Decorate returns a Provider around inner. reader lists NodeClaims from a cache.
func Decorate(inner corecloudprovider.CloudProvider, reader client.Reader, p Pools, book *trials.Book, opts Options) *Provider {
	opts.RepairToleration = lo.CoalesceOrEmpty(opts.RepairToleration, DefaultRepairToleration)
	return &Provider{CloudProvider: inner, reader: reader, pools: p, gate: NewGate(reader), book: book, opts: opts}
}

// Create launches a node of a pool with the taint of the gate, away from offerings that are
// set aside, or refuses the launch while too many nodes are in trial during a storm. A
// refusal is insufficient capacity to Karpenter: the pods wait and are planned anew.
func (p *Provider) Create(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	pool, ok := p.pools.ForNodeClaim(nodeClaim)
	if !ok {
		return p.CloudProvider.Create(ctx, nodeClaim)
	}
	inForce, err := p.gate.InForce(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("asking the readiness gate, %w", err)
	}
	if !inForce {
		return p.CloudProvider.Create(ctx, nodeClaim)
	}
	Recall(p.book, pool.GPUPool)
	if err := p.admit(ctx, pool, nodeClaim.UID); err != nil {
		return nil, err
	}
	gated := nodeClaim.DeepCopy()
	gated.Spec.StartupTaints = withStartupTaint(gated.Spec.StartupTaints)
	if err := p.avoid(ctx, gated); err != nil {
		return nil, err
	}
	created, err := p.CloudProvider.Create(ctx, gated)
	if err != nil {
		p.book.Release(pool.Name(), nodeClaim.UID)
	}
	return created, err
}

func (p *Provider) admit(ctx context.Context, pool *pools.Pool, uid types.UID) error {
	storm, ok := p.book.Storm(pool.Name())
	var inTrial []types.UID
	if ok {
		var err error
		if inTrial, err = p.inTrial(ctx, pool); err != nil {
			return err
		}
	}
	limit := int(pool.GPUPool.Spec.Readiness.GetMaxConcurrentTrials())
	if p.book.Admit(pool.Name(), uid, limit, inTrial) {
		return nil
	}
	return corecloudprovider.NewInsufficientCapacityError(&HeldBackError{Pool: pool.Name(), Reason: storm.Reason, InTrial: len(inTrial), Limit: limit})
}

// inTrial lists the nodes of the pool that were launched and are not verified.
func (p *Provider) inTrial(ctx context.Context, pool *pools.Pool) ([]types.UID, error) {
	list := &karpv1.NodeClaimList{}
	if err := p.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing node claims, %w", err)
	}
	var out []types.UID
	for i := range list.Items {
		nc := &list.Items[i]
		launched := nc.Status.ProviderID != ""
		if launched && nc.DeletionTimestamp.IsZero() && slices.Contains(pool.NodePools, nc.Labels[karpv1.NodePoolLabelKey]) && !p.book.IsVerified(nc.UID) {
			out = append(out, nc.UID)
		}
	}
	return out, nil
}

// GetInstanceTypes returns the inner provider's types, with those offerings unavailable
// whose nodes failed lately, and all of them while a storm leaves no room for another trial.
// Without either it is the inner answer itself.
func (p *Provider) GetInstanceTypes(ctx context.Context, nodePool *karpv1.NodePool) ([]*corecloudprovider.InstanceType, error) {
	its, err := p.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if err != nil || nodePool == nil {
		return its, err
	}
	pool, ok := p.pools.ForNodePool(nodePool.Name)
	if !ok {
		return its, nil
	}
	Recall(p.book, pool.GPUPool)
	full, err := p.full(ctx, pool)
	if err != nil {
		return nil, err
	}
	if full {
		return without(its, func(string, string) bool { return true }), nil
	}
	set := avoidedSet(p.book.Avoided(nodeClass(nodePool)))
	if len(set) == 0 {
		return its, nil
	}
	return without(its, func(instanceType, zone string) bool { return set[typeZone{instanceType, zone}] }), nil
}

func (p *Provider) full(ctx context.Context, pool *pools.Pool) (bool, error) {
	if _, storm := p.book.Storm(pool.Name()); !storm {
		return false, nil
	}
	if inForce, err := p.gate.InForce(ctx, pool); err != nil || !inForce {
		return false, err
	}
	inTrial, err := p.inTrial(ctx, pool)
	return len(inTrial) >= int(pool.GPUPool.Spec.Readiness.GetMaxConcurrentTrials()), err
}

// RepairPolicies returns the inner policies and those for the agent's condition.
func (p *Provider) RepairPolicies() []corecloudprovider.RepairPolicy {
	return repairPolicies(p.CloudProvider.RepairPolicies(), p.opts.RepairToleration, p.opts.RebootForRepair)
}

func nodeClass(nodePool *karpv1.NodePool) string {
	if ref := nodePool.Spec.Template.Spec.NodeClassRef; ref != nil {
		return ref.Name
	}
	return ""
}
