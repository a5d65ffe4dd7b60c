package converter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

const (
	karpenterGroup    = "karpenter.sh"
	tensorFusionGroup = "tensor-fusion.ai"
	oldVersion        = "v1beta1"
	version           = "v1"
)

// Result is the answer.
type Result struct {
	// Objects in the order of the input.
	Objects []Object
	// Losses are all that was not carried over, or with another meaning: those of objects in
	// their order, then those of objects that have no result.
	Losses []Loss
}

// Object is one converted object.
type Object struct {
	*unstructured.Unstructured
	// From is the file and document that it was made from.
	From string
	// Losses are those of this object.
	Losses []Loss
}

// Loss is something that the result does not say as the input did.
type Loss struct {
	// Object is the kind and name in the input, From its file and document.
	Object, From string
	// Field is its path in the input; empty for all of the object.
	Field string
	// Message says why, and what to do in its place.
	Message string
}

// String is a line for a person.
func (l Loss) String() string {
	if l.Field == "" {
		return fmt.Sprintf("%s: %s", l.Object, l.Message)
	}
	return fmt.Sprintf("%s: %s: %s", l.Object, l.Field, l.Message)
}

// Convert converts documents. The error tells of input that cannot be read and of results
// that an API server would refuse.
func Convert(ctx context.Context, documents []manifest.Document, cloud catalogprovider.Options) (*Result, error) {
	c := &conversion{cloud: cloud, result: &Result{}, kubelets: map[string][]map[string]any{}, nodeClasses: map[string]bool{}}
	for _, d := range documents { // first, as EC2NodeClasses take kubelets over
		c.collectKubelet(d)
	}
	var errs []error
	for _, d := range documents {
		errs = append(errs, c.document(ctx, d))
	}
	for i := range c.result.Objects {
		o := &c.result.Objects[i]
		if err := check(ctx, o.Unstructured); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s %s: the result would be refused, %w", o.From, o.GetKind(), o.GetName(), err))
		}
	}
	c.result.Losses = c.losses()
	return c.result, errors.Join(errs...)
}

// conversion is one Result in the making.
type conversion struct {
	cloud  catalogprovider.Options
	result *Result
	// unconverted are the losses of objects that have no result.
	unconverted []Loss
	// kubelets are the settings of v1beta1 NodePools, nil for none, by the EC2NodeClass that
	// they refer to.
	kubelets map[string][]map[string]any
	// nodeClasses are the EC2NodeClasses of v1beta1.
	nodeClasses map[string]bool
}

func (c *conversion) document(ctx context.Context, d manifest.Document) error {
	gvk := d.Object.GroupVersionKind()
	switch gvk {
	case schema.GroupVersionKind{Group: karpenterGroup, Version: oldVersion, Kind: "NodePool"}:
		return c.nodePool(d)
	case catalogprovider.NodeClassGVK.GroupKind().WithVersion(oldVersion):
		return c.nodeClass(d)
	case schema.GroupVersionKind{Group: tensorFusionGroup, Version: version, Kind: "TensorFusionCluster"}:
		return c.tensorFusionCluster(ctx, d)
	case schema.GroupVersionKind{Group: tensorFusionGroup, Version: version, Kind: "GPUPool"}:
		return c.tensorFusionPool(ctx, d)
	}
	if gvk.Version != oldVersion && slices.Contains([]string{karpenterGroup, v1alpha1.Group, catalogprovider.Group}, gvk.Group) {
		c.result.Objects = append(c.result.Objects, Object{Unstructured: d.Object, From: d.From}) // of this time already
		return nil
	}
	c.unconverted = append(c.unconverted, Loss{Object: name(d), From: d.From, Message: "kind is not converted, and left out"})
	return nil
}

// name is kind and name of the input.
func name(d manifest.Document) string { return d.Object.GetKind() + " " + d.Object.GetName() }

func (c *conversion) losses() []Loss {
	var out []Loss
	for _, o := range c.result.Objects {
		out = append(out, o.Losses...)
	}
	return append(out, c.unconverted...)
}

// check holds NodePools and GPUPools to their rules. It leaves the object alone.
func check(ctx context.Context, u *unstructured.Unstructured) error {
	if u.GetName() == "" {
		return fmt.Errorf("metadata.name: missing; objects need a name")
	}
	var into client.Object
	switch u.GroupVersionKind().GroupKind().String() {
	case "NodePool." + karpenterGroup:
		into = &karpv1.NodePool{}
	case "GPUPool." + v1alpha1.Group:
		into = &v1alpha1.GPUPool{}
	default:
		return nil
	}
	if err := manifest.Decode(u.DeepCopy().Object, into); err != nil {
		return err
	}
	if pool, ok := into.(*v1alpha1.GPUPool); ok {
		return pool.RuntimeValidate(pools.Names{})
	}
	return into.(*karpv1.NodePool).RuntimeValidate(ctx)
}
