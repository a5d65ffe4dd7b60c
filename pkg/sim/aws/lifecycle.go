package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// launcherWorkers bounds the Nodes that are made or removed at a time.
	launcherWorkers = 16
	// launcherTimeout bounds one call of the Launcher.
	launcherTimeout = 30 * time.Second
	// launcherRetry is the pause after a failed one.
	launcherRetry = time.Second
	// startingUp is how long EC2 takes to call an instance running; it boots on after that.
	startingUp = 5 * time.Second
)

// run moves instances along as the clock passes their times.
func (s *Server) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := s.tick(ctx)
		if wait < 0 {
			select {
			case <-ctx.Done():
			case <-s.wake:
			}
			continue
		}
		timer := s.opts.Clock.NewTimer(max(wait, time.Millisecond))
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// task is a call of the Launcher for one instance.
type task struct {
	instance Instance
	boot     bool
	err      error
}

// tick does everything that is due and returns the time until something is due
// again, negative where nothing is planned.
func (s *Server) tick(ctx context.Context) time.Duration {
	changed := false
	s.mu.Lock()
	now := s.opts.Clock.Now()
	tasks := []*task{}
	for _, i := range s.ordered() {
		changed = s.advance(i, now) || changed
		if t := s.due(i, now); t != nil {
			tasks = append(tasks, t)
		}
	}
	s.mu.Unlock()
	s.perform(ctx, tasks)
	if changed || len(tasks) > 0 {
		if err := s.update(func() error { s.settle(tasks); return nil }); err != nil {
			s.opts.Log.Error(err, "saving instances")
		}
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.untilNext(s.opts.Clock.Now())
}

// ordered are the instances that may still change, oldest first.
func (s *Server) ordered() []*Instance {
	out := []*Instance{}
	for _, i := range s.st.Instances {
		if i.State != Terminated {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *Instance) int {
		return cmp.Or(a.LaunchedAt.Compare(b.LaunchedAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// advance makes the changes of state that need no Launcher.
func (s *Server) advance(i *Instance, now time.Time) bool {
	if i.State == Pending && !i.RunningAt.After(now) {
		i.State = Running
		s.publishState(i)
		return true
	}
	if i.live() && reached(i.InterruptAt, now) {
		s.shutdown(i, ReasonInterruption)
		return true
	}
	return false
}

// due is the Launcher's next work for an instance, if its time has come.
func (s *Server) due(i *Instance, now time.Time) *task {
	if i.RetryAt != nil && i.RetryAt.After(now) {
		return nil
	}
	boot := i.State == Running && i.BootedAt == nil && i.FailedAt == nil && reached(i.BootAt, now)
	if !boot && (i.State != ShuttingDown || !reached(i.GoneAt, now)) {
		return nil
	}
	return &task{instance: s.forLauncher(i), boot: boot}
}

// forLauncher is a copy of the instance with its shape and launch template.
func (s *Server) forLauncher(i *Instance) Instance {
	out := i.snapshot()
	out.Shape = s.types[i.Type]
	if t := s.st.Templates[i.TemplateID]; t != nil {
		out.Template = t.Data
	}
	return out
}

func (s *Server) perform(ctx context.Context, tasks []*task) {
	if s.opts.Launcher == nil {
		return
	}
	group := errgroup.Group{}
	group.SetLimit(launcherWorkers)
	for _, t := range tasks {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, launcherTimeout)
			defer cancel()
			if t.boot {
				t.err = s.opts.Launcher.Launch(ctx, t.instance)
			} else {
				t.err = s.opts.Launcher.Terminate(ctx, t.instance)
			}
			return nil
		})
	}
	_ = group.Wait()
}

// settle records what the Launcher did.
func (s *Server) settle(tasks []*task) {
	now := s.opts.Clock.Now()
	for _, t := range tasks {
		i := s.st.Instances[t.instance.ID]
		switch {
		case t.err != nil:
			retry := now.Add(launcherRetry)
			i.RetryAt = &retry
			if !errors.Is(t.err, context.Canceled) {
				s.opts.Log.Error(t.err, "moving an instance along, will retry", "instance", i.ID, "boot", t.boot)
			}
		case t.boot:
			i.BootedAt, i.RetryAt = &now, nil
		default:
			i.State, i.TerminatedAt, i.RetryAt = Terminated, &now, nil
			s.publishState(i)
		}
	}
}

// untilNext is the time until the next planned change.
func (s *Server) untilNext(now time.Time) time.Duration {
	next := time.Duration(-1)
	consider := func(at *time.Time) {
		if at == nil {
			return
		}
		if d := max(at.Sub(now), 0); next < 0 || d < next {
			next = d
		}
	}
	for _, i := range s.ordered() {
		switch {
		case i.RetryAt != nil:
			consider(i.RetryAt)
		case i.State == Pending:
			consider(&i.RunningAt)
		case i.State == ShuttingDown:
			consider(i.GoneAt)
		case i.BootedAt == nil && i.FailedAt == nil:
			consider(i.BootAt)
		}
		if i.live() {
			consider(i.InterruptAt)
		}
	}
	return next
}

// shutdown begins the end of an instance. Its capacity is free at once.
func (s *Server) shutdown(i *Instance, reason string) {
	now := s.opts.Clock.Now()
	gone := now.Add(s.opts.ShutdownDelay.sample(s.opts.Seed^0x5d, uint64(len(s.st.Instances))))
	i.State, i.Reason, i.ShutdownAt, i.GoneAt, i.RetryAt = ShuttingDown, reason, &now, &gone, nil
	s.release(i)
	s.publishState(i)
	if i.BootedAt != nil && gone.After(now) {
		s.goneQuiet(i)
	}
}

// goneQuiet tells the Launcher that the kubelet of an instance has stopped.
func (s *Server) goneQuiet(i *Instance) {
	failer, ok := s.opts.Launcher.(NodeFailer)
	if !ok {
		return
	}
	instance := s.forLauncher(i)
	s.quiet.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), launcherTimeout)
		defer cancel()
		if err := failer.Fail(ctx, instance); err != nil {
			s.opts.Log.Error(err, "stopping the heartbeats of a node", "instance", instance.ID)
		}
	})
}

