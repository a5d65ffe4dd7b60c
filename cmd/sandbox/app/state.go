package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// state is what the supervisor leaves for other commands. It is only true while the lock is held.
type state struct {
	PID        int       `json:"pid"`
	Controller string    `json:"controller"`
	Started    time.Time `json:"started"`
	Kubeconfig string    `json:"kubeconfig,omitempty"`
	APIServer  string    `json:"apiServer,omitempty"`
	CloudURL   string    `json:"cloudURL,omitempty"`
	Logs       string    `json:"logs,omitempty"`
	// Phase is what is being started; empty once all is up.
	Phase string `json:"phase,omitempty"`
}

func (r *root) statePath() string { return filepath.Join(r.dir, "state.json") }
func (r *root) lockPath() string  { return filepath.Join(r.dir, "lock") }

// running returns the state of the sandbox that is up, nil when none is.
func (r *root) running() (*state, error) {
	lock, err := r.lock()
	if err == nil {
		return nil, lock.Close()
	}
	if !errors.Is(err, errLocked) {
		return nil, err
	}
	data, err := os.ReadFile(r.statePath())
	if errors.Is(err, os.ErrNotExist) { // it has just begun
		return &state{Phase: "starting"}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state of the sandbox, %w", err)
	}
	s := &state{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("reading %s, %w", r.statePath(), err)
	}
	return s, nil
}

var errLocked = errors.New("a sandbox is up")

// lock takes the lock of the state directory. It ends with the process that holds it, however that
// ends.
func (r *root) lock() (*os.File, error) {
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the state directory, %w", err)
	}
	f, err := os.OpenFile(r.lockPath(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock, %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close() // nothing was written
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("locking %s, %w", r.lockPath(), err)
}

// save replaces the state file in one step, so that no reader sees half of it.
func (r *root) save(s state) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	temporary := r.statePath() + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return fmt.Errorf("writing the state, %w", err)
	}
	return os.Rename(temporary, r.statePath())
}
