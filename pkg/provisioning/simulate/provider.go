package simulate

import (
	"context"
	"errors"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// provider answers what instance types there are, and nothing else.
type provider struct {
	types   func(context.Context, *karpv1.NodePool) ([]*cloudprovider.InstanceType, error)
	classes []schema.GroupKind
}

var _ cloudprovider.CloudProvider = (*provider)(nil)

func newProvider(in Input) *provider {
	return &provider{types: in.InstanceTypes, classes: lo.Uniq(lo.Map(in.NodePools, func(np *karpv1.NodePool, _ int) schema.GroupKind {
		return np.Spec.Template.Spec.NodeClassRef.GroupKind()
	}))}
}

var errNothingRuns = errors.New("asking the simulated cloud, it launches nothing")

// Create, Delete, Get, List and Reboot are never called by a decision.
func (p *provider) Create(context.Context, *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	return nil, errNothingRuns
}

// Delete is not supported.
func (p *provider) Delete(context.Context, *karpv1.NodeClaim) error { return errNothingRuns }

// Get is not supported.
func (p *provider) Get(context.Context, string) (*karpv1.NodeClaim, error) {
	return nil, errNothingRuns
}

// List is not supported.
func (p *provider) List(context.Context) ([]*karpv1.NodeClaim, error) { return nil, errNothingRuns }

// Reboot is not supported.
func (p *provider) Reboot(context.Context, *karpv1.NodeClaim, string) error { return errNothingRuns }

// GetInstanceTypes answers as Input says.
func (p *provider) GetInstanceTypes(ctx context.Context, np *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return p.types(ctx, np)
}

// IsDrifted is never.
func (p *provider) IsDrifted(context.Context, *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", nil
}

// RepairPolicies are none.
func (p *provider) RepairPolicies() []cloudprovider.RepairPolicy { return nil }

// Name names it.
func (p *provider) Name() string { return "simulated" }

// GetSupportedNodeClasses are the classes that the NodePools name, so that the
// scheduler takes all of them for its own.
func (p *provider) GetSupportedNodeClasses() []status.Object {
	return lo.Map(p.classes, func(gk schema.GroupKind, _ int) status.Object {
		c := &nodeClass{}
		c.SetGroupVersionKind(gk.WithVersion("v1"))
		return c
	})
}

// nodeClass is a NodeClass of any kind.
type nodeClass struct{ unstructured.Unstructured }

// GetConditions are none.
func (n *nodeClass) GetConditions() []status.Condition { return nil }

// SetConditions drops them.
func (n *nodeClass) SetConditions([]status.Condition) {}

// StatusConditions are empty.
func (n *nodeClass) StatusConditions(opts ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions().For(n, opts...)
}

// defaultOptions are Karpenter's, without a look at the environment.
func defaultOptions() *options.Options {
	return &options.Options{CPURequests: 1000, BatchMaxDuration: 10 * time.Second, BatchIdleDuration: time.Second,
		PreferencePolicy: options.PreferencePolicyRespect, MinValuesPolicy: options.MinValuesPolicyStrict, IgnoreDRARequests: true,
		FeatureGates: options.DefaultFeatureGates()}
}
