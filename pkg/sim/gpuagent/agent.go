// Package gpuagent runs the real GPU agent on the nodes of a sandbox.
//
// For each simulated machine it keeps a simulated NVML in step with what the machine's faults
// and layout make of its GPUs, and runs the product's agent against it, in this process: the
// same sampling, judging and publishing as on a real node. What a reboot loses is lost here
// too, since a machine that reboots is another machine to the simulation.
package gpuagent

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
)

// A sandbox tells in minutes what takes a cluster hours, so that its agents look more often.
const (
	interval      = 3 * time.Second
	startInterval = 2 * time.Second
	heartbeat     = time.Minute
)

// The driver of all simulated machines, as in the labels that the simulated GFD writes.
const (
	driverVersion  = "580.95.05"
	libraryVersion = "13.580.95.05"
	cudaVersion    = "13.0"
	// nvSwitchLinks is how many NVLinks a GPU on an NVSwitch board of the Hopper kind has.
	nvSwitchLinks = 18
)

// Operand is the agent as software of a simulated node.
type Operand struct {
	// Config is what agents write to the API server with. Token, where it is set, gives each agent
	// an identity of its own in place of Config's, by the name of its node.
	Config *rest.Config
	Token  func(ctx context.Context, node string) (string, error)
	Clock  clock.Clock
	Log    logr.Logger
}

var _ node.Operand = Operand{}

// Run implements node.Operand.
func (o Operand) Run(ctx context.Context, m *node.Machine) {
	shape, ok := catalog.Default().Shape(m.InstanceType())
	if !ok {
		return
	}
	log := o.Log.WithValues("Node", m.Name())
	publisher, err := o.publisher(ctx, m.Name())
	if err != nil {
		log.Error(err, "starting a simulated agent")
		return
	}
	facts, changed := m.Facts()
	library := nvml.NewLibrary(o.Clock, Picture(shape, m.BootID(), facts))
	sampler := agent.NewSampler(library, library, o.Clock, agent.SamplerOptions{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = agent.New(sampler, publisher, o.Clock, agent.Options{
			NodeName: m.Name(), Interval: interval, StartInterval: startInterval, Heartbeat: heartbeat,
		}).Run(logr.NewContext(ctx, log)) // the library hangs only where it is told to
	}()
	for {
		select {
		case <-done:
			return
		case <-changed:
			facts, changed = m.Facts()
			picture := Picture(shape, m.BootID(), facts)
			library.Update(func(x *nvml.Machine) { *x = picture })
		}
	}
}

func (o Operand) publisher(ctx context.Context, node string) (*agent.NodePublisher, error) {
	if o.Token == nil {
		return agent.NewNodePublisher(o.Config, node)
	}
	token, err := o.Token(ctx, node)
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(o.Config)
	config.BearerToken = token
	return agent.NewNodePublisher(config, node)
}

// Picture is what NVML shows of a machine.
func Picture(shape catalog.Shape, boot string, facts node.Facts) nvml.Machine {
	n := shape.GPUs
	if facts.Driver && facts.Found >= 0 {
		n = min(n, facts.Found)
	}
	links := 0
	if shape.Link == catalog.LinkNVSwitch {
		links = nvSwitchLinks
	}
	m := nvml.NewMachine(n, shape.Model.Product, shape.GPUMemoryMiB, shape.Model.Compute.String(), links)
	m.BootID, m.Module = boot, driverVersion
	m.Node = agent.Node{DriverVersion: driverVersion, LibraryVersion: libraryVersion, CUDAVersion: cudaVersion}
	switch {
	case !facts.Driver:
		m.Init, m.Module = agent.DriverNotLoaded, ""
	case facts.Mismatch:
		m.Init = agent.VersionMismatch
	}
	divide(&m, node.LayoutsOf(shape.Name, facts.Layout, facts.File))
	for i := max(0, n-facts.LostGPUs); i < n; i++ {
		m.GPUs[i].Lost = true
	}
	for _, x := range node.ParseXIDs(facts.XIDs) {
		event := health.XIDEvent{Code: x.Code, GPU: 0, GI: -1}
		if x.Instance > 0 {
			event.GI = x.Instance
		}
		m.Events = append(m.Events, event)
	}
	return m
}

func divide(m *nvml.Machine, layouts []mig.Layout) {
	for i, layout := range layouts {
		if i < len(m.GPUs) && layout.MIGEnabled() {
			_ = m.Partition(i, partitions(layout)...) // placements are well formed
		}
	}
}

func partitions(layout mig.Layout) []health.Partition {
	var out []health.Partition
	for _, p := range layout.Placements() {
		out = append(out, health.Partition(fmt.Sprintf("%s@%d+%d", p.Profile, p.Start, p.Size)))
	}
	return out
}
