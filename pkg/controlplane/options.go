package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// Component is one program of the control plane; its value is the file name of the binary.
type Component string

// The components, in the order in which they start.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	KWOK              Component = "kwok"
)

// Defaults of Options.
const (
	// DefaultNodeMonitorGracePeriod is kube-controller-manager's own default.
	DefaultNodeMonitorGracePeriod = 50 * time.Second
	// DefaultStartTimeout covers a start on a machine that compiles at the same time; an
	// idle one needs under 3 s for the slowest component.
	DefaultStartTimeout = 90 * time.Second
	// DefaultStopTimeout is how long a component may take to end after SIGTERM.
	DefaultStopTimeout = 20 * time.Second
	// minNodeMonitorGracePeriod is the least that leaves KWOK four renewals of a lease,
	// whose duration is counted in whole seconds.
	minNodeMonitorGracePeriod = 5 * time.Second
)

// AllComponents is the whole stack in start order. The caller owns the result.
func AllComponents() []Component {
	return []Component{Etcd, APIServer, ControllerManager, Scheduler, KWOK}
}

// APIOnly is what tests of controllers and of validation need: a server that stores
// and validates objects, and nothing that acts on them. The caller owns the result.
func APIOnly() []Component {
	return []Component{Etcd, APIServer}
}

// Options says what to start. The zero value starts everything in a temporary directory.
type Options struct {
	// Dir holds data, certificates, kubeconfigs and logs (<Dir>/logs/<component>.log). It
	// is created if missing; a plane started again in the same Dir finds its objects.
	// Empty means a temporary directory that Stop removes.
	Dir string
	// Assets is the directory of the binaries. Empty means $KUBEBUILDER_ASSETS, then
	// "controlplane" beside the running executable, then the repository's
	// bin/controlplane, for each binary apart.
	Assets string
	// Components to start, in any order; nil means AllComponents. All need Etcd and APIServer.
	Components []Component
	// APIServerPort fixes the port of kube-apiserver; 0 means a free one.
	APIServerPort int
	// ExtraArgs come after the built-in arguments, so that they win, except that list
	// flags such as --controllers add up.
	ExtraArgs map[Component][]string
	// NodeMonitorGracePeriod is how long a silent node stays Ready; 0 means
	// DefaultNodeMonitorGracePeriod, and the least is 5 s. KWOK's leases shorten with it.
	NodeMonitorGracePeriod time.Duration
	// StartTimeout bounds the start of each component; 0 means DefaultStartTimeout.
	StartTimeout time.Duration
	// StopTimeout is each component's time between SIGTERM and SIGKILL; 0 means DefaultStopTimeout.
	StopTimeout time.Duration
	// Clock dates the certificates; nil means the real clock.
	Clock clock.PassiveClock
}

// withDefaults returns a copy without zero values, except for Dir, Assets and APIServerPort.
func (o Options) withDefaults() Options {
	if o.Components == nil {
		o.Components = AllComponents()
	}
	if o.NodeMonitorGracePeriod == 0 {
		o.NodeMonitorGracePeriod = DefaultNodeMonitorGracePeriod
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = DefaultStartTimeout
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = DefaultStopTimeout
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// validate expects defaults to be set.
func (o Options) validate() error {
	for _, c := range o.Components {
		if !slices.Contains(AllComponents(), c) {
			return fmt.Errorf("Components: unknown component %q, use %s", c, joinComponents(AllComponents())) //nolint:staticcheck // starts with the name of the field
		}
	}
	for c := range o.ExtraArgs {
		if !slices.Contains(o.Components, c) {
			return fmt.Errorf("ExtraArgs: component %q is not started, add it to Components or drop its arguments", c)
		}
	}
	for _, c := range APIOnly() {
		if !o.has(c) {
			return fmt.Errorf("Components: %s lacks %s, which every other component needs", joinComponents(o.Components), c) //nolint:staticcheck // starts with the name of the field
		}
	}
	if o.APIServerPort < 0 || o.APIServerPort > 65535 {
		return fmt.Errorf("APIServerPort: %d is not a port, use 1 to 65535, or 0 for a free one", o.APIServerPort)
	}
	if o.NodeMonitorGracePeriod < minNodeMonitorGracePeriod {
		return fmt.Errorf("NodeMonitorGracePeriod: %s is below %s, under which nodes would flap", o.NodeMonitorGracePeriod, minNodeMonitorGracePeriod)
	}
	return nil
}

func (o Options) has(c Component) bool {
	return slices.Contains(o.Components, c)
}

func joinComponents(cs []Component) string {
	names := make([]string, 0, len(cs))
	for _, c := range cs {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}
