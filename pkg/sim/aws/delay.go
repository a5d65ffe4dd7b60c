package aws

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Delay is a distribution of durations. The zero value is no delay at all.
type Delay struct {
	kind  string
	a, b  time.Duration
	sigma float64
}

// Fixed is a delay that is always d.
func Fixed(d time.Duration) Delay { return Delay{kind: "fixed", a: d} }

// Uniform is a delay between shortest and longest, all equally likely.
func Uniform(shortest, longest time.Duration) Delay {
	return Delay{kind: "uniform", a: shortest, b: longest}
}

// LogNormal is a delay with the given median whose logarithm has the standard
// deviation sigma: about 95 in 100 samples lie within a factor of exp(2*sigma)
// of the median. Boot times of real machines are shaped like this.
func LogNormal(median time.Duration, sigma float64) Delay {
	return Delay{kind: "lognormal", a: median, sigma: sigma}
}

// ParseDelay reads "40s", "uniform(20s,60s)" or "lognormal(45s,0.4)".
func ParseDelay(s string) (Delay, error) {
	text := strings.ReplaceAll(s, " ", "")
	if d, err := time.ParseDuration(text); err == nil {
		return Fixed(d).valid()
	}
	name, rest, ok := strings.Cut(text, "(")
	first, second, pair := strings.Cut(strings.TrimSuffix(rest, ")"), ",")
	a, err := time.ParseDuration(first)
	if ok && pair && err == nil && strings.HasSuffix(rest, ")") {
		b, errB := time.ParseDuration(second)
		sigma, errSigma := strconv.ParseFloat(second, 64)
		switch {
		case name == "uniform" && errB == nil:
			return Uniform(a, b).valid()
		case name == "lognormal" && errSigma == nil:
			return LogNormal(a, sigma).valid()
		}
	}
	return Delay{}, fmt.Errorf("parsing delay %q, write a duration such as 40s, uniform(20s,60s) or lognormal(45s,0.4)", s)
}

// String is the form that ParseDelay reads.
func (d Delay) String() string {
	switch d.kind {
	case "uniform":
		return fmt.Sprintf("uniform(%s,%s)", d.a, d.b)
	case "lognormal":
		return fmt.Sprintf("lognormal(%s,%s)", d.a, strconv.FormatFloat(d.sigma, 'g', -1, 64))
	default:
		return d.a.String()
	}
}

// UnmarshalText reads the form of ParseDelay, so that scenario files can hold one.
func (d *Delay) UnmarshalText(text []byte) error {
	parsed, err := ParseDelay(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// MarshalText writes the form of ParseDelay.
func (d Delay) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Delay) valid() (Delay, error) {
	if d.a < 0 {
		return d, fmt.Errorf("delay %s is negative, use 0s or more", d)
	}
	if d.kind == "uniform" && d.b < d.a {
		return d, fmt.Errorf("delay %s ends before it starts, put the shorter duration first", d)
	}
	if d.kind == "lognormal" && (math.IsNaN(d.sigma) || d.sigma < 0 || d.sigma > 3) {
		return d, fmt.Errorf("delay %s has a sigma outside 0 to 3", d)
	}
	return d, nil
}

// sample draws the n-th value of the stream that seed names, so that the delay of
// one instance does not depend on how many calls came in between.
func (d Delay) sample(seed, n uint64) time.Duration {
	r := rand.New(rand.NewPCG(seed, n)) //nolint:gosec // a simulation wants a seeded generator
	switch d.kind {
	case "uniform":
		return d.a + time.Duration(r.Float64()*float64(d.b-d.a))
	case "lognormal":
		return time.Duration(float64(d.a) * math.Exp(d.sigma*r.NormFloat64()))
	default:
		return d.a
	}
}
