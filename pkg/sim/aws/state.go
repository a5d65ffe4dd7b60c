package aws

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// stateVersion changes when an older file cannot be read any more.
const stateVersion = 1

// state is the account. Server.mu guards all of it; it is written as one JSON file.
type state struct {
	Version      int                        `json:"version"`
	Region       string                     `json:"region"`
	StartedAt    time.Time                  `json:"startedAt"`
	Counter      uint64                     `json:"counter"`
	Instances    map[string]*Instance       `json:"instances"`
	Templates    map[string]*launchTemplate `json:"templates"`
	Reservations map[string]*Reservation    `json:"reservations"`
	Images       map[string]*Image          `json:"images"`
	Profiles     map[string]*profile        `json:"profiles"`
	Tokens       map[string]*token          `json:"tokens"`
	Faults       []*Fault                   `json:"faults"`
	Messages     []*message                 `json:"messages"`
	Addresses    map[string]int             `json:"addresses"`
	Calls        map[string]int             `json:"calls"`
	Errors       map[string]int             `json:"errors"`
	LaunchErrors map[string]int             `json:"launchErrors"`
	Unknown      map[string]int             `json:"unknown"`
}

func newState(o *Options) *state {
	s := &state{Version: stateVersion, Region: o.Region, StartedAt: o.Clock.Now()}
	s.fill()
	return s
}

func (s *state) fill() {
	ensure(&s.Instances)
	ensure(&s.Templates)
	ensure(&s.Reservations)
	ensure(&s.Images)
	ensure(&s.Profiles)
	ensure(&s.Tokens)
	ensure(&s.Addresses)
	ensure(&s.Calls)
	ensure(&s.Errors)
	ensure(&s.LaunchErrors)
	ensure(&s.Unknown)
}

func ensure[V any](m *map[string]V) {
	if *m == nil {
		*m = map[string]V{}
	}
}

// id is a new identifier such as i-0123456789abcdef0; it follows from the seed and
// the number of identifiers before it.
func (s *Server) id(prefix string) string {
	s.st.Counter++
	return prefix + hash17(fmt.Sprintf("%d/%s/%d", s.opts.Seed, prefix, s.st.Counter))
}

// hash17 is a name's 17 hexadecimal digits, the length of EC2's identifiers.
func hash17(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:17]
}

// store writes the account to a file. Calls that finish together share one write.
type store struct {
	path  string
	mu    sync.Mutex
	saved uint64
}

// load reads the account, nil where there is none yet.
func (f *store) load() (*state, error) {
	if f.path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading state, %w", err)
	}
	s := &state{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("reading state %s, %w; remove the file to start over", f.path, err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("reading state %s, version %d is not %d; remove the file to start over", f.path, s.Version, stateVersion)
	}
	s.fill()
	return s, nil
}

// flush returns once the change with the given number is on disk. The snapshot
// function encodes the account and returns the number of its latest change.
func (f *store) flush(change uint64, snapshot func() ([]byte, uint64, error)) error {
	if f.path == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.saved >= change {
		return nil
	}
	raw, number, err := snapshot()
	if err != nil {
		return fmt.Errorf("encoding state, %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o750); err != nil {
		return fmt.Errorf("writing state, %w", err)
	}
	// A reader or a crash sees the old file or the new one, never half of one.
	temporary := f.path + ".tmp"
	if err := os.WriteFile(temporary, raw, 0o600); err != nil {
		return fmt.Errorf("writing state, %w", err)
	}
	if err := os.Rename(temporary, f.path); err != nil {
		return fmt.Errorf("writing state, %w", err)
	}
	f.saved = number
	return nil
}

// update runs change under the lock, saves its outcome and wakes the clock loop.
func (s *Server) update(change func() error) error {
	s.mu.Lock()
	err := change()
	s.changes++
	number := s.changes
	s.mu.Unlock()
	s.kick()
	if saveErr := s.store.flush(number, s.snapshot); saveErr != nil {
		return errors.Join(err, saveErr)
	}
	return err
}

func (s *Server) snapshot() ([]byte, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, err := json.Marshal(s.st)
	return raw, s.changes, err
}
