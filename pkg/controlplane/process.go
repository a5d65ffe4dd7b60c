package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	probeInterval = 25 * time.Millisecond
	tailLines     = 20
	// tailBytes bounds what is read from the end of a log to find its last lines.
	tailBytes = 16 << 10
)

// ProcessSpec describes a child process.
type ProcessSpec struct {
	// Name stands for the process in errors.
	Name string
	// Path of the executable, and its arguments without argument zero.
	Path string
	Args []string
	// Env is the whole environment, as in exec.Cmd: nil means that of this process.
	Env []string
	// Dir is the working directory; empty means that of this process.
	Dir string
	// LogFile gets stdout and stderr; it is appended to and its directory is made.
	// Empty discards them, and with them the reason of a start that fails.
	LogFile string
	// Ready is asked every 25 ms until it returns nil; its context ends with the start.
	// Nil means that the process is ready when it runs.
	Ready func(ctx context.Context) error
	// StartTimeout bounds the wait for Ready; 0 means DefaultStartTimeout.
	StartTimeout time.Duration
	// StopTimeout is the time between SIGTERM and SIGKILL; 0 means DefaultStopTimeout.
	StopTimeout time.Duration
}

// StartError says why a process did not become ready.
type StartError struct {
	// Name and LogFile are those of the ProcessSpec.
	Name    string
	LogFile string
	// Tail holds the last lines that this start wrote to the log; empty if it wrote none.
	Tail []string
	// Err is the cause: how it exited, or the context's or the probe's error.
	Err error
}

// Error gives the cause and the log's last lines.
func (e *StartError) Error() string {
	message := fmt.Sprintf("starting %s, %v", e.Name, e.Err)
	if len(e.Tail) == 0 {
		return message
	}
	return fmt.Sprintf("%s; last lines of %s:\n  %s", message, e.LogFile, strings.Join(e.Tail, "\n  "))
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Process is a running child, in a process group of its own: a terminal's SIGINT reaches
// this program alone, which then stops its children in order.
//
// On Linux a child gets SIGKILL when this program ends in whatever way, SIGKILL included.
// macOS has no such bond: there a child outlives a parent that is killed or panics, and
// only an ordinary return or a handled signal that runs Stop ends it. The bond holds for
// the child, not for what it starts itself; Stop and Kill end its whole process group.
//
// All methods may be called from several goroutines.
type Process struct {
	spec      ProcessSpec
	cmd       *exec.Cmd
	logOffset int64
	done      chan struct{}
	exit      error // valid once done is closed
}

// StartProcess starts a child and waits until it is ready. When it exits first, or ctx or
// StartTimeout ends first, it is gone on return and the error is a *StartError. Ending
// ctx later has no effect.
func StartProcess(ctx context.Context, spec ProcessSpec) (*Process, error) {
	if spec.StartTimeout == 0 {
		spec.StartTimeout = DefaultStartTimeout
	}
	if spec.StopTimeout == 0 {
		spec.StopTimeout = DefaultStopTimeout
	}
	p := &Process{spec: spec, done: make(chan struct{})}
	if err := p.launch(); err != nil {
		return nil, &StartError{Name: spec.Name, LogFile: spec.LogFile, Err: err}
	}
	if err := p.awaitReady(ctx); err != nil {
		tail := p.LogTail(tailLines)
		return nil, &StartError{Name: spec.Name, LogFile: spec.LogFile, Tail: tail, Err: errors.Join(err, p.Kill())}
	}
	return p, nil
}

func (p *Process) launch() error {
	p.cmd = exec.Command(p.spec.Path, p.spec.Args...) //nolint:gosec // starting what the caller names is the job
	p.cmd.Env, p.cmd.Dir = p.spec.Env, p.spec.Dir
	p.cmd.SysProcAttr = processAttributes()
	log, err := p.openLog()
	if err != nil {
		return err
	}
	if log != nil {
		p.cmd.Stdout, p.cmd.Stderr = log, log
		// The child has its own descriptor once it runs.
		defer log.Close()
	}
	if err := fork(p.cmd); err != nil {
		return err
	}
	go p.reap()
	return nil
}

func (p *Process) openLog() (*os.File, error) {
	if p.spec.LogFile == "" {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Dir(p.spec.LogFile), 0o700); err != nil {
		return nil, fmt.Errorf("creating the log directory, %w", err)
	}
	log, err := os.OpenFile(p.spec.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log, %w", err)
	}
	if p.logOffset, err = log.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("finding the end of the log, %w", err), log.Close())
	}
	return log, nil
}

