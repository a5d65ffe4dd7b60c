// Package cloudprovider decorates any Karpenter CloudProvider with what
// karpenter-gpu knows about GPUs.
//
// The decorator is the outermost of the stack, gpu(overlay(metrics(inner))), so
// that NodeOverlays are already applied to what it sees. It never changes what
// the inner provider returned: instance types are copied before they are
// written, and a NodeClaim is deep-copied before it is rewritten for the inner
// provider. NodePools without a pool label get exactly the inner answer.
package cloudprovider

import (
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
)

var _ corecloudprovider.CloudProvider = (*decorator)(nil)

type decorator struct {
	corecloudprovider.CloudProvider
}

// Decorate returns a CloudProvider that delegates to inner. Errors pass through
// unchanged, so that errors.Is and Karpenter's own predicates keep working.
func Decorate(inner corecloudprovider.CloudProvider) corecloudprovider.CloudProvider {
	return &decorator{CloudProvider: inner}
}
