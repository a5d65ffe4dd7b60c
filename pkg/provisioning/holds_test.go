package provisioning

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestHolds(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	holds := NewHolds(clk)
	held := func(pool string, kinds ...RefusalKind) string {
		refusal, ok := holds.Of(pool, kinds...)
		if ok != (refusal.Message != "") {
			t.Fatalf("refusal %+v with ok=%t", refusal, ok)
		}
		return refusal.Message
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	refused := func(pool string, kind RefusalKind, message string) RefusedPod {
		return RefusedPod{Refusal: Refusal{Pool: pool, Kind: kind, Message: message}}
	}

	expect("nothing noted", held("a", RefusedGPULimit), "")
	holds.note([]RefusedPod{refused("a", RefusedGPULimit, "first"), refused("a", RefusedGPULimit, "second"), refused("b", RefusedOversize, "big")})
	expect("the first refusal speaks for all", held("a", RefusedGPULimit, RefusedPriceLimit), "first")
	expect("the first kind that holds is told", held("a", RefusedPriceLimit, RefusedGPULimit), "first")
	expect("another kind", held("a", RefusedOversize), "")
	expect("another pool", held("b", RefusedOversize), "big")

	holds.note([]RefusedPod{refused("b", RefusedOversize, "big")})
	expect("a round without refusal ends it", held("a", RefusedGPULimit), "")
	clk.SetTime(time.Unix(0, 0).Add(holdTime + time.Second))
	expect("no round for a while ends it", held("b", RefusedOversize), "")
	if n := holds.Rounds(); n != 2 {
		t.Errorf("%d rounds, want 2", n)
	}
}

func TestNobodyHolds(t *testing.T) {
	var holds *Holds
	holds.note([]RefusedPod{{Refusal: Refusal{Pool: "a", Kind: RefusedGPULimit, Message: "full"}}})
	if refusal, ok := holds.Of("a", RefusedGPULimit); ok || holds.Rounds() != 0 {
		t.Errorf("nobody holds %+v in %d rounds", refusal, holds.Rounds())
	}
}
