package v1alpha1_test

import (
	"math"
	"testing"
	"testing/quick"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

func TestParsePrice(t *testing.T) {
	for name, tc := range map[string]struct {
		in         string
		want       v1alpha1.Price
		wantString string
		wantErr    bool
	}{
		"whole dollars":                  {in: "400", want: 400_000_000, wantString: "400.00"},
		"cents":                          {in: "12.50", want: 12_500_000, wantString: "12.50"},
		"what floats cannot hold":        {in: "0.1", want: 100_000, wantString: "0.10"},
		"the smallest step":              {in: "0.000001", want: 1, wantString: "0.000001"},
		"zero":                           {in: "0", want: 0, wantString: "0.00"},
		"leading zeros":                  {in: "007.5", want: 7_500_000, wantString: "7.50"},
		"the greatest that CEL lets by":  {in: "999999999.999999", want: 999_999_999_999_999, wantString: "999999999.999999"},
		"nothing":                        {in: "", wantErr: true},
		"a sign":                         {in: "-1", wantErr: true},
		"an exponent":                    {in: "1e3", wantErr: true},
		"no digit before the point":      {in: ".5", wantErr: true},
		"no digit after the point":       {in: "5.", wantErr: true},
		"seven digits after the point":   {in: "0.0000001", wantErr: true},
		"ten digits before the point":    {in: "1000000000", wantErr: true},
		"a space":                        {in: " 1", wantErr: true},
		"a second line":                  {in: "1\n", wantErr: true},
		"a comma":                        {in: "1,5", wantErr: true},
		"digits of another script":       {in: "١٢", wantErr: true},
		"not a number, as floats say it": {in: "NaN", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := v1alpha1.ParsePrice(tc.in)
			if (err != nil) != tc.wantErr {
				t.Fatalf("ParsePrice(%q) error = %v, want error %v", tc.in, err, tc.wantErr)
			}
			if err != nil {
				return
			}
			if got != tc.want || got.String() != tc.wantString {
				t.Errorf("ParsePrice(%q) = %d, %q; want %d, %q", tc.in, got, got, tc.want, tc.wantString)
			}
		})
	}
}

func TestPriceFromFloat(t *testing.T) {
	for name, tc := range map[string]struct {
		in   float64
		want v1alpha1.Price
	}{
		"a list price":                {0.526, 526_000},
		"a spot price, rounded":       {0.12345678, 123_457},
		"an unknown price is not low": {math.NaN(), v1alpha1.MaxPrice},
		"no price, as Karpenter says": {math.MaxFloat64, v1alpha1.MaxPrice},
		"infinity":                    {math.Inf(1), v1alpha1.MaxPrice},
		"the first that does not fit": {math.MaxInt64 / 1e6, v1alpha1.MaxPrice},
		"a negative price":            {-3, 0},
		"negative infinity":           {math.Inf(-1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := v1alpha1.PriceFromFloat(tc.in); got != tc.want {
				t.Errorf("PriceFromFloat(%v) = %d, want %d", tc.in, got, tc.want)
			}
		})
	}
}

func TestPriceArithmeticSaturates(t *testing.T) {
	const most = v1alpha1.MaxPrice
	for name, tc := range map[string]struct{ got, want v1alpha1.Price }{
		"a sum":                              {v1alpha1.Price(2).Add(3), 5},
		"a sum past the greatest":            {most.Add(1), most},
		"a sum with a negative":              {v1alpha1.Price(2).Add(-3), 2},
		"what is left":                       {v1alpha1.Price(5).Sub(3), 2},
		"nothing is left":                    {v1alpha1.Price(3).Sub(5), 0},
		"what is left of an unknown price":   {most.Sub(7), most},
		"an unknown price is taken away":     {most.Sub(most), 0},
		"a product":                          {v1alpha1.Price(5).Mul(3), 15},
		"a product past the greatest":        {(most/2 + 1).Mul(2), most},
		"a product with nothing":             {most.Mul(0), 0},
		"a product with a negative count":    {v1alpha1.Price(5).Mul(-1), 0},
		"a negative price counts as nothing": {v1alpha1.Price(-5).Mul(3), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got %d, want %d", tc.got, tc.want)
			}
		})
	}
}

func TestPriceProperties(t *testing.T) {
	addCommutes := func(a, b int64) bool {
		p, q := v1alpha1.Price(a), v1alpha1.Price(b)
		return p.Add(q) == q.Add(p) && p.Add(q) >= max(p, q, 0)
	}
	mulIsRepeatedAdd := func(a int64, n uint8) bool {
		sum := v1alpha1.Price(0)
		for range n {
			sum = sum.Add(v1alpha1.Price(a))
		}
		return v1alpha1.Price(a).Mul(int(n)) == sum
	}
	stringParsesBack := func(a uint64) bool {
		p := v1alpha1.Price(a % 1_000_000_000_000_000)
		back, err := v1alpha1.ParsePrice(p.String())
		return err == nil && back == p
	}
	for name, property := range map[string]any{
		"adding commutes and never shrinks": addCommutes,
		"multiplying is adding repeatedly":  mulIsRepeatedAdd,
		"printing and parsing":              stringParsesBack,
	} {
		t.Run(name, func(t *testing.T) {
			if err := quick.Check(property, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func FuzzParsePrice(f *testing.F) {
	// One seed per branch: whole, fraction, too long, sign, other script.
	for _, seed := range []string{"400", "12.50", "0.0000001", "-1", "１"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		price, err := v1alpha1.ParsePrice(s)
		if err != nil {
			return
		}
		if back, err := v1alpha1.ParsePrice(price.String()); err != nil || back != price || price < 0 {
			t.Errorf("ParsePrice(%q) = %d, which prints as %q and parses to %d, %v", s, price, price, back, err)
		}
	})
}
