package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/rbac"
)

// replica is one process of the controller. Its place, ports and log outlive the process.
type replica struct {
	name            string
	metrics, health int
	process         *controlplane.Process // nil while it is down
}

// makeReplicas gives each replica its place. One stands for a Deployment of one, which needs no
// leader election.
func (s *Stack) makeReplicas() error {
	n := max(1, s.opts.Settings.Replicas)
	ports, err := controlplane.FreePorts(2 * n)
	if err != nil {
		return err
	}
	for i := range n {
		r := &replica{name: "controller", metrics: ports[2*i], health: ports[2*i+1]}
		if i == 0 {
			r.metrics, r.health = cmp.Or(s.opts.Ports.Metrics, r.metrics), cmp.Or(s.opts.Ports.Health, r.health)
		} else {
			r.name = fmt.Sprintf("controller-%d", i+1)
		}
		s.replicas = append(s.replicas, r)
	}
	return nil
}

// StartController starts the replicas of the controller that are down, and waits until they are
// ready. When none is down that is an error.
func (s *Stack) StartController(ctx context.Context) error {
	if s.replicas == nil {
		if err := s.makeReplicas(); err != nil {
			return err
		}
	}
	started := 0
	for _, r := range s.replicas {
		if s.processOf(r) != nil {
			continue
		}
		if err := s.startReplica(ctx, r); err != nil {
			return err
		}
		started++
	}
	if started == 0 {
		return errors.New("starting the controller, it is running; kill it first")
	}
	return nil
}

func (s *Stack) startReplica(ctx context.Context, r *replica) error {
	health := fmt.Sprintf("http://127.0.0.1:%d/readyz", r.health)
	process, err := controlplane.StartProcess(ctx, controlplane.ProcessSpec{
		Name:         r.name,
		Path:         s.opts.controllerPath(),
		Env:          s.environment(r),
		Dir:          s.opts.Dir,
		LogFile:      filepath.Join(s.LogDir(), r.name+".log"),
		Ready:        func(ctx context.Context) error { return ready(ctx, health) },
		StartTimeout: time.Minute,
		StopTimeout:  30 * time.Second, // Kubernetes' own default for a pod
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	r.process = process
	s.mu.Unlock()
	s.undo.Add(process.Stop)
	return nil
}

func (s *Stack) processOf(r *replica) *controlplane.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.process
}

// down takes a replica's process away, which its caller then ends.
func (s *Stack) down(r *replica) *controlplane.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	process := r.process
	r.process = nil
	return process
}

// KillController sends SIGKILL to the controller, to the leader of several replicas, and waits for
// its end.
func (s *Stack) KillController(ctx context.Context) error {
	leader, err := s.leader(ctx)
	if err != nil {
		return fmt.Errorf("killing the controller, %w", err)
	}
	return s.down(leader).Kill()
}

// RollController replaces every replica as a rolling update does: SIGTERM, and a new process once the
// old one has ended. The leader goes first, and each further one only when somebody leads again, so
// that the update is the worst that can happen: whoever takes over is the next to go.
func (s *Stack) RollController(ctx context.Context) error {
	waiting := slices.Clone(s.replicas)
	for len(waiting) > 0 {
		leader, err := s.leader(ctx)
		if err != nil {
			return fmt.Errorf("rolling the controller, %w", err)
		}
		next := max(0, slices.Index(waiting, leader))
		r := waiting[next]
		waiting = slices.Delete(waiting, next, next+1)
		if process := s.down(r); process != nil {
			if err := process.Stop(ctx); err != nil {
				return fmt.Errorf("rolling the controller, %w", err)
			}
		}
		if err := s.startReplica(ctx, r); err != nil {
			return fmt.Errorf("rolling the controller, %w", err)
		}
	}
	_, err := s.leader(ctx)
	return err
}

// ControllerExit returns the error with which a replica ended by itself, nil while all run that
// should.
func (s *Stack) ControllerExit() error {
	for _, r := range s.replicas {
		process := s.processOf(r)
		if process == nil {
			continue
		}
		select {
		case <-process.Done():
			return fmt.Errorf("the controller ended by itself; the last lines of %s:\n  %s",
				process.LogFile(), strings.Join(process.LogTail(10), "\n  "))
		default:
		}
	}
	return nil
}

func ready(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return nil
}

// environment is what a user's Deployment would set, on top of nothing: an AWS profile of whoever
// runs the sandbox must never reach the controller.
func (s *Stack) environment(r *replica) []string {
	env := map[string]string{
		"HOME":                        s.opts.Dir,
		"PATH":                        os.Getenv("PATH"),
		"KUBECONFIG":                  s.access.kubeconfig,
		"SYSTEM_NAMESPACE":            rbac.Namespace,
		"LEADER_ELECTION_NAMESPACE":   rbac.Namespace, // in a pod, that of its ServiceAccount
		"KARPENTER_SERVICE":           "karpenter",
		"DISABLE_LEADER_ELECTION":     strconv.FormatBool(len(s.replicas) == 1),
		"METRICS_PORT":                strconv.Itoa(r.metrics),
		"HEALTH_PROBE_PORT":           strconv.Itoa(r.health),
		"ISOLATED_VPC":                "true",
		"CLUSTER_NAME":                clusterName,
		"CLUSTER_ENDPOINT":            s.plane.URL(),
		"INTERRUPTION_QUEUE":          interruptionQueue,
		"AWS_ENDPOINT_URL":            s.cloud.URL(),
		"AWS_REGION":                  region,
		"AWS_ACCESS_KEY_ID":           "sandbox",
		"AWS_SECRET_ACCESS_KEY":       "sandbox",
		"AWS_EC2_METADATA_DISABLED":   "true",
		"AWS_CONFIG_FILE":             os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	}
	if gates := s.featureGates(); gates != "" {
		env["FEATURE_GATES"] = gates
	}
	maps.Copy(env, s.opts.Settings.Env)
	var list []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

func (s *Stack) featureGates() string {
	var gates []string
	for _, k := range slices.Sorted(maps.Keys(s.opts.Settings.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", k, s.opts.Settings.FeatureGates[k]))
	}
	return strings.Join(gates, ",")
}
