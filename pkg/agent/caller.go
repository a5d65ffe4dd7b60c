package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// caller waits a bounded time for calls that may never return. A call that is late
// keeps its goroutine, and with cgo a thread, until it returns by itself: such a
// call is stuck. Invariants: a call that is stuck is not made again, and while
// limit calls are stuck no call is made at all, so that a wedged driver costs at
// most limit threads and one more for each GPU that was being probed.
type caller struct {
	clock clock.Clock
	limit int

	mu    sync.Mutex
	stuck map[string]bool
}

func newCaller(clk clock.Clock, limit int) *caller {
	return &caller{clock: clk, limit: limit, stuck: map[string]bool{}}
}

// admit refuses calls that must not be made now.
func (c *caller) admit(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck[name] {
		return NewError(Hanging, name, "an earlier call has still not returned")
	}
	if len(c.stuck) >= c.limit {
		return NewError(Hanging, name, fmt.Sprintf("not tried, %d calls hang", len(c.stuck)))
	}
	return nil
}

// Stuck returns how many calls have not returned.
func (c *caller) Stuck() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.stuck)
}

// result is what a call returned.
type result[T any] struct {
	value T
	err   error
}

// call runs f and returns what it returned, or an Error of code Hanging after the
// deadline. The name identifies the call among those that are stuck.
func call[T any](ctx context.Context, c *caller, deadline time.Duration, name string, f func() (T, error)) (T, error) {
	var zero T
	if err := c.admit(name); err != nil {
		return zero, err
	}
	done := make(chan result[T], 1)
	timer := c.clock.NewTimer(deadline)
	defer timer.Stop()
	late := false // guarded by c.mu
	go func() {
		v, err := f()
		c.mu.Lock()
		defer c.mu.Unlock()
		if late {
			delete(c.stuck, name)
		}
		done <- result[T]{v, err}
	}()
	why := ""
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C():
		why = fmt.Sprintf("no answer within %s", deadline)
	case <-ctx.Done():
		why = "stopped while waiting"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case r := <-done: // it returned just now
		return r.value, r.err
	default:
	}
	late = true
	c.stuck[name] = true
	return zero, NewError(Hanging, name, why)
}
