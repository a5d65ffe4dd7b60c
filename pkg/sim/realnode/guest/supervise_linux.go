package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

const (
	// namespaces of a machine. The kernel takes the root of the group's view from the group in
	// which the first process is when it is made.
	namespaces = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET |
		syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWCGROUP
	// shutdownTime is what services have after SIGTERM.
	shutdownTime = 5 * time.Second
)

var errUnasked = errors.New("nobody asked for it")

// Cgroup is the name of the control group of the machine with this supervisor.
func Cgroup(supervisor int) string { return CgroupPrefix + strconv.Itoa(supervisor) }

// supervise is the machine's power supply: it starts the first process and ends with it. On
// SIGTERM it lets the machine shut down. Dying in any other way takes the machine with it.
func supervise(clk clock.Clock, specFile string) (err error) {
	// A child gets its parent-death signal when the thread that forked it ends.
	runtime.LockOSThread()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	hierarchies, err := hostHierarchies()
	if err != nil {
		return err
	}
	janitor, err := startJanitor()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, janitor.finish()) }()
	machine, err := startInit(hierarchies, specFile)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	var exit error
	go func() { exit = machine.Wait(); close(ended) }()
	select {
	case <-ended:
		return fmt.Errorf("the machine's first process ended by itself (%w)", errors.Join(exit, errUnasked))
	case <-stop:
	}
	if err := machine.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("shutting the machine down, %w", err)
	}
	select {
	case <-ended:
	case <-clk.After(2 * shutdownTime):
		err = machine.Process.Kill()
		<-ended
	}
	return err
}

// startInit makes the machine's group, and its first process in it.
func startInit(hierarchies []Hierarchy, specFile string) (*exec.Cmd, error) {
	own, err := groupsOf(hierarchies)
	if err != nil {
		return nil, err
	}
	name := Cgroup(os.Getpid())
	if err := makeCgroup(hierarchies, name); err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", "init", specFile)
	cmd.Args[0] = programName
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := enterCgroup(hierarchies, name, os.Getpid()); err != nil {
		return nil, err
	}
	started := cmd.Start()
	for i, h := range hierarchies {
		if err := enterCgroup([]Hierarchy{h}, own[i], os.Getpid()); err != nil {
			return nil, errors.Join(started, err)
		}
	}
	if started != nil {
		return nil, fmt.Errorf("starting the machine's first process, %w", started)
	}
	return cmd, nil
}

// janitor is a process that outlives the supervisor for as long as it takes to clean up.
type janitor struct {
	cmd   *exec.Cmd
	alive io.Closer
}

// startJanitor starts it in a session of its own: nobody who kills our process group kills it.
func startJanitor() (*janitor, error) {
	cmd := exec.Command("/proc/self/exe", "sweep", Cgroup(os.Getpid())) //nolint:gosec // a number of ours
	cmd.Args[0] = programName
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("making the janitor's pipe, %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the janitor, %w", err)
	}
	return &janitor{cmd: cmd, alive: alive}, nil
}

func (j *janitor) finish() error {
	if err := j.alive.Close(); err != nil {
		return fmt.Errorf("releasing the janitor, %w", err)
	}
	if err := j.cmd.Wait(); err != nil {
		return fmt.Errorf("cleaning up after the machine, %w", err)
	}
	return nil
}

// sweep waits until the supervisor has ended, which the end of its pipe tells, and removes what
// the kernel has not.
func sweep(clk clock.Clock, cgroup string) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	hierarchies, err := hostHierarchies()
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return fmt.Errorf("waiting for the supervisor, %w", err)
	}
	return removeCgroup(clk, hierarchies, cgroup)
}

// runInit is process 1 of the machine.
func runInit(clk clock.Clock, specFile string) error {
	spec, err := readSpec(specFile)
	if err != nil {
		return err
	}
	if err := buildRoot(clk, spec); err != nil {
		return err
	}
	if err := startNetwork(spec); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	forwarding, err := forward(spec.Forward)
	if err != nil {
		return err
	}
	defer forwarding.close()
	processes := newReaper()
	services := newServices(clk, processes)
	for _, s := range spec.Services {
		if err := services.define(s); err != nil {
			return err
		}
	}
	control, err := listenControl(filepath.Join(SharedDir, ControlSocket), services, processes)
	if err != nil {
		return err
	}
	<-ctx.Done()
	services.stopAll(shutdownTime)
	return control.close() // the kernel ends whatever else there is
}
