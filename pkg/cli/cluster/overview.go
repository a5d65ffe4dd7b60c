package cluster

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/overview"
)

// ErrNotInstalled says that the cluster does not know GPUPools.
var ErrNotInstalled = errors.New("the cluster has no definition of GPUPool; install it: helm upgrade --install karpenter-crd charts/karpenter-gpu-crd --namespace karpenter")

// ReadOverview lists what an overview is made from; catalogue and time are the caller's.
func ReadOverview(ctx context.Context, c client.Reader) (in overview.Input, err error) {
	gpuPools, nodePools, claims := &v1alpha1.GPUPoolList{}, &karpv1.NodePoolList{}, &karpv1.NodeClaimList{}
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	if err := c.List(ctx, gpuPools, client.Limit(1)); meta.IsNoMatchError(err) {
		return in, ErrNotInstalled
	}
	gpuPools = &v1alpha1.GPUPoolList{}
	if in.GPUPools, err = list(ctx, c, gpuPools, func() []v1alpha1.GPUPool { return gpuPools.Items }); err != nil {
		return in, err
	}
	if in.NodePools, err = list(ctx, c, nodePools, func() []karpv1.NodePool { return nodePools.Items }); err != nil {
		return in, err
	}
	if in.NodeClaims, err = list(ctx, c, claims, func() []karpv1.NodeClaim { return claims.Items }); err != nil {
		return in, err
	}
	if in.Nodes, err = list(ctx, c, nodes, func() []corev1.Node { return nodes.Items }); err != nil {
		return in, err
	}
	in.Pods, err = list(ctx, c, pods, func() []corev1.Pod { return pods.Items })
	return in, err
}
