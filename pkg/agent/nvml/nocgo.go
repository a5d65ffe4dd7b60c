//go:build !cgo

package nvml

import (
	"time"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// New returns a library that is never found: this binary was built without cgo.
func New(string) agent.Library { return absent{} }

type absent struct{}

func (absent) missing() error {
	return agent.NewError(agent.LibraryMissing, "dlopen", "this agent was built without cgo and cannot load NVML")
}
func (a absent) Init() error               { return a.missing() }
func (a absent) Shutdown() error           { return a.missing() }
func (a absent) Node() (agent.Node, error) { return agent.Node{}, a.missing() }
func (a absent) Observe(health.Check, int) (health.GPU, error) {
	return health.GPU{}, a.missing()
}
func (a absent) Wait(time.Duration) ([]health.XIDEvent, error) { return nil, a.missing() }
