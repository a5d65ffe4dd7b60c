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

// agentPolicy is the part of a health.Policy that a pool can set.
type agentPolicy struct {
	Checks map[v1alpha1.CheckName]agentCheck `json:"checks,omitempty"`
	XIDs   []agentXID                        `json:"xids,omitempty"`
}

type agentCheck struct {
	Disabled bool            `json:"disabled,omitempty"`
	Severity health.Severity `json:"severity,omitempty"`
	Timeout  string          `json:"timeout,omitempty"`
}

type agentXID struct {
	Code  int             `json:"code"`
	Class health.XIDClass `json:"class"`
}

// AgentPolicy is what the pool tells the agents of its nodes, as one line that
// health.ParsePolicy reads; empty when the pool changes nothing. A check that the pool names
// is there even where the pool only turns it on: an agent may have been started with it off.
// The versions that a pool demands are not in it: they are for new nodes, and the controller
// checks them.
func AgentPolicy(pool *v1alpha1.GPUPool) string {
	var out agentPolicy
	for _, c := range pool.Spec.Readiness.Checks {
		check := agentCheck{Disabled: c.Enabled != nil && !*c.Enabled, Severity: health.Severity(c.Severity)}
		if c.Timeout != nil && health.Check(c.Name).Timed() {
			check.Timeout = c.Timeout.Duration.String()
		}
		if out.Checks == nil {
			out.Checks = map[v1alpha1.CheckName]agentCheck{}
		}
		out.Checks[c.Name] = check
	}
	for _, p := range pool.Spec.Health.XIDPolicies {
		for _, code := range p.Codes {
			out.XIDs = append(out.XIDs, agentXID{Code: int(code), Class: xidClasses[p.Action]})
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
