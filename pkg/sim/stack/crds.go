package stack

import (
	"context"
	"fmt"
	"time"

	awsapis "github.com/aws/karpenter-provider-aws/pkg/apis"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	coreapis "sigs.k8s.io/karpenter/pkg/apis"

	ourapis "github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
)

// crds are the definitions as their modules embed them. NodePool and NodeClaim are those of the AWS
// provider, which extend core's; core alone has CapacityBuffer.
var crds = [][]byte{
	awsapis.EC2NodeClassCRD, awsapis.NodePoolCRD, awsapis.NodeClaimCRD, awsapis.NodeOverlayCRD,
	coreapis.CapacityBufferCRD, ourapis.GPUPoolCRD,
}

func (s *Stack) installCRDs(ctx context.Context) error {
	var names []string
	for _, text := range crds {
		objects, err := s.objects.apply(ctx, string(text))
		if err != nil {
			return err
		}
		for _, o := range objects {
			names = append(names, o.GetName())
		}
	}
	for _, name := range names {
		if err := s.established(ctx, name); err != nil {
			return err
		}
	}
	s.objects.forget()
	return nil
}

func (s *Stack) established(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	ref := scenarioRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
	for {
		o, err := s.objects.get(ctx, ref)
		if err == nil && conditionTrue(o, "Established") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to be established, %w", name, context.Cause(ctx))
		case <-s.opts.Clock.After(50 * time.Millisecond):
		}
	}
}

func conditionTrue(o *unstructured.Unstructured, kind string) bool {
	for _, c := range conditionsOf(o) {
		if c.Type == kind {
			return c.Status == "True"
		}
	}
	return false
}
