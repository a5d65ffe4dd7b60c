package readiness

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

// holdFor is how soon a node whose registration is held back is looked at again; changes of
// the Node itself come sooner.
const holdFor = 5 * time.Second

// Pools finds the pool of a NodeClaim. A pools.Store does.
type Pools interface {
	ForNodeClaim(nodeClaim *karpv1.NodeClaim) (*pools.Pool, bool)
	ForNodePool(name string) (*pools.Pool, bool)
}

// Hook takes part in the registration of nodes. Where the provider could not start a node
// with the taint of the gate, as with images that bring their own bootstrap, it adds the
// taint while Karpenter's own still keeps pods away. With gate Registration it also waits
// until the hardware is verified.
type Hook struct {
	client   client.Client
	pools    Pools
	gate     *Gate
	verifier *Verifier
	clock    clock.PassiveClock

	mu sync.Mutex
	// open are the pools that had a node which registered with neither taint, with its name.
	open map[string]string
}

var _ corecloudprovider.NodeLifecycleHook = (*Hook)(nil)

// NewHook returns a Hook for Karpenter's registration.
func NewHook(c client.Client, p Pools, gate *Gate, verifier *Verifier, clk clock.PassiveClock) *Hook {
	return &Hook{client: c, pools: p, gate: gate, verifier: verifier, clock: clk, open: map[string]string{}}
}

// Name implements NodeLifecycleHook.
func (h *Hook) Name() string { return "GPUReadiness" }

// Registered implements NodeLifecycleHook. It changes the Node and not the NodeClaim, which
// other hooks read at the same time.
func (h *Hook) Registered(ctx context.Context, nodeClaim *karpv1.NodeClaim) (corecloudprovider.NodeLifecycleHookResult, error) {
	pass := corecloudprovider.NodeLifecycleHookResult{}
	pool, ok := h.pools.ForNodeClaim(nodeClaim)
	if !ok {
		return pass, nil
	}
	if inForce, err := h.gate.InForce(ctx, pool); err != nil || !inForce {
		return pass, err
	}
	node, err := nodeclaimutils.NodeForNodeClaim(ctx, h.client, nodeClaim)
	if err != nil { // Karpenter has just found it: it went, or a twin came
		return corecloudprovider.NodeLifecycleHookResult{RequeueAfter: holdFor}, nodeclaimutils.IgnoreNodeNotFoundError(err)
	}
	subject := Subject{Node: node, Claim: nodeClaim, Pool: pool}
	verdict := h.verifier.Hardware(subject)
	if verdict.State == StateNoGPU || VerifiedThisBoot(node) {
		return pass, nil
	}
	if !Tainted(node) {
		h.note(pool.Name(), node)
		return corecloudprovider.NodeLifecycleHookResult{RequeueAfter: holdFor}, h.close(ctx, node)
	}
	if pool.GPUPool.Spec.Readiness.GetGate() == v1alpha1.GateRegistration && verdict.State != StateVerified {
		return corecloudprovider.NodeLifecycleHookResult{RequeueAfter: holdFor}, nil
	}
	return pass, nil
}

func (h *Hook) close(ctx context.Context, node *corev1.Node) error {
	stored := node.DeepCopy()
	Close(node, h.clock.Now())
	// This taint is the kubelet's in all but who wrote it: without a date.
	for i := range node.Spec.Taints {
		if isOurs(node.Spec.Taints[i]) {
			node.Spec.Taints[i].TimeAdded = nil
		}
	}
	err := h.client.Patch(ctx, node, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("adding the taint of the readiness gate, %w", err)
	}
	return nil
}

// note remembers that pods may have come to the node before its gate was shut.
func (h *Hook) note(pool string, node *corev1.Node) {
	registered := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&karpv1.UnregisteredNoExecuteTaint) })
	if registered {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[pool] = node.Name
}

// Untainted returns a node of the pool that registered with neither taint; ok is false when
// there was none since the start of this process.
func (h *Hook) Untainted(pool string) (node string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	node, ok = h.open[pool]
	return node, ok
}
