package scenario

import (
	"context"
	"time"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
)

// World is the sandbox that a scenario is played on.
type World interface {
	// Apply creates or updates the objects of a YAML text.
	Apply(ctx context.Context, manifests string) error
	// Delete deletes one object and its dependents; a missing one is an error.
	Delete(ctx context.Context, ref Ref) error
	// Scale sets replicas.
	Scale(ctx context.Context, ref Ref, replicas int) error
	// AddLocalNodes creates unmanaged nodes.
	AddLocalNodes(ctx context.Context, nodes LocalNodes) error

	// Fail and Heal begin and end a failure of the cloud.
	Fail(ctx context.Context, f Failure) error
	Heal(ctx context.Context, f Failure) error
	// Interrupt sends spot interruption warnings; Kill ends instances without one. Both return how
	// many instances were hit.
	Interrupt(ctx context.Context, t Targets) (int, error)
	Kill(ctx context.Context, t Targets) (int, error)

	// Reboot restarts machines, and Cordon makes nodes that match a selector unschedulable. Both
	// return how many were hit.
	Reboot(ctx context.Context, t Targets) (int, error)
	Cordon(ctx context.Context, selector string) (int, error)

	// FailNode and HealNode begin and end a fault of node software.
	FailNode(f node.Fault) error
	HealNode(name string) error

	// KillController sends SIGKILL, to the leader of several replicas, and waits for the end.
	// StartController starts what is down and waits until it is ready. RollController replaces one
	// replica after another by SIGTERM.
	KillController(ctx context.Context) error
	StartController(ctx context.Context) error
	RollController(ctx context.Context) error

	// Observe returns the present state. refs are the objects whose conditions are wanted.
	Observe(ctx context.Context, refs []Ref) (*Snapshot, error)
}

// Snapshot is the state of a sandbox at one moment. Checks read it and change nothing.
type Snapshot struct {
	Pods []Pod
	// Disrupted are the pods that were evicted, preempted or lost with their node since the start,
	// whether they still exist or not; those that had succeeded before are not among them.
	Disrupted []Pod
	Nodes     []Node
	// GonePods and GoneNodes are those that existed since the start and no longer do, as they last
	// were.
	GonePods   []Pod
	GoneNodes  []Node
	NodeClaims []string
	Events     []Event
	// Unverified are the pods with NVIDIA resources that were bound to a node before it was
	// verified in its boot.
	Unverified []Pod
	// Conditions holds an entry for every requested object that exists.
	Conditions map[Ref][]Condition
	Cloud      Cloud
}

// Pod is what checks need of a pod.
type Pod struct {
	Namespace, Name, Phase, Node string
	Labels                       map[string]string
	// Disruption is the reason of the condition DisruptionTarget, empty when it is not True.
	Disruption string
	// LateTaint: Kubernetes's taint manager ended the pod although its node carried no NoExecute
	// taint any more. The manager saw the pod bound before it saw the taint go, which happens on
	// any cluster where it is slower than the scheduler; nobody who manages nodes can prevent it.
	LateTaint bool
	// Waiting is the message of a false PodScheduled condition.
	Waiting string
	// Startup is the time from when the pod was first seen to when it was first seen Running, by
	// the sandbox's clock; zero while it has not been.
	Startup time.Duration
}

// Node is what checks need of a node.
type Node struct {
	Name        string
	Labels      map[string]string
	Ready       bool
	Cordoned    bool
	Taints      []string // keys
	Allocatable map[string]int64
}

// Event is one event object.
type Event struct{ Kind, Name, Reason, Message string }

// Condition is one status condition.
type Condition struct{ Type, Status, Reason, Message string }

// Cloud is the simulated cloud's own account. Instances includes the terminated ones.
type Cloud struct {
	Instances []Instance
	// Orphans are running instances without a NodeClaim; DoubleLaunches are NodeClaims that got
	// more than one instance.
	Orphans, DoubleLaunches []string
}

// Instance is one instance of the cloud. Price is in dollars an hour, End zero while it runs.
type Instance struct {
	ID, Type, Zone, CapacityType string
	Price                        float64
	Start, End                   time.Time
}

// Matches reports whether the instance is of the offering.
func (i Instance) Matches(o Offering) bool {
	return fits(o.InstanceType, i.Type) && fits(o.Zone, i.Zone) && fits(o.CapacityType, i.CapacityType)
}

func fits(want, got string) bool { return want == "" || want == got }
