package stack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/gpuagent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

const (
	clusterName       = "sandbox"
	region            = "us-east-1"
	interruptionQueue = "sandbox-interruptions"
	defaultBoot       = 2 * time.Second
)

var _ scenario.World = (*Stack)(nil)

// Stack is a running sandbox.
type Stack struct {
	opts    Options
	plane   *controlplane.ControlPlane
	config  *rest.Config
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	objects *applier
	watch   *observer
	cloud   *aws.Server
	nodes   *node.Stack
	access  access

	mu       sync.Mutex
	replicas []*replica        // of the controller
	faults   map[string]string // simulator's fault IDs by Failure
	undo     controlplane.Undo
}

// Start brings a sandbox up. When a part does not come up, what has started is stopped again.
func Start(ctx context.Context, opts Options) (*Stack, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	s := &Stack{opts: opts, faults: map[string]string{}}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	phases := []struct {
		name string
		run  func(context.Context) error
	}{
		{"control plane", s.startControlPlane},
		{"custom resource definitions", s.installCRDs},
		{"access", s.grantAccess},
		{"simulated AWS", s.startCloud},
		{"watches", s.startWatches},
		{"simulated node software", s.startNodes},
		{s.opts.Settings.Controller + " controller", s.StartController},
	}
	for _, p := range phases {
		s.opts.Progress(p.name)
		if err := p.run(ctx); err != nil {
			return fmt.Errorf("starting %s, %w", p.name, err)
		}
	}
	return nil
}

// Stop takes everything down in the reverse order of its start and leaves no process behind. It may
// be called more than once.
func (s *Stack) Stop(ctx context.Context) error {
	return s.undo.Run(ctx)
}

func (s *Stack) startControlPlane(ctx context.Context) (err error) {
	assets := s.opts.Assets
	if _, missing := controlplane.FindBinary("", controlplane.KWOK); missing != nil && assets == "" {
		assets = filepath.Join(s.opts.BinDir, "controlplane")
	}
	audit, err := s.auditArguments()
	if err != nil {
		return err
	}
	s.plane, err = controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(s.opts.Dir, "controlplane"), Assets: assets, APIServerPort: s.opts.Ports.APIServer, ExtraArgs: audit,
	})
	if err != nil {
		return err
	}
	s.undo.Add(s.plane.Stop)
	s.config = s.plane.RESTConfig()
	if s.kube, err = kubernetes.NewForConfig(s.config); err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	if s.dynamic, err = dynamic.NewForConfig(s.config); err != nil {
		return fmt.Errorf("making a dynamic client, %w", err)
	}
	s.objects = newApplier(s.kube.Discovery(), s.dynamic)
	return nil
}

func (s *Stack) startCloud(ctx context.Context) error {
	direct, err := client.New(s.config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	launcher, err := s.opts.Launcher(s.plane, direct)
	if err != nil {
		return fmt.Errorf("making nodes, %w", err)
	}
	s.cloud, err = aws.New(aws.Options{
		Addr:              "127.0.0.1:" + strconv.Itoa(s.opts.Ports.AWS),
		StatePath:         filepath.Join(s.opts.Dir, "aws.json"),
		Region:            region,
		Seed:              uint64(s.opts.Settings.Seed), //nolint:gosec // any bits seed as well
		Clock:             s.opts.Clock,
		Log:               s.opts.Log.WithName("aws"),
		BootDelay:         awsDelay(*s.opts.Settings.Boot),
		APILatency:        awsDelay(s.opts.Settings.APILatency),
		ClusterName:       clusterName,
		ClusterEndpoint:   s.plane.URL(),
		InterruptionQueue: interruptionQueue,
		Launcher:          launcher,
	})
	if err != nil {
		return err
	}
	if err := s.cloud.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.undo.Add(func(context.Context) error { return s.cloud.Stop() })
	return nil
}

func (s *Stack) startWatches(ctx context.Context) error {
	s.watch = newObserver(s.kube, s.dynamic, s.opts.Clock)
	s.undo.Add(func(context.Context) error { s.watch.stop(); return nil })
	return s.watch.start(ctx)
}

func (s *Stack) startNodes(ctx context.Context) error {
	set := s.opts.Settings.Node
	operands := s.opts.Operands
	if set.Agent {
		agent := gpuagent.Operand{Config: s.config, Clock: s.opts.Clock, Log: s.opts.Log.WithName("agent")}
		if !s.opts.Administrators {
			agent.Token = s.agentToken
		}
		operands = append(slices.Clone(operands), agent)
	}
	nodes, err := node.New(node.Options{
		Client:   s.kube,
		Hardware: node.Catalogue(),
		Settings: node.Settings{
			Seed: s.opts.Settings.Seed, Driver: set.Driver, Plugin: set.Plugin, Labels: set.Labels, MIG: set.MIG, Strategy: set.MIGStrategy,
		},
		Faults: set.Faults, Operands: operands, Clock: s.opts.Clock, Log: s.opts.Log.WithName("node"),
	})
	if err != nil {
		return err
	}
	s.nodes = nodes
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- nodes.Run(ctx) }()
	s.undo.Add(func(context.Context) error { cancel(); return <-ended })
	return nil
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (s *Stack) Kubeconfig() string { return s.plane.Kubeconfig() }

// CloudURL returns the simulated AWS's address, for AWS_ENDPOINT_URL and the pages under /_sim/.
func (s *Stack) CloudURL() string { return s.cloud.URL() }

// RESTConfig returns the administrator's client configuration.
func (s *Stack) RESTConfig() *rest.Config { return rest.CopyConfig(s.config) }

// LogDir returns where the controller's log is; the control plane's are below controlplane/logs.
func (s *Stack) LogDir() string { return filepath.Join(s.opts.Dir, "logs") }
