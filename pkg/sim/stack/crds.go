package stack

import (
	"context"
	"fmt"
	"time"

	awsapis "github.com/aws/karpenter-provider-aws/pkg/apis"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreapis "sigs.k8s.io/karpenter/pkg/apis"

	ourapis "github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
)

// crds are the definitions as their modules embed them. NodePool and NodeClaim are those of the AWS
// provider, which extend core's; core alone has CapacityBuffer.
var crds = [][]byte{
	awsapis.EC2NodeClassCRD, awsapis.NodePoolCRD, awsapis.NodeClaimCRD, awsapis.NodeOverlayCRD,
	coreapis.CapacityBufferCRD, ourapis.GPUPoolCRD,
}

// installCRDs returns when every kind is served. A definition is Established before API discovery
// lists its kind, by seconds on a machine that is busy.
func (s *Stack) installCRDs(ctx context.Context) error {
	var installed []*unstructured.Unstructured
	for _, text := range crds {
		objects, err := s.objects.apply(ctx, string(text))
		if err != nil {
			return err
		}
		installed = append(installed, objects...)
	}
	for _, o := range installed {
		if err := s.await(ctx, "waiting for "+o.GetName()+" to be established", func(ctx context.Context) bool { return s.established(ctx, o.GetName()) }); err != nil {
			return err
		}
	}
	for _, o := range installed {
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		served := func(context.Context) bool {
			s.objects.forget()
			_, err := s.objects.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
			return err == nil
		}
		if err := s.await(ctx, "waiting for "+o.GetName()+" to be served", served); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) established(ctx context.Context, name string) bool {
	o, err := s.objects.get(ctx, scenarioRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", name))
	return err == nil && conditionTrue(o, "Established")
}

// await looks every 50 ms until what is waited for holds, for half a minute at most.
func (s *Stack) await(ctx context.Context, what string, holds func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for !holds(ctx) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s, %w", what, context.Cause(ctx))
		case <-s.opts.Clock.After(50 * time.Millisecond):
		}
	}
	return nil
}

func conditionTrue(o *unstructured.Unstructured, kind string) bool {
	for _, c := range conditionsOf(o) {
		if c.Type == kind {
			return c.Status == "True"
		}
	}
	return false
}
