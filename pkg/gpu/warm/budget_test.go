package warm_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/warm"
)

const dollar = 1_000_000

func TestBound(t *testing.T) {
	single, eight := warm.Offer{Units: 1, Price: 10 * dollar}, warm.Offer{Units: 8, Price: 60 * dollar}
	node := func(units int, price int64) warm.Held { return warm.Held{Units: units, Price: price * dollar} }
	for name, tc := range map[string]struct {
		budget int64
		want   int
		held   []warm.Held
		offers []warm.Offer
		bound  int
	}{
		"enough for all":                                       {80, 8, nil, []warm.Offer{single}, 8},
		"enough for a part":                                    {45, 8, nil, []warm.Offer{single}, 4},
		"the large node is the cheaper way":                    {60, 8, nil, []warm.Offer{single, eight}, 8},
		"nothing on offer":                                     {80, 8, nil, nil, 0},
		"nothing affordable":                                   {5, 8, nil, []warm.Offer{single}, 0},
		"no money":                                             {0, 8, nil, []warm.Offer{single}, 0},
		"what is free costs nothing":                           {0, 8, nil, []warm.Offer{{Units: 1}}, 8},
		"what is held counts at its own price":                 {80, 8, []warm.Held{node(1, 20), node(1, 20), node(1, 20), node(1, 20)}, []warm.Offer{single}, 4},
		"what is held stays though the offers are dearer":      {80, 8, []warm.Held{node(4, 40), node(4, 40)}, []warm.Offer{{Units: 1, Price: 30 * dollar}}, 8},
		"what is held stays though nothing is on offer":        {80, 8, []warm.Held{node(8, 60)}, nil, 8},
		"the rest of the money buys more":                      {80, 8, []warm.Held{node(2, 40)}, []warm.Offer{single}, 6},
		"room on held nodes is free":                           {60, 8, []warm.Held{{Units: 3, Room: 5, Price: 60 * dollar}}, []warm.Offer{single}, 8},
		"a budget that has shrunk keeps what costs least":      {40, 8, []warm.Held{node(1, 20), node(4, 40), node(1, 30)}, []warm.Offer{single}, 4},
		"a budget that has shrunk below all keeps none":        {5, 8, []warm.Held{node(1, 20)}, []warm.Offer{single}, 0},
		"no more than is wanted":                               {80, 3, []warm.Held{node(8, 60)}, []warm.Offer{single}, 3},
		"nothing is wanted":                                    {80, 0, []warm.Held{node(8, 60)}, []warm.Offer{single}, 0},
		"offers without room are no offers":                    {80, 8, nil, []warm.Offer{{Units: 0, Price: 1}}, 0},
		"the greatest prices do not overflow":                  {math.MaxInt64 / dollar, 8, nil, []warm.Offer{{Units: 1, Price: math.MaxInt64/2 + 1}}, 1},
		"a part of a large node may be all that is affordable": {60, 10, nil, []warm.Offer{eight}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			if got := warm.Budget(tc.budget*dollar).Bound(tc.want, tc.held, tc.offers); got != tc.bound {
				t.Errorf("got %d, want %d", got, tc.bound)
			}
		})
	}
}

// cheapest tries every combination.
func cheapest(n int, offers []warm.Offer) int64 {
	if n <= 0 {
		return 0
	}
	best := int64(math.MaxInt64)
	for _, o := range offers {
		if o.Units > 0 {
			if rest := cheapest(n-o.Units, offers); rest < math.MaxInt64 {
				best = min(best, rest+o.Price)
			}
		}
	}
	return best
}

func TestAffordableAgreesWithAllCombinations(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		offers := make([]warm.Offer, 1+random.IntN(3))
		for i := range offers {
			offers[i] = warm.Offer{Units: random.IntN(5), Price: random.Int64N(20)}
		}
		want, budget := random.IntN(9), random.Int64N(60)
		wanted := 0
		for n := 1; n <= want; n++ {
			if cheapest(n, offers) <= budget {
				wanted = n
			}
		}
		if got := warm.Affordable(budget, want, offers); got != wanted {
			t.Fatalf("%d for %d with %v: got %d, want %d", want, budget, offers, got, wanted)
		}
	}
}

// TestBoundSettles plays what follows a decision: the amount stands on the held nodes that
// cost least, the rest goes. The decision must then stay.
func TestBoundSettles(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		offers := []warm.Offer{{Units: 1 + random.IntN(8), Price: 1 + random.Int64N(40)}, {Units: 1, Price: 1 + random.Int64N(20)}}
		var held []warm.Held
		for range random.IntN(5) {
			units := 1 + random.IntN(8)
			held = append(held, warm.Held{Units: units, Room: 0, Price: 1 + random.Int64N(60)})
		}
		want, budget := random.IntN(30), warm.Budget(random.Int64N(200))
		bound := budget.Bound(want, held, offers)
		if got := budget.Bound(bound, held, offers); got != bound {
			t.Fatalf("%v within %d: %d of %d, then %d", held, budget, bound, want, got)
		}
		var spent int64
		for _, h := range held {
			spent += h.Price
		}
		if spent <= int64(budget) && bound < min(want, total(held)) {
			t.Fatalf("%v within %d: %d of %d, though all that is held is affordable", held, budget, bound, want)
		}
	}
}

func total(held []warm.Held) (units int) {
	for _, h := range held {
		units += h.Units + h.Room
	}
	return units
}
