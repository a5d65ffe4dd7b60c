package readiness

import (
	"context"
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/controller"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/controllers/state/informer"
)

// planning is a client by which Karpenter's cluster state reads Nodes. Karpenter plans with the
// NodeClaim's amount of a resource while a node that is not initialized has none of it, and
// with the node's own as soon as it has any: four GPUs of eight that have registered would have
// it buy a second node for the other four. Of a node in trial this client shows none.
type planning struct{ client.Client }

// Get implements client.Reader. What it changes is the caller's copy.
func (p planning) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := p.Client.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	node, ok := obj.(*corev1.Node)
	if !ok || !Tainted(node) || node.Labels[karpv1.NodeInitializedLabelKey] == "true" {
		return nil
	}
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		for name := range list {
			if strings.HasPrefix(string(name), nvidiaPrefix) {
				delete(list, name)
			}
		}
	}
	return nil
}

// PlanWithTrials replaces, among Karpenter's controllers, the one that tells the cluster state
// of Nodes: Karpenter then plans with nodes in trial as with what they will be.
func PlanWithTrials(controllers []controller.Controller, c client.Client, cluster *state.Cluster) ([]controller.Controller, error) {
	found := 0
	out := make([]controller.Controller, len(controllers))
	for i, x := range controllers {
		out[i] = x
		if _, ok := x.(*informer.NodeController); ok {
			out[i] = informer.NewNodeController(planning{c}, cluster)
			found++
		}
	}
	if found != 1 {
		return nil, fmt.Errorf("replacing the controller of nodes in the cluster state, found %d, want 1", found)
	}
	return out, nil
}
