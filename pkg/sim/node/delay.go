package node

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// Delay is a distribution of durations. The zero value is always zero.
// YAML writes it as 2s (fixed), 2s..5s (uniform) or {median: 40s, p95: 90s} (log-normal, as boot and
// driver times are: a floor, and a long tail).
type Delay struct {
	// Min and Max bound a uniform distribution; equal bounds make it fixed.
	Min, Max time.Duration
	// Median and P95 shape a log-normal distribution, which is used when Median is not zero.
	Median, P95 time.Duration
}

// Fixed returns the Delay that is always d.
func Fixed(d time.Duration) Delay { return Delay{Min: d, Max: d} }

// Never is longer than any run.
const Never = time.Duration(math.MaxInt64)

// z95 is the 95th percentile of the standard normal distribution.
const z95 = 1.6448536269514722

// For draws the delay of one thing. The same seed and key draw the same delay in every run and in
// any order.
func (d Delay) For(seed int64, key string) time.Duration {
	if d.Median == 0 && d.Max <= d.Min {
		return d.Min
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))                         // a hash does not fail
	r := rand.New(rand.NewPCG(uint64(seed), h.Sum64())) //nolint:gosec // a simulation repeats itself
	if d.Median == 0 {
		return d.Min + time.Duration(r.Int64N(int64(d.Max-d.Min)+1))
	}
	sigma := math.Log(float64(max(d.P95, d.Median))/float64(d.Median)) / z95
	return time.Duration(float64(d.Median) * math.Exp(sigma*min(r.NormFloat64(), 4)))
}

// String returns the delay as YAML writes it.
func (d Delay) String() string {
	switch {
	case d.Median != 0:
		return fmt.Sprintf("{median: %s, p95: %s}", d.Median, d.P95)
	case d.Min == d.Max:
		return d.Min.String()
	}
	return fmt.Sprintf("%s..%s", d.Min, d.Max)
}

// UnmarshalYAML reads one of the three forms.
func (d *Delay) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.MappingNode {
		return d.logNormal(n)
	}
	low, high, uniform := strings.Cut(n.Value, "..")
	if !uniform {
		high = low
	}
	from, err := time.ParseDuration(strings.TrimSpace(low))
	if err != nil {
		return fmt.Errorf("line %d: %q is not a delay; write 2s, 2s..5s or {median: 40s, p95: 90s}", n.Line, n.Value)
	}
	to, err := time.ParseDuration(strings.TrimSpace(high))
	if err != nil || from < 0 || to < from {
		return fmt.Errorf("line %d: %q is not a delay; write 2s, 2s..5s or {median: 40s, p95: 90s}", n.Line, n.Value)
	}
	*d = Delay{Min: from, Max: to}
	return nil
}

func (d *Delay) logNormal(n *yaml.Node) error {
	values := map[string]string{}
	if err := n.Decode(&values); err != nil {
		return fmt.Errorf("line %d: reading a delay, %w", n.Line, err)
	}
	median, errMedian := time.ParseDuration(values["median"])
	p95, errP95 := time.ParseDuration(values["p95"])
	if errMedian != nil || errP95 != nil || median <= 0 || p95 < median || len(values) != 2 {
		return fmt.Errorf("line %d: a log-normal delay needs exactly median and p95, with 0 < median <= p95", n.Line)
	}
	*d = Delay{Median: median, P95: p95}
	return nil
}
