package stack

import (
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
)

// StartController starts the controller and waits until it is ready. One that runs already is an
// error.
func (s *Stack) StartController(ctx context.Context) error {
	s.mu.Lock()
	running := s.controller != nil
	s.mu.Unlock()
	if running {
		return errors.New("starting the controller, it is running; kill it first")
	}
	ports := s.opts.Ports
	if err := fill(&ports.Metrics, &ports.Health); err != nil {
		return err
	}
	health := fmt.Sprintf("http://127.0.0.1:%d/readyz", ports.Health)
	process, err := controlplane.StartProcess(ctx, controlplane.ProcessSpec{
		Name:         "controller",
		Path:         s.opts.controllerPath(),
		Env:          s.environment(ports),
		Dir:          s.opts.Dir,
		LogFile:      filepath.Join(s.LogDir(), "controller.log"),
		Ready:        func(ctx context.Context) error { return ready(ctx, health) },
		StartTimeout: time.Minute,
		StopTimeout:  10 * time.Second,
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.controller = process
	s.opts.Ports = ports // the same after a restart, as on a host
	s.undo = append(s.undo, func(ctx context.Context) error { return process.Stop(ctx) })
	s.mu.Unlock()
	return nil
}

// KillController sends SIGKILL to the controller and waits for its end.
func (s *Stack) KillController(context.Context) error {
	s.mu.Lock()
	process := s.controller
	s.controller = nil
	s.mu.Unlock()
	if process == nil {
		return errors.New("killing the controller, it is not running")
	}
	return process.Kill()
}

// ControllerExit returns the error with which a controller ended by itself, nil while it runs.
func (s *Stack) ControllerExit() error {
	s.mu.Lock()
	process := s.controller
	s.mu.Unlock()
	if process == nil {
		return nil
	}
	select {
	case <-process.Done():
		return fmt.Errorf("the controller ended by itself; the last lines of %s:\n  %s",
			process.LogFile(), strings.Join(process.LogTail(10), "\n  "))
	default:
		return nil
	}
}

func fill(ports ...*int) error {
	free, err := controlplane.FreePorts(len(ports))
	if err != nil {
		return err
	}
	for i, p := range ports {
		if *p == 0 {
			*p = free[i]
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
func (s *Stack) environment(ports Ports) []string {
	env := map[string]string{
		"HOME":                        s.opts.Dir,
		"PATH":                        os.Getenv("PATH"),
		"KUBECONFIG":                  s.plane.Kubeconfig(),
		"SYSTEM_NAMESPACE":            "kube-system",
		"KARPENTER_SERVICE":           "karpenter",
		"DISABLE_LEADER_ELECTION":     "true",
		"METRICS_PORT":                strconv.Itoa(ports.Metrics),
		"HEALTH_PROBE_PORT":           strconv.Itoa(ports.Health),
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
