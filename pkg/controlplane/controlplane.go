package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// ControlPlane is a control plane that runs. Its methods may be called from several goroutines.
type ControlPlane struct {
	opts  Options
	dir   string
	pki   *pki
	ports ports
	admin *rest.Config

	mu        sync.Mutex
	processes map[Component]*Process
	undo      Undo
}

// ports of the components; peer is etcd's second one.
type ports struct {
	etcd, peer, apiServer, controllerManager, scheduler, kwok int
}

// Start starts the components and returns when all are ready. When one does not start,
// or ctx ends first, what has started is stopped again and the error tells which and why,
// with the last lines of its log. Ending ctx later has no effect: call Stop.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("checking the control plane's options, %w", err)
	}
	cp := &ControlPlane{opts: opts, processes: map[Component]*Process{}}
	if err := cp.start(ctx); err != nil {
		// The undo must run even if ctx is what ended the start.
		return nil, errors.Join(err, cp.Stop(context.WithoutCancel(ctx)))
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context) error {
	specs, err := cp.findBinaries()
	if err != nil {
		return err
	}
	if err := cp.prepare(); err != nil {
		return err
	}
	for c, spec := range specs {
		cp.complete(c, spec)
	}
	for _, c := range APIOnly() {
		if err := cp.startAll(ctx, specs, c); err != nil {
			return err
		}
	}
	rest := slices.DeleteFunc(AllComponents(), func(c Component) bool {
		return !cp.opts.has(c) || slices.Contains(APIOnly(), c)
	})
	if err := cp.startAll(ctx, specs, rest...); err != nil {
		return err
	}
	return cp.awaitUsable(ctx)
}

// findBinaries fails before anything is written.
func (cp *ControlPlane) findBinaries() (map[Component]*ProcessSpec, error) {
	specs := map[Component]*ProcessSpec{}
	var errs []error
	for _, c := range AllComponents() {
		if !cp.opts.has(c) {
			continue
		}
		path, err := FindBinary(cp.opts.Assets, c)
		errs = append(errs, err)
		specs[c] = &ProcessSpec{Name: string(c), Path: path}
	}
	return specs, errors.Join(errs...)
}

// prepare makes and locks the directory and writes what the components read.
func (cp *ControlPlane) prepare() error {
	if err := cp.prepareDir(); err != nil {
		return err
	}
	if err := cp.choosePorts(); err != nil {
		return err
	}
	authority, err := loadOrCreatePKI(filepath.Join(cp.dir, "pki"), cp.opts.Clock)
	if err != nil {
		return err
	}
	cp.pki = authority
	return cp.writeFiles()
}

func (cp *ControlPlane) prepareDir() (err error) {
	if cp.opts.Dir == "" {
		if cp.dir, err = os.MkdirTemp("", "karpenter-gpu-controlplane-"); err != nil {
			return fmt.Errorf("creating a directory for the control plane, %w", err)
		}
		cp.undo.Add(func(context.Context) error { return os.RemoveAll(cp.dir) })
	} else if cp.dir, err = filepath.Abs(cp.opts.Dir); err != nil {
		return fmt.Errorf("Dir: resolving %q, %w", cp.opts.Dir, err)
	}
	if err := os.MkdirAll(cp.dir, 0o700); err != nil {
		return fmt.Errorf("Dir: creating %q, %w", cp.dir, err)
	}
	unlock, err := lockDir(cp.dir)
	if err != nil {
		return err
	}
	cp.undo.Add(func(context.Context) error { return unlock() })
	return nil
}

func (cp *ControlPlane) choosePorts() error {
	free, err := FreePorts(6)
	if err != nil {
		return err
	}
	cp.ports = ports{etcd: free[0], peer: free[1], apiServer: free[2], controllerManager: free[3], scheduler: free[4], kwok: free[5]}
	if cp.opts.APIServerPort == 0 {
		return nil
	}
	// Checked here: the fixed port may also be one that was just drawn.
	if i := slices.Index(free, cp.opts.APIServerPort); i >= 0 && i != 2 {
		return cp.choosePorts()
	}
	cp.ports.apiServer = cp.opts.APIServerPort
	return checkPort(cp.opts.APIServerPort)
}

// startAll starts components side by side. Each that came up registers its undo, those
// of a batch in the order given.
func (cp *ControlPlane) startAll(ctx context.Context, specs map[Component]*ProcessSpec, batch ...Component) error {
	started := make([]*Process, len(batch))
	// One that fails ends the wait for the others.
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range batch {
		group.Go(func() (err error) {
			started[i], err = StartProcess(ctx, *specs[c])
			return err
		})
	}
	err := group.Wait()
	cp.mu.Lock()
	defer cp.mu.Unlock()
	for i, c := range batch {
		if started[i] == nil {
			continue
		}
		cp.processes[c] = started[i]
		cp.undo.Add(func(ctx context.Context) error { return cp.Process(c).Stop(ctx) }) // whichever runs by then
	}
	return err
}

// Stop undoes each step of Start in reverse and joins their errors. A component that
// does not end within StopTimeout, or before ctx ends, is killed, so that Stop leaves
// nothing running; Dir stays, unless Start made it. Stopping twice is harmless.
func (cp *ControlPlane) Stop(ctx context.Context) error {
	return cp.undo.Run(ctx)
}

// Restart stops one component and starts it again with the same arguments and ports.
// One that has died is started again, so that a test may kill it first.
func (cp *ControlPlane) Restart(ctx context.Context, c Component) error {
	old := cp.Process(c)
	if old == nil {
		return fmt.Errorf("restarting %s, it is not among the components started: %s", c, joinComponents(cp.opts.Components))
	}
	if err := old.Stop(ctx); err != nil {
		return fmt.Errorf("restarting %s, %w", c, err)
	}
	if c == KWOK {
		if err := cp.releaseLeases(ctx); err != nil {
			return fmt.Errorf("restarting %s, %w", c, err)
		}
	}
	fresh, err := StartProcess(ctx, old.spec)
	if err != nil {
		return fmt.Errorf("restarting %s, %w", c, err)
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.processes[c] = fresh
	return nil
}

// Process returns the running process of a component, nil for one that was not started.
func (cp *ControlPlane) Process(c Component) *Process {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.processes[c]
}

// Dir is the absolute path of Options.Dir or of the temporary directory.
func (cp *ControlPlane) Dir() string { return cp.dir }

// URL is where kube-apiserver listens.
func (cp *ControlPlane) URL() string { return cp.admin.Host }
