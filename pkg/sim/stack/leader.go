package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	// leads is the sample that controller-runtime publishes in the process that holds the lease.
	leads = `leader_election_master_status{name="karpenter-leader-election"} 1`
	// succession bounds the wait for a leader: a lease of 15 s that nobody gave back, and two tries
	// to take it.
	succession = 40 * time.Second
)

// leader returns the replica that leads, and waits for one between two leaders. A replica without
// others leads as long as it runs.
func (s *Stack) leader(ctx context.Context) (*replica, error) {
	if len(s.replicas) == 1 {
		if s.processOf(s.replicas[0]) == nil {
			return nil, errors.New("it is not running")
		}
		return s.replicas[0], nil
	}
	deadline := s.opts.Clock.Now().Add(succession)
	for {
		for _, r := range s.replicas {
			if s.processOf(r) != nil && s.isLeader(ctx, r) {
				return r, nil
			}
		}
		if s.opts.Clock.Now().After(deadline) {
			return nil, fmt.Errorf("no replica of %d leads after %s", len(s.replicas), succession)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for a leader, %w", context.Cause(ctx))
		case <-s.opts.Clock.After(100 * time.Millisecond):
		}
	}
}

// isLeader asks a replica's metrics. One that does not answer does not lead.
func (s *Stack) isLeader(ctx context.Context, r *replica) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", r.metrics), nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == leads {
			return true
		}
	}
	return false
}
