package agent

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

const (
	// waitSlice bounds one wait for events, so that a shutdown is not late.
	waitSlice = time.Second
	// maxPendingEvents bounds what is kept between two samples; later events of
	// the same kind would only raise a count.
	maxPendingEvents = 1024
)

// listener keeps XID events between samples.
type listener struct {
	lib   Listener
	clock clock.Clock
	wake  chan struct{}

	mu      sync.Mutex
	pending []health.XIDEvent
}

func newListener(lib Listener, clk clock.Clock) *listener {
	return &listener{lib: lib, clock: clk, wake: make(chan struct{}, 1)}
}

// run listens until the context ends. A wait that hangs holds this goroutine only.
func (l *listener) run(ctx context.Context) {
	for ctx.Err() == nil {
		events, err := l.lib.Wait(waitSlice)
		if len(events) > 0 {
			l.keep(events)
		}
		if err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-l.clock.After(waitSlice):
		}
	}
}

func (l *listener) keep(events []health.XIDEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := maxPendingEvents - len(l.pending)
	for _, e := range events[:min(len(events), room)] {
		if e.At.IsZero() { // NVML gives no time
			e.At = l.clock.Now()
		}
		l.pending = append(l.pending, e)
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns the events since the last call.
func (l *listener) take() []health.XIDEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.pending
	l.pending = nil
	return events
}
