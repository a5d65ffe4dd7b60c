package readiness_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	nodehealth "sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/test"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// provider is a fake whose policies have the one default that a set must have.
func withRepair(policies ...corecloudprovider.RepairPolicy) *fake.CloudProvider {
	cp := fake.NewCloudProvider()
	cp.RepairPolicy = policies
	return cp
}

var defaultPolicy = corecloudprovider.RepairPolicy{
	ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionFalse, Action: corecloudprovider.ReplaceNode,
}

func TestRepairPoliciesAreAcceptedByKarpenter(t *testing.T) {
	ctx := options.ToContext(t.Context(), test.Options(test.OptionsFields{FeatureGates: test.FeatureGates{NodeRepair: boolPtr(true)}}))
	cp := readiness.Decorate(withRepair(defaultPolicy), nil, nil, nil, readiness.Options{RebootForRepair: true})
	matcher, err := nodehealth.NewRepairPolicyMatcher(ctx, cp)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range health.Reasons() {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: v1alpha1.NodeConditionGPUReady, Status: corev1.ConditionFalse, Reason: string(r.Reason), LastTransitionTime: metav1.NewTime(t0),
		}}}}
		before := nodehealth.Resolve(matcher.Match(node), t0.Add(readiness.DefaultRepairToleration-1), t0)
		after := nodehealth.Resolve(matcher.Match(node), t0.Add(readiness.DefaultRepairToleration), t0)
		want := corecloudprovider.ReplaceNode
		if r.Action == health.ActionReboot || r.Action == health.ActionReset {
			want = corecloudprovider.RebootNode
		}
		if before.Action != "" || after.Action != want || after.Fallback {
			t.Errorf("%s: %q before its time, then %q (default policy: %t), want %q", r.Reason, before.Action, after.Action, after.Fallback, want)
		}
	}
}

func TestBootingNodesDoNotTripTheBreaker(t *testing.T) {
	ctx := options.ToContext(t.Context(), test.Options(test.OptionsFields{FeatureGates: test.FeatureGates{NodeRepair: boolPtr(true)}}))
	matcher, err := nodehealth.NewRepairPolicyMatcher(ctx, readiness.Decorate(withRepair(defaultPolicy), nil, nil, nil, readiness.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionTrue} {
		if matcher.Matches(corev1.NodeCondition{Type: v1alpha1.NodeConditionGPUReady, Status: status}) {
			t.Errorf("status %s counts towards the breaker", status)
		}
	}
}

func TestRepairPoliciesOfTheInnerProviderAreKept(t *testing.T) {
	inner := make([]corecloudprovider.RepairPolicy, 1, 8) // room behind, which is not ours
	inner[0] = defaultPolicy
	cp := readiness.Decorate(withRepair(inner...), nil, nil, nil, readiness.Options{})
	got := cp.RepairPolicies()
	if diff := cmp.Diff(defaultPolicy, got[0]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got[1].Action != corecloudprovider.ReplaceNode || got[2].Action != corecloudprovider.ReplaceNode {
		t.Errorf("without the gate for reboots the actions are %s and %s", got[1].Action, got[2].Action)
	}
	for _, p := range got[1:] {
		if p.ReasonRegex == "" {
			t.Error("a second default")
		}
		regexp.MustCompile(p.ReasonRegex)
	}
	if more := inner[:2]; more[1].ConditionType != "" {
		t.Error("the inner provider's array was written to")
	}
	if got := readiness.Decorate(withRepair(), nil, nil, nil, readiness.Options{}).RepairPolicies(); len(got) > 0 {
		t.Errorf("a provider without repair got %d policies", len(got))
	}
}

func boolPtr(b bool) *bool { return &b }