func reached(at *time.Time, now time.Time) bool { return at != nil && !at.After(now) }

// Interrupt warns a spot instance through the interruption queue and ends it after
// the notice, as EC2 does when it reclaims capacity.
func (s *Server) Interrupt(id string) error {
	return s.update(func() error {
		i, err := s.liveInstance(id)
		if err != nil {
			return err
		}
		if i.CapacityType != Spot {
			return fmt.Errorf("interrupting instance %s, it is %s and only spot instances are interrupted; fail or terminate it instead", id, i.CapacityType)
		}
		if i.InterruptAt != nil {
			return nil
		}
		now := s.opts.Clock.Now()
		at := now.Add(s.opts.InterruptionNotice)
		i.WarnedAt, i.InterruptAt = &now, &at
		s.publishInterruption(i)
		return nil
	})
}

// Fail kills a machine: its heartbeats stop and its status checks fail, but EC2 goes
// on to call it running, as with a dead host, until somebody terminates it.
func (s *Server) Fail(id string) error {
	return s.update(func() error {
		i, err := s.liveInstance(id)
		if err != nil {
			return err
		}
		if i.FailedAt != nil {
			return nil
		}
		now := s.opts.Clock.Now()
		i.FailedAt = &now
		if i.BootedAt != nil {
			s.goneQuiet(i)
		}
		return nil
	})
}

// Reboot restarts a machine as its own operating system would, for example after an update
// of the driver.
func (s *Server) Reboot(id string) error {
	return s.update(func() error {
		i, err := s.liveInstance(id)
		if err == nil {
			s.restart(i)
		}
		return err
	})
}

// restart begins the next boot. One that has not come up yet goes on with the boot that it is in.
func (s *Server) restart(i *Instance) {
	if i.BootedAt == nil && i.FailedAt == nil {
		return
	}
	if i.BootedAt != nil && i.FailedAt == nil {
		s.goneQuiet(i)
	}
	i.FailedAt, i.BootedAt = nil, nil
	i.BootAt = s.bootTime(pool{instanceType: i.Type, zone: i.Zone, capacityType: i.CapacityType}, s.opts.Clock.Now())
}

// Terminate ends an instance as a person with the console would.
func (s *Server) Terminate(id string) error {
	return s.update(func() error {
		i, err := s.liveInstance(id)
		if err == nil {
			s.shutdown(i, ReasonUser)
		}
		return err
	})
}

func (s *Server) liveInstance(id string) (*Instance, error) {
	i, ok := s.st.Instances[id]
	if !ok {
		return nil, fmt.Errorf("instance %q does not exist, list them at /_sim/instances", id)
	}
	if !i.live() {
		return nil, fmt.Errorf("instance %q is %s, choose one that is running", id, i.State)
	}
	return i, nil
}

// Instances are copies of all instances ever launched, oldest first.
func (s *Server) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Instance, 0, len(s.st.Instances))
	for _, i := range s.st.Instances {
		out = append(out, i.snapshot())
	}
	slices.SortFunc(out, func(a, b Instance) int {
		return cmp.Or(a.LaunchedAt.Compare(b.LaunchedAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}
