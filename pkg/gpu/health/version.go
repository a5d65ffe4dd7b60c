package health

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxVersionParts bounds a version such as 550.54.15.
const maxVersionParts = 4

// ParseVersion reads a dotted version of one to four numbers.
func ParseVersion(s string) ([]int, error) {
	parts := strings.Split(s, ".")
	if s == "" || len(parts) > maxVersionParts {
		return nil, fmt.Errorf("version %q is not of the form 550.54.15, give one to four numbers joined by dots", s)
	}
	out := make([]int, len(parts))
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("version %q is not of the form 550.54.15, part %q is no number", s, p)
		}
		out[i] = int(n)
	}
	return out, nil
}

// atLeast reports whether have is min or newer; missing parts count as zero. A
// version that cannot be read is never new enough.
func atLeast(have, min string) bool {
	h, err := ParseVersion(have)
	if err != nil {
		return false
	}
	m, err := ParseVersion(min)
	if err != nil {
		return false
	}
	for i := range maxVersionParts {
		if c := cmp.Compare(part(h, i), part(m, i)); c != 0 {
			return c > 0
		}
	}
	return true
}

func part(v []int, i int) int {
	if i < len(v) {
		return v[i]
	}
	return 0
}

// profileCounts counts instances by profile.
func profileCounts(instances []MIGInstance) map[string]int {
	counts := map[string]int{}
	for _, in := range instances {
		counts[in.Profile]++
	}
	return counts
}

// layoutString tells counts per profile in one order: "1g.10gb:2 3g.40gb:1".
func layoutString(counts map[string]int) string {
	names := make([]string, 0, len(counts))
	for name, n := range counts {
		if n > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		names[i] = name + ":" + strconv.Itoa(counts[name])
	}
	if len(names) == 0 {
		return "no partitions"
	}
	return strings.Join(names, " ")
}
