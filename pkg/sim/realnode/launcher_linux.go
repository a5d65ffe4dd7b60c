package realnode

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws/kwoknode"
)

// Launcher lets a machine stand for one instance at a time, the first that boots while it is
// free; others become KWOK's nodes. It is an aws.NodeLauncher and an aws.NodeFailer.
type Launcher struct {
	machine *Machine
	api     client.Client
	others  *kwoknode.Launcher

	mu       sync.Mutex
	instance string
	kwok     map[string]bool // instances that are KWOK's
}

var (
	_ aws.NodeLauncher = (*Launcher)(nil)
	_ aws.NodeFailer   = (*Launcher)(nil)
)

// NewLauncher returns a Launcher. api must read from the API server and not from a cache.
func NewLauncher(m *Machine, api client.Client) *Launcher {
	return &Launcher{machine: m, api: api, others: kwoknode.New(api, kwoknode.Options{}), kwok: map[string]bool{}}
}

// Launch powers the machine on, as the instance and its user data say. After a reboot that is
// its next boot.
func (l *Launcher) Launch(ctx context.Context, i aws.Instance) error {
	if !l.take(i.ID) {
		return l.others.Launch(ctx, i)
	}
	node, err := l.others.Node(i)
	if err != nil {
		return err
	}
	err = l.machine.PowerOn(ctx, Identity{
		Name: node.Name, ProviderID: node.Spec.ProviderID, Address: i.PrivateIP, Labels: node.Labels, Taints: node.Spec.Taints,
		MaxPods: int(node.Status.Capacity.Pods().Value()),
	})
	if err != nil {
		return fmt.Errorf("booting the machine of instance %s, %w", i.ID, err)
	}
	return nil
}

// take tells whether the machine is the instance's. A free machine becomes that of the next one
// that boots for the first time.
func (l *Launcher) take(instance string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.instance == "" && !l.kwok[instance] {
		l.instance = instance
	}
	l.kwok[instance] = l.instance != instance
	return l.instance == instance
}

// Instance is the ID of the instance that the machine stands for; empty while it is free.
func (l *Launcher) Instance() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.instance
}

// Fail powers the machine off.
func (l *Launcher) Fail(ctx context.Context, i aws.Instance) error {
	if l.Instance() != i.ID {
		return l.others.Fail(ctx, i)
	}
	return l.machine.PowerOff(ctx)
}

// Terminate powers the machine off, removes its Node, as the cloud controller manager does, and
// wipes the disk for the next instance.
func (l *Launcher) Terminate(ctx context.Context, i aws.Instance) error {
	if l.Instance() != i.ID {
		return l.others.Terminate(ctx, i)
	}
	if err := l.machine.PowerOff(ctx); err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: i.PrivateDNS}}
	if err := client.IgnoreNotFound(l.api.Delete(ctx, node)); err != nil {
		return fmt.Errorf("removing node %s, %w", node.Name, err)
	}
	if err := l.machine.Wipe(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.instance = ""
	return nil
}
