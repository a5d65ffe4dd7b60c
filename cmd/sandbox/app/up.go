package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/node"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/stack"
)

// look is how often up and down look at the supervisor.
const look = 100 * time.Millisecond

type upOptions struct {
	*root
	controller string
	boot       time.Duration
	ports      stack.Ports
}

func (o *upOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.controller, "controller", scenario.ControllerOurs, "ours or stock")
	cmd.Flags().DurationVar(&o.boot, "boot", 2*time.Second, "time from the launch of an instance to its node")
	cmd.Flags().IntVar(&o.ports.APIServer, "api-port", 0, "port of kube-apiserver (default: a free one)")
	cmd.Flags().IntVar(&o.ports.AWS, "aws-port", 0, "port of the simulated AWS (default: a free one)")
}

func newUp(r *root) *cobra.Command {
	o := &upOptions{root: r}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a sandbox in the background",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.up(cmd.Context()) },
	}
	o.flags(cmd)
	return cmd
}

func (o *upOptions) up(ctx context.Context) error {
	running, err := o.running()
	if err != nil {
		return err
	}
	if running != nil {
		return fmt.Errorf("a sandbox is up already (pid %d); use it with\n  kubectl --kubeconfig %s get nodes\nend it with sandbox down, or start another beside it with --dir", running.PID, running.Kubeconfig)
	}
	if err := os.Remove(o.statePath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the state of the last sandbox, %w", err)
	}
	supervisor, err := o.spawn()
	if err != nil {
		return err
	}
	return o.await(ctx, supervisor)
}

// spawn starts the supervisor in a session of its own: it outlives this command and its terminal.
func (o *upOptions) spawn() (*exec.Cmd, error) {
	if err := os.MkdirAll(o.dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the state directory, %w", err)
	}
	log, err := os.Create(o.supervisorLog())
	if err != nil {
		return nil, fmt.Errorf("creating the supervisor's log, %w", err)
	}
	defer log.Close()
	cmd := exec.Command(o.exec, "supervise", "--bin", o.bin, "--dir", o.dir, "--controller", o.controller, "--boot", o.boot.String(), //nolint:gosec // itself, with its own flags
		"--api-port", strconv.Itoa(o.ports.APIServer), "--aws-port", strconv.Itoa(o.ports.AWS))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the supervisor, %w", err)
	}
	return cmd, nil
}

func (o *upOptions) supervisorLog() string { return filepath.Join(o.dir, "supervisor.log") }

// await follows the supervisor until all is up. An interrupt ends the supervisor too.
func (o *upOptions) await(ctx context.Context, supervisor *exec.Cmd) error {
	p := newProgress(o.Err, o.now, "sandbox")
	defer p.end()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = supervisor.Wait() // its log says why it ended
	}()
	for {
		select {
		case <-ctx.Done():
			_ = supervisor.Process.Signal(syscall.SIGTERM) // it may have ended
			<-ended
			return context.Cause(ctx)
		case <-ended:
			log, _ := os.ReadFile(o.supervisorLog()) // without it there is still the name of the log
			return fmt.Errorf("the sandbox did not come up; %s says:\n%s", o.supervisorLog(), strings.TrimSpace(string(log)))
		case <-time.After(look):
		}
		s, err := o.running()
		if err != nil {
			return err
		}
		if s == nil || s.Phase != "" || s.Kubeconfig == "" {
			if s != nil && s.Phase != "" {
				p.Stepping(s.Phase, "")
			}
			continue
		}
		p.end()
		return o.describe(s)
	}
}

func (r *root) describe(s *state) error {
	_, err := fmt.Fprintf(r.Out, `sandbox is up since %s (pid %d, %s controller)
  kubectl --kubeconfig %s get nodes,nodepools,nodeclaims
  simulated AWS  %s (its account: %s/_sim/report)
  logs           %s
`, s.Started.Format(time.TimeOnly), s.PID, s.Controller, s.Kubeconfig, s.CloudURL, s.CloudURL, s.Logs)
	return err
}

func newStatus(r *root) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Tell whether a sandbox is up and how to reach it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := r.running()
			if err != nil {
				return err
			}
			switch {
			case s == nil:
				_, err = fmt.Fprintln(r.Out, "no sandbox is up; start one with sandbox up")
			case s.Phase != "":
				_, err = fmt.Fprintf(r.Out, "a sandbox is coming up or going down (pid %d): %s\n", s.PID, s.Phase)
			default:
				err = r.describe(s)
			}
			return err
		},
	}
}

func newDown(r *root) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the sandbox that up started, and remove its data",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return r.down(cmd.Context()) },
	}
}

func (r *root) down(ctx context.Context) error {
	s, err := r.running()
	if err != nil {
		return err
	}
	if s == nil {
		_, err := fmt.Fprintln(r.Out, "no sandbox is up")
		return err
	}
	if s.PID == 0 {
		return errors.New("a sandbox has just begun to start; try again in a second")
	}
	if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("ending the supervisor, pid %d, %w", s.PID, err)
	}
	for {
		if s, err = r.running(); err != nil {
			return err
		}
		if s == nil {
			_, err := fmt.Fprintln(r.Out, "sandbox is down")
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the supervisor, pid %d, %w", s.PID, context.Cause(ctx))
		case <-time.After(look):
		}
	}
}

func newSupervise(r *root) *cobra.Command {
	o := &upOptions{root: r}
	cmd := &cobra.Command{
		Use:    "supervise",
		Short:  "Own a sandbox until SIGTERM; up starts this",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return o.supervise(cmd.Context()) },
	}
	o.flags(cmd)
	return cmd
}

// supervise holds the lock, brings the sandbox up and takes it down at the end of ctx.
func (o *upOptions) supervise(ctx context.Context) error {
	lock, err := o.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	s := state{PID: os.Getpid(), Controller: o.controller, Started: o.now()}
	data := filepath.Join(o.dir, "up")
	if err := os.RemoveAll(data); err != nil {
		return fmt.Errorf("removing the data of the last sandbox, %w", err)
	}
	var saving error
	tell := func(phase string) { s.Phase = phase; saving = errors.Join(saving, o.save(s)) }
	boot := node.Fixed(o.boot)
	sandbox, err := stack.Start(ctx, stack.Options{
		Dir: data, BinDir: o.bin, Ports: o.ports, Progress: tell,
		Settings: scenario.Settings{Controller: o.controller, Boot: &boot},
	})
	if err != nil {
		return err
	}
	s.Kubeconfig, s.CloudURL, s.APIServer, s.Logs = sandbox.Kubeconfig(), sandbox.CloudURL(), sandbox.RESTConfig().Host, sandbox.LogDir()
	tell("")
	exited := o.watch(ctx, sandbox)
	tell("stopping")
	return errors.Join(exited, saving, sandbox.Stop(context.WithoutCancel(ctx)), os.RemoveAll(data), os.Remove(o.statePath()))
}

// watch returns at the end of ctx, or tells of a controller that ended by itself: a sandbox without
// one would look alive and do nothing.
func (o *upOptions) watch(ctx context.Context, sandbox *stack.Stack) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
			if err := sandbox.ControllerExit(); err != nil {
				return err
			}
		}
	}
}
