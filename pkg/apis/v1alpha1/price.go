package v1alpha1

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Price is an amount of money per hour in millionths of a US dollar. It exists because
// sums of float prices depend on their order and drift across a limit: with Price, adding
// the same nodes gives the same sum in any order, and "400" is reached at 400 exactly.
// Arithmetic saturates at MaxPrice and at zero in place of wrapping round, so that a sum
// that is too large is still over every limit.
type Price int64

const (
	// MaxPrice is the greatest price. It stands for "more than can be said".
	MaxPrice Price = math.MaxInt64
	// microsPerDollar is the scale of Price.
	microsPerDollar = 1_000_000
)

// pricePattern is the one in the CEL rules of pricePerHour and maxPricePerHour.
var pricePattern = regexp.MustCompile(`^([0-9]{1,9})(?:\.([0-9]{1,6}))?$`)

// ParsePrice reads a decimal such as "400" or "12.50", exactly. Signs, exponents, spaces
// and more than six digits after the point are errors.
func ParsePrice(s string) (Price, error) {
	parts := pricePattern.FindStringSubmatch(s)
	if parts == nil {
		return 0, fmt.Errorf("parsing price %q, want a decimal number of US dollars per hour with up to six digits after the point, such as \"12.50\"", s)
	}
	digits := parts[1] + parts[2] + strings.Repeat("0", 6-len(parts[2]))
	micros, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parsing price %q, %w", s, err)
	}
	return Price(micros), nil
}

// PriceFromFloat rounds a float price, as Karpenter's offerings have, to the nearest
// millionth. NaN and prices too large to hold become MaxPrice, so that an unknown price is
// never taken for a cheap one; negative ones become zero.
func PriceFromFloat(dollars float64) Price {
	micros := math.Round(dollars * microsPerDollar)
	switch {
	case math.IsNaN(micros) || micros >= math.MaxInt64:
		return MaxPrice
	case micros <= 0:
		return 0
	}
	return Price(micros)
}

// Add is p+q, at most MaxPrice. Negative operands count as zero.
func (p Price) Add(q Price) Price {
	p, q = max(p, 0), max(q, 0)
	if p > MaxPrice-q {
		return MaxPrice
	}
	return p + q
}

// Sub is p-q, at least zero: what is left of a budget. MaxPrice less anything but MaxPrice
// stays MaxPrice.
func (p Price) Sub(q Price) Price {
	p, q = max(p, 0), max(q, 0)
	switch {
	case q >= p:
		return 0
	case p == MaxPrice:
		return MaxPrice
	}
	return p - q
}

// Mul is p times n, at most MaxPrice. A negative n counts as zero.
func (p Price) Mul(n int) Price {
	p, n = max(p, 0), max(n, 0)
	if n != 0 && p > MaxPrice/Price(n) {
		return MaxPrice
	}
	return p * Price(n)
}

// Float is the price in US dollars per hour, for metrics and display only.
func (p Price) Float() float64 {
	return float64(p) / microsPerDollar
}

// String is the price in US dollars per hour with at least two digits after the point
// and no more than needed: "0.00", "12.50", "0.526". For what ParsePrice returns, parsing
// the string gives the price back.
func (p Price) String() string {
	p = max(p, 0)
	fraction := strings.TrimRight(fmt.Sprintf("%06d", p%microsPerDollar), "0")
	if len(fraction) < 2 {
		fraction += strings.Repeat("0", 2-len(fraction))
	}
	return fmt.Sprintf("%d.%s", p/microsPerDollar, fraction)
}
