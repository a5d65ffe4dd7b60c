package stack

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws/kwoknode"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

// Options say what to start. Dir and BinDir are needed.
type Options struct {
	// Dir gets data, kubeconfig and logs. Stop leaves it.
	Dir string
	// BinDir holds controller and stock-controller, and the control plane's binaries below
	// controlplane/ unless Assets names another directory.
	BinDir, Assets string
	// Settings are those of a scenario; the zero value is our controller and a boot of 2 s.
	Settings scenario.Settings
	// Ports fix ports; zero fields take free ones.
	Ports Ports
	// Administrators lets the controller and the agents do everything. Otherwise they have the
	// ServiceAccounts of the charts and no more rights than those, and Usage tells what they did.
	Administrators bool
	// Launcher makes nodes of instances; nil makes KWOK's. It is called once, when the control
	// plane is up.
	Launcher func(*controlplane.ControlPlane, client.Client) (aws.NodeLauncher, error)
	// Operands run on each GPU node beside NVIDIA's software.
	Operands []node.Operand
	// Progress hears of each phase. It may be nil, and is called from one goroutine.
	Progress func(phase string)
	// Clock is the real one when nil.
	Clock clock.WithTicker
	Log   logr.Logger
}

// Ports are where a sandbox listens on loopback. Metrics and Health are those of the first replica.
type Ports struct {
	APIServer, AWS, Metrics, Health int
}

// binaries of the controllers, by the scenario's name for them.
var binaries = map[string]string{
	scenario.ControllerOurs:  "controller",
	scenario.ControllerStock: "stock-controller",
}

func (o *Options) complete() error {
	if o.Settings.Controller == "" {
		o.Settings.Controller = scenario.ControllerOurs
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Launcher == nil {
		o.Launcher = func(_ *controlplane.ControlPlane, api client.Client) (aws.NodeLauncher, error) {
			return kwoknode.New(api, kwoknode.Options{}), nil
		}
	}
	if o.Settings.Boot == nil {
		boot := node.Fixed(defaultBoot)
		o.Settings.Boot = &boot
	}
	name, ok := binaries[o.Settings.Controller]
	if !ok {
		return fmt.Errorf("controller %q is neither %s nor %s", o.Settings.Controller, scenario.ControllerOurs, scenario.ControllerStock)
	}
	path := filepath.Join(o.BinDir, name)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("no controller at %s; run make build, or point --bin at a directory that has it", path)
	}
	return nil
}

func (o *Options) controllerPath() string {
	return filepath.Join(o.BinDir, binaries[o.Settings.Controller])
}

// z95 is the 95th percentile of the standard normal distribution.
const z95 = 1.6448536269514722

// awsDelay gives the simulated AWS the same distribution in its own terms.
func awsDelay(d node.Delay) aws.Delay {
	switch {
	case d.Median > 0:
		return aws.LogNormal(d.Median, math.Log(float64(d.P95)/float64(d.Median))/z95)
	case d.Max > d.Min:
		return aws.Uniform(d.Min, d.Max)
	}
	return aws.Fixed(d.Min)
}
