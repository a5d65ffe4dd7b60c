package warm

import (
	"cmp"
	"math"
	"slices"
)

// Offer is one way to buy a node: how many units of the amount it has room for, and its
// price per hour in millionths of a dollar. Offers without room are ignored.
type Offer struct {
	Units int
	Price int64
}

// Held is a node that holds some of the amount already.
type Held struct {
	// Units is how much of the amount stands on the node, Room how much more would.
	Units, Room int
	// Price is what the amount pays for the node per hour, in millionths of a dollar: all of
	// it, or its part where others use the node too.
	Price int64
}

// Budget is a bound on what an amount may cost per hour, in millionths of a dollar.
type Budget int64

// Bound is how much of an amount is held ready within the budget: at most want.
//
// Nodes that are held count at their own price. If they alone pass the budget, those that
// cost least for each unit are kept. What is left of the budget buys more, at the best of
// the offers. So an amount that once was affordable is not given up because the offers have
// become dearer, and no more is asked for until the budget has room for it.
func (b Budget) Bound(want int, held []Held, offers []Offer) int {
	want = max(0, want)
	kept, spent := b.keep(held)
	return min(want, kept+Affordable(int64(b)-spent, max(0, want-kept), offers))
}

// keep is what stands, and could stand, on the held nodes that the budget covers, and what
// these cost.
func (b Budget) keep(held []Held) (units int, spent int64) {
	sorted := slices.Clone(held)
	slices.SortStableFunc(sorted, func(x, y Held) int {
		return cmp.Or(cmp.Compare(perUnit(x), perUnit(y)), cmp.Compare(y.Units, x.Units))
	})
	for _, h := range sorted {
		if h.Price > int64(b)-spent {
			continue
		}
		spent += h.Price
		units += h.Units + h.Room
	}
	return units, spent
}

func perUnit(h Held) float64 {
	if h.Units <= 0 {
		return math.Inf(1)
	}
	return float64(h.Price) / float64(h.Units)
}

// Affordable is the greatest amount, at most want, for which there are nodes among the
// offers, each as often as one likes, that have room for it and cost at most the budget.
func Affordable(budget int64, want int, offers []Offer) int {
	offers = slices.DeleteFunc(slices.Clone(offers), func(o Offer) bool { return o.Units <= 0 || o.Price > budget })
	if budget < 0 || want <= 0 || len(offers) == 0 {
		return 0
	}
	// cost[n] is the least price of room for n units.
	cost := make([]int64, want+1)
	for n := 1; n <= want; n++ {
		cost[n] = math.MaxInt64
		for _, o := range offers {
			if rest := cost[max(0, n-o.Units)]; rest <= math.MaxInt64-o.Price {
				cost[n] = min(cost[n], rest+max(0, o.Price))
			}
		}
		if cost[n] > budget {
			return n - 1
		}
	}
	return want
}
