package scenario

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// Duration is a time.Duration that YAML writes as Go does: 500ms, 20s, 2m.
type Duration time.Duration

// UnmarshalYAML reads a duration and refuses a negative one.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil || v < 0 {
		return lineError(n, "%q is not a duration; write for example 500ms, 20s or 2m", n.Value)
	}
	*d = Duration(v)
	return nil
}

// String returns the duration as Go prints it.
func (d Duration) String() string { return time.Duration(d).String() }

// Count is a closed range of whole numbers: 80, ">=1", "<=5" or "17..25" in YAML.
// The zero value is exactly zero, so optional counts are pointers.
type Count struct{ Min, Max int }

// Exactly returns the Count that only n fits.
func Exactly(n int) *Count { return &Count{Min: n, Max: n} }

// AtLeast returns the Count that n and more fit.
func AtLeast(n int) *Count { return &Count{Min: n, Max: math.MaxInt} }

// Fits reports whether n is in the range.
func (c Count) Fits(n int) bool { return n >= c.Min && n <= c.Max }

// String returns the range as YAML writes it.
func (c Count) String() string {
	switch {
	case c.Min == c.Max:
		return strconv.Itoa(c.Min)
	case c.Max == math.MaxInt:
		return fmt.Sprintf(">=%d", c.Min)
	case c.Min == 0:
		return fmt.Sprintf("<=%d", c.Max)
	}
	return fmt.Sprintf("%d..%d", c.Min, c.Max)
}

// UnmarshalYAML reads one of the four forms.
func (c *Count) UnmarshalYAML(n *yaml.Node) error {
	v, err := parseCount(n.Value)
	if err != nil {
		return lineError(n, `%q is not a count; write 80, ">=1", "<=5" or "17..25"`, n.Value)
	}
	*c = v
	return nil
}

func parseCount(s string) (Count, error) {
	s = strings.TrimSpace(s)
	if rest, ok := strings.CutPrefix(s, ">="); ok {
		low, err := natural(rest)
		return Count{Min: low, Max: math.MaxInt}, err
	}
	if rest, ok := strings.CutPrefix(s, "<="); ok {
		high, err := natural(rest)
		return Count{Max: high}, err
	}
	low, high, ok := strings.Cut(s, "..")
	if !ok {
		high = low
	}
	from, err := natural(low)
	if err != nil {
		return Count{}, err
	}
	to, err := natural(high)
	if err != nil {
		return Count{}, err
	}
	if to < from {
		return Count{}, strconv.ErrRange
	}
	return Count{Min: from, Max: to}, nil
}

func natural(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err == nil && n < 0 {
		return 0, strconv.ErrRange
	}
	return n, err
}

// Phases are pod phases, any of which fits. YAML writes one as text, several as a list.
type Phases []string

// UnmarshalYAML reads one phase or a list of them.
func (p *Phases) UnmarshalYAML(n *yaml.Node) error {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	for _, item := range items {
		switch item.Value {
		case "Pending", "Running", "Succeeded", "Failed":
			*p = append(*p, item.Value)
		default:
			return lineError(item, "%q is no pod phase; write Pending, Running, Succeeded or Failed", item.Value)
		}
	}
	return nil
}

// Fits reports whether the phase is one of them; every phase fits none.
func (p Phases) Fits(phase string) bool { return len(p) == 0 || slices.Contains(p, phase) }

// String joins the phases by a slash.
func (p Phases) String() string { return strings.Join(p, "/") }
