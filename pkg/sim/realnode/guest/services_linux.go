package guest

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// restartPause is the time between a service's end and its next start, as systemd has for the kubelet.
const restartPause = time.Second

// reaper is the one that waits for children: as process 1 it also inherits those whose parents
// have ended.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

func newReaper() *reaper {
	r := &reaper{waiting: map[int]chan syscall.WaitStatus{}}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGCHLD)
	go func() {
		for range ends {
			r.reap()
		}
	}()
	return r
}

func (r *reaper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		r.mu.Lock()
		if done, ok := r.waiting[pid]; ok {
			delete(r.waiting, pid)
			done <- status
		}
		r.mu.Unlock()
	}
}

// start forks; the channel gets the end of the child.
func (r *reaper) start(args, env []string, output *os.File) (pid int, ended <-chan syscall.WaitStatus, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()
	// Held over the fork, so that no end is reaped before it is waited for.
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err = syscall.ForkExec(args[0], args, &syscall.ProcAttr{ //nolint:gosec // running what the host asks for is the purpose
		Dir: "/", Env: append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/var/lib"}, env...),
		Files: []uintptr{null.Fd(), output.Fd(), output.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, nil, fmt.Errorf("starting %s, %w", args[0], err)
	}
	done := make(chan syscall.WaitStatus, 1)
	r.waiting[pid] = done
	return pid, done, nil
}

// service is one program that is kept running while it is wanted.
type service struct {
	Service
	wanted bool
	status Status
	ended  chan struct{} // closed when the process has ended; nil while none runs
}

// services keeps programs running.
type services struct {
	clock  clock.Clock
	reaper *reaper

	mu    sync.Mutex
	order []string
	byID  map[string]*service
}

func newServices(clk clock.Clock, r *reaper) *services {
	return &services{clock: clk, reaper: r, byID: map[string]*service{}}
}

// define adds a service, or changes it, and starts it.
func (s *services) define(def Service) error {
	if def.Name == "" || len(def.Args) == 0 {
		return fmt.Errorf("service %q: name and args are needed", def.Name)
	}
	if err := s.stop(def.Name, shutdownTime); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.byID[def.Name]; !known {
		s.order = append(s.order, def.Name)
		s.byID[def.Name] = &service{status: Status{Name: def.Name}}
	}
	svc := s.byID[def.Name]
	svc.Service, svc.wanted = def, true
	return s.launch(svc)
}

// launch starts the process and watches it. The lock is held.
func (s *services) launch(svc *service) error {
	log, err := os.OpenFile(filepath.Join(SharedDir, "logs", svc.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s, %w", svc.Name, err)
	}
	defer log.Close()
	pid, done, err := s.reaper.start(svc.Args, svc.Env, log)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	svc.ended = ended
	svc.status.PID = pid
	svc.status.Starts++
	go func() {
		<-done
		s.mu.Lock()
		svc.status.PID, svc.ended = 0, nil
		s.mu.Unlock()
		close(ended)
		s.clock.Sleep(restartPause)
		s.restart(svc)
	}()
	return nil
}

func (s *services) restart(svc *service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if svc.wanted && svc.ended == nil {
		if err := s.launch(svc); err != nil {
			fmt.Fprintln(os.Stderr, "restarting a service:", err)
		}
	}
}

// stop ends a service for good: SIGTERM, and SIGKILL after patience. One that is unknown or
// does not run is no error.
func (s *services) stop(name string, patience time.Duration) error {
	s.mu.Lock()
	svc, known := s.byID[name]
	if !known || svc.ended == nil {
		if known {
			svc.wanted = false
		}
		s.mu.Unlock()
		return nil
	}
	svc.wanted = false
	ended, pid := svc.ended, svc.status.PID
	s.mu.Unlock()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("stopping %s, %w", name, err)
	}
	select {
	case <-ended:
		return nil
	case <-s.clock.After(patience):
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("killing %s, %w", name, err)
	}
	<-ended
	return nil
}

// kill sends SIGKILL; the service starts again by itself.
func (s *services) kill(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	svc, known := s.byID[name]
	if !known || svc.ended == nil {
		return fmt.Errorf("killing %s, it does not run", name)
	}
	return syscall.Kill(svc.status.PID, syscall.SIGKILL)
}

// stopAll stops all services, the last defined first.
func (s *services) stopAll(patience time.Duration) {
	s.mu.Lock()
	order := slices.Clone(s.order)
	s.mu.Unlock()
	for _, name := range slices.Backward(order) {
		if err := s.stop(name, patience); err != nil {
			fmt.Fprintln(os.Stderr, "shutting down:", err)
		}
	}
}

func (s *services) list() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Status{}
	for _, name := range s.order {
		out = append(out, s.byID[name].status)
	}
	return out
}
