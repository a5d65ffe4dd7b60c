// Command controller is a drop-in replacement for the controller of Karpenter's
// AWS provider: the same flags, environment, metrics and health endpoints, with
// the GPU features of karpenter-gpu for the NodePools that ask for them.
//
// It holds wiring only; pkg/operator lists the parts.
package main

import (
	awsoperator "github.com/aws/karpenter-provider-aws/pkg/operator"
	coreoperator "sigs.k8s.io/karpenter/pkg/operator"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/operator"
)

func main() {
	ctx, op := awsoperator.NewOperator(coreoperator.NewOperator())
	op.WithControllers(ctx, operator.NewControllers(ctx, op)...).Start(ctx)
}
