package controlplane

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Undo collects what has to be undone at the end, a step for each start. Its zero
// value is ready; it is safe for concurrent use.
type Undo struct {
	mu    sync.Mutex
	steps []func(context.Context) error
}

// Add registers the undo of something that has just started.
func (u *Undo) Add(step func(context.Context) error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = append(u.steps, step)
}

// Run takes the steps in reverse and joins their errors; one that fails stops none of
// the others. Each step runs once, however often Run is called.
func (u *Undo) Run(ctx context.Context) error {
	u.mu.Lock()
	steps := u.steps
	u.steps = nil
	u.mu.Unlock()
	var errs []error
	for _, step := range slices.Backward(steps) {
		errs = append(errs, step(ctx))
	}
	return errors.Join(errs...)
}
