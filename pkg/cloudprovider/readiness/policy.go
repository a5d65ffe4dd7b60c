package readiness

import (
	"encoding/json"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

var xidClasses = map[v1alpha1.XIDAction]health.XIDClass{
	v1alpha1.XIDActionIgnore:  health.XIDApplication,
	v1alpha1.XIDActionWarn:    health.XIDWarn,
	v1alpha1.XIDActionFence:   health.XIDReset,
	v1alpha1.XIDActionReboot:  health.XIDReboot,
	v1alpha1.XIDActionReplace: health.XIDReplace,
}

// AgentPolicy is what the pool tells the agents of its nodes, as one line that
// health.ParsePolicy reads; empty when the pool changes nothing. The versions that a pool
// demands are not in it: they are for new nodes, and the controller checks them.
func AgentPolicy(pool *v1alpha1.GPUPool) string {
	type check struct {
		Disabled bool            `json:"disabled,omitempty"`
		Severity health.Severity `json:"severity,omitempty"`
	}
	type xid struct {
		Code  int             `json:"code"`
		Class health.XIDClass `json:"class"`
	}
	var out struct {
		Checks map[v1alpha1.CheckName]check `json:"checks,omitempty"`
		XIDs   []xid                        `json:"xids,omitempty"`
	}
	for _, c := range pool.Spec.Readiness.Checks {
		disabled := c.Enabled != nil && !*c.Enabled
		if !disabled && c.Severity == "" {
			continue
		}
		if out.Checks == nil {
			out.Checks = map[v1alpha1.CheckName]check{}
		}
		out.Checks[c.Name] = check{Disabled: disabled, Severity: health.Severity(c.Severity)}
	}
	for _, p := range pool.Spec.Health.XIDPolicies {
		for _, code := range p.Codes {
			out.XIDs = append(out.XIDs, xid{Code: int(code), Class: xidClasses[p.Action]})
		}
	}
	if len(out.Checks) == 0 && len(out.XIDs) == 0 {
		return ""
	}
	line, err := json.Marshal(out)
	if err != nil {
		return "" // strings and numbers marshal
	}
	return string(line)
}