// reap waits for the child and then ends what is left of its group. The group's number
// cannot have gone to another: it is taken as long as a member lives.
func (p *Process) reap() {
	p.exit = p.cmd.Wait()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // ESRCH when none is left
	close(p.done)
}

func (p *Process) awaitReady(ctx context.Context) error {
	if p.spec.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.spec.StartTimeout, fmt.Errorf("not ready after %s", p.spec.StartTimeout))
	defer cancel()
	return poll(ctx, p.spec.Ready, p.done, func() error {
		return fmt.Errorf("it exited before it was ready (%s)", p.cmd.ProcessState)
	})
}

// poll asks probe until it succeeds, ctx ends or done is closed.
func poll(ctx context.Context, probe func(context.Context) error, done <-chan struct{}, exited func() error) error {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		probed := probe(ctx)
		select {
		case <-done:
			return exited()
		default:
		}
		if probed == nil {
			return nil
		}
		select {
		case <-done:
			return exited()
		case <-ctx.Done():
			return fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), probed)
		case <-tick.C:
		}
	}
}

// Stop sends SIGTERM and waits for the end; after StopTimeout, or when ctx ends, it sends
// SIGKILL and reports so in its error. Stopping a process that has ended is harmless.
func (p *Process) Stop(ctx context.Context) error {
	if p.ended() {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping %s, %w", p.spec.Name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.spec.StopTimeout, fmt.Errorf("still running %s after SIGTERM", p.spec.StopTimeout))
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stopping %s, killed: %w", p.spec.Name, context.Cause(ctx)), p.Kill())
	}
}

// Kill sends SIGKILL to the process group and waits for the end. Killing a process that
// has ended is harmless.
func (p *Process) Kill() error {
	if p.ended() {
		return nil
	}
	if err := syscall.Kill(-p.Pid(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing %s, %w", p.spec.Name, err)
	}
	<-p.done
	return nil
}

// Signal sends a signal to the process alone, not to its group. A process that has ended
// takes it without error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.signal(s); err != nil {
		return fmt.Errorf("signaling %s, %w", p.spec.Name, err)
	}
	return nil
}

func (p *Process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Wait returns how the process ended: nil for exit status 0, an *exec.ExitError for any
// other end, or the context's error if that ends first.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.exit
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Pid is the process ID, which is also that of the process group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// LogFile is where the output goes; empty if it is discarded.
func (p *Process) LogFile() string { return p.spec.LogFile }

// LogTail returns up to n last lines that this process wrote, nil without a log.
func (p *Process) LogTail(n int) []string {
	file, err := os.Open(p.spec.LogFile)
	if err != nil {
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	from := max(p.logOffset, info.Size()-tailBytes)
	data, err := io.ReadAll(io.NewSectionReader(file, from, info.Size()-from))
	if err != nil {
		return nil
	}
	text := strings.TrimRight(string(data), "\n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-n):]
}

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// forks is served by one goroutine that keeps its thread for good: Linux sends the
// parent-death signal when the thread that forked ends, not when the process does, and
// Go ends threads as it likes.
var forks = sync.OnceValue(func() chan<- forkRequest {
	requests := make(chan forkRequest)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.result <- r.cmd.Start()
		}
	}()
	return requests
})

type forkRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func fork(cmd *exec.Cmd) error {
	request := forkRequest{cmd: cmd, result: make(chan error, 1)}
	forks() <- request
	return <-request.result
}
