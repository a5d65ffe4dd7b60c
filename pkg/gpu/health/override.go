package health

import (
	"maps"
	"slices"
)

// With returns the policy with the checks and XID rows of another on top. What the other
// does not name, and all of its further fields, stay as they are here. Neither policy is
// changed.
func (p Policy) With(other Policy) Policy {
	if len(other.Checks) > 0 {
		merged := maps.Clone(p.Checks)
		if merged == nil {
			merged = map[Check]CheckPolicy{}
		}
		maps.Copy(merged, other.Checks)
		p.Checks = merged
	}
	if len(other.XIDs) > 0 {
		kept := slices.DeleteFunc(slices.Clone(p.XIDs), func(row XIDPolicy) bool {
			return slices.ContainsFunc(other.XIDs, func(o XIDPolicy) bool { return o.Code == row.Code })
		})
		p.XIDs = append(kept, other.XIDs...)
	}
	return p
}
