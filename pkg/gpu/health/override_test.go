package health

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPolicyWith(t *testing.T) {
	base := Policy{
		Checks: map[Check]CheckPolicy{CheckPCIe: {Disabled: true}, CheckFabric: {Severity: Warning}},
		XIDs:   []XIDPolicy{{Code: 31, Class: XIDWarn}, {Code: 45, Class: XIDWarn}}, MinDriver: "550", GPUs: 8,
	}
	before := Policy{Checks: map[Check]CheckPolicy{CheckPCIe: {Disabled: true}, CheckFabric: {Severity: Warning}}, XIDs: []XIDPolicy{{Code: 31, Class: XIDWarn}, {Code: 45, Class: XIDWarn}}, MinDriver: "550", GPUs: 8}
	got := base.With(Policy{
		Checks: map[Check]CheckPolicy{CheckFabric: {Disabled: true}, CheckECC: {Severity: Fatal}},
		XIDs:   []XIDPolicy{{Code: 31, Class: XIDReboot}}, MinDriver: "560",
	})
	want := Policy{
		Checks: map[Check]CheckPolicy{CheckPCIe: {Disabled: true}, CheckFabric: {Disabled: true}, CheckECC: {Severity: Fatal}},
		XIDs:   []XIDPolicy{{Code: 45, Class: XIDWarn}, {Code: 31, Class: XIDReboot}}, MinDriver: "550", GPUs: 8,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(before, base); diff != "" {
		t.Errorf("the base changed (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(base, base.With(Policy{})); diff != "" {
		t.Errorf("an empty policy changes something (-want +got)\n%s", diff)
	}
	if got := (Policy{}).With(Policy{Checks: map[Check]CheckPolicy{CheckECC: {Disabled: true}}}); got.Enabled(CheckECC) {
		t.Error("a policy without checks takes none over")
	}
}
