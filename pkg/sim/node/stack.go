package node

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Annotations and labels that the stack reads.
const (
	// AnnotationKWOK marks the nodes that KWOK plays.
	AnnotationKWOK = "kwok.x-k8s.io/node"
	// AnnotationHardware names the EC2 instance type with the same hardware, for nodes whose
	// instance-type label is none of EC2's.
	AnnotationHardware = "sandbox.karpenter-gpu.dev/hardware"
)

// Where the GPU Operator looks for the device plugin's configs and mig-manager's layouts, when its
// ClusterPolicy names the ConfigMaps that karpenter-gpu writes.
const (
	PluginConfigNamespace = "gpu-operator"
	PluginConfigName      = "karpenter-gpu-device-plugin"
	LayoutsConfigName     = "karpenter-gpu-mig-parted"

	layoutsKey = "config.yaml"
)

const workers = 8

// Operand is further software that runs on every simulated GPU node.
type Operand interface {
	// Run serves one machine until ctx ends, which it does when the node is deleted or the stack
	// stops. It is called once for each machine, in its own goroutine.
	Run(ctx context.Context, m *Machine)
}

// Options make a Stack.
type Options struct {
	Client   kubernetes.Interface
	Hardware Hardware
	Settings Settings
	// Faults hold from the start.
	Faults []Fault
	// Operands run on each machine beside the built-in software.
	Operands []Operand
	// Clock is the real one when nil.
	Clock clock.WithTicker
	Log   logr.Logger
}

// Stack plays the NVIDIA software of all GPU nodes of a cluster.
type Stack struct {
	Options
	queue   workqueue.TypedRateLimitingInterface[string]
	nodes   corelisters.NodeLister
	configs corelisters.ConfigMapLister
	factory informers.SharedInformerFactory
	running sync.WaitGroup

	mu       sync.Mutex
	faults   []Fault
	machines map[string]*resident
	seen     map[string]int // nodes so far, by instance type
}

// resident is a machine with what the stack keeps about it.
type resident struct {
	*Machine
	uid     string
	written map[string]bool // labels that the stack has written
	stop    context.CancelFunc
}

// New returns a Stack that Run starts.
func New(o Options) (*Stack, error) {
	for _, f := range o.Faults {
		if err := f.Validate(); err != nil {
			return nil, fmt.Errorf("validating node faults, %w", err)
		}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	s := &Stack{Options: o, faults: append([]Fault(nil), o.Faults...), machines: map[string]*resident{}, seen: map[string]int{}}
	s.queue = workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "sim-node", Clock: o.Clock})
	s.factory = informers.NewSharedInformerFactory(o.Client, 0)
	s.nodes = s.factory.Core().V1().Nodes().Lister()
	s.configs = s.factory.Core().V1().ConfigMaps().Lister()
	return s, nil
}

// Run watches nodes and plays their software until ctx ends, and returns when all of it has ended.
func (s *Stack) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.running.Wait()
	defer cancel()
	defer s.queue.ShutDown()
	if err := s.watch(); err != nil {
		return err
	}
	s.factory.Start(ctx.Done())
	defer s.factory.Shutdown()
	defer cancel()
	for kind, ok := range s.factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("waiting for the cache of %s, %w", kind, context.Cause(ctx))
		}
	}
	for range workers {
		s.running.Go(func() { s.work(ctx) })
	}
	<-ctx.Done()
	return nil
}

func (s *Stack) watch() error {
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			s.queue.Add(key)
		}
	}
	_, err := s.factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }, DeleteFunc: enqueue,
	})
	if err != nil {
		return fmt.Errorf("watching nodes, %w", err)
	}
	all := func(obj any) {
		if c, ok := obj.(*corev1.ConfigMap); ok && c.Namespace == PluginConfigNamespace && (c.Name == PluginConfigName || c.Name == LayoutsConfigName) {
			s.enqueueAll()
		}
	}
	_, err = s.factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: all, UpdateFunc: func(_, obj any) { all(obj) }, DeleteFunc: all,
	})
	if err != nil {
		return fmt.Errorf("watching config maps, %w", err)
	}
	return nil
}

// Inject begins a fault. One of the same ID is replaced.
func (s *Stack) Inject(f Fault) error {
	if err := f.Validate(); err != nil {
		return fmt.Errorf("validating node fault, %w", err)
	}
	f.since = s.Clock.Now()
	s.mu.Lock()
	s.faults = append(without(s.faults, f.ID()), f)
	s.mu.Unlock()
	s.enqueueAll()
	return nil
}

// Heal ends a fault by its ID.
func (s *Stack) Heal(id string) error {
	s.mu.Lock()
	rest := without(s.faults, id)
	found := len(rest) < len(s.faults)
	s.faults = rest
	s.mu.Unlock()
	if !found {
		return fmt.Errorf("healing node fault %q, no fault of that name is in force", id)
	}
	s.enqueueAll()
	return nil
}

// without returns a new slice, so that readers of the old one are not disturbed.
func without(faults []Fault, id string) []Fault {
	rest := []Fault{}
	for _, f := range faults {
		if f.ID() != id {
			rest = append(rest, f)
		}
	}
	return rest
}

func (s *Stack) enqueueAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.machines {
		s.queue.Add(name)
	}
}

func (s *Stack) work(ctx context.Context) {
	for {
		name, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		after, err := s.reconcile(ctx, name)
		switch {
		case err != nil && ctx.Err() == nil:
			s.Log.V(1).Info("reconciling node failed, retrying", "Node", name, "error", err.Error())
			s.queue.AddRateLimited(name)
		case after > 0:
			s.queue.Forget(name)
			s.queue.AddAfter(name, after)
		default:
			s.queue.Forget(name)
		}
		s.queue.Done(name)
	}
}
