package realnode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/guest"
)

// remote talks to the machine's init.
type remote struct{ http http.Client }

func newRemote(socket string) *remote {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	// A connection that is kept would be one to an earlier boot.
	return &remote{http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// post sends a value as JSON and decodes the answer into another; both may be nil.
func (c *remote) post(ctx context.Context, path string, value, into any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("asking the machine, %w", err)
	}
	return c.do(ctx, http.MethodPost, path, bytes.NewReader(body), into)
}

func (c *remote) do(ctx context.Context, method, path string, body io.Reader, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://machine"+path, body)
	if err != nil {
		return fmt.Errorf("asking the machine, %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("asking the machine, %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10)) // only for the message
		return fmt.Errorf("asking the machine for %s, %s", path, strings.TrimSpace(string(text)))
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}

func (c *remote) run(ctx context.Context, args ...string) (result guest.Result, err error) {
	err = c.post(ctx, "/run", guest.Command{Args: args}, &result)
	return result, err
}

// Run runs a program in the machine to its end. A status that is not zero is an error with the
// output.
func (m *Machine) Run(ctx context.Context, args ...string) (output string, err error) {
	result, err := m.init.run(ctx, args...)
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("running %s in the machine, exit status %d: %s", strings.Join(args, " "), result.Code, strings.TrimSpace(result.Output))
	}
	return result.Output, err
}

func (m *Machine) runLocked(ctx context.Context, args ...string) error {
	_, err := m.Run(ctx, args...)
	return err
}

// Services tells of containerd and the kubelet.
func (m *Machine) Services(ctx context.Context) (list []guest.Status, err error) {
	err = m.init.do(ctx, http.MethodGet, "/services", nil, &list)
	return list, err
}

// KillService ends a service with SIGKILL; init starts it again a second later.
func (m *Machine) KillService(ctx context.Context, name string) error {
	return m.init.post(ctx, "/services/"+name+"/kill", nil, nil)
}

// Process is one that runs in the machine.
type Process struct {
	// PID is the host's.
	PID int
	// Command is its command line.
	Command []string
}

// Processes lists what runs in the machine, by process ID.
func (m *Machine) Processes() ([]Process, error) {
	m.mu.Lock()
	supervisor := m.process
	m.mu.Unlock()
	if supervisor == nil {
		return nil, nil
	}
	pids, err := guest.Processes(guest.Cgroup(supervisor.Pid()))
	if err != nil {
		return nil, fmt.Errorf("listing the machine's processes, %w", err)
	}
	var list []Process
	for _, pid := range pids {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading a command line, %w", err)
		}
		if command := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00"); command[0] != "" {
			list = append(list, Process{PID: pid, Command: command})
		}
	}
	return list, nil
}

// BootID is that of the present or last boot; empty before the first.
func (m *Machine) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boots == 0 {
		return ""
	}
	return bootID(m.opts.Seed, m.boots)
}

// Name is that of the Node; empty before the first boot.
func (m *Machine) Name() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.identity.Name
}

// Disk is the machine's /var, as the host sees it.
func (m *Machine) Disk() string { return m.spec.Disk() }

// Logs is where the output of machine, containerd and kubelet goes.
func (m *Machine) Logs() string { return m.spec.Logs() }

// Supervisor is the host's ID of the process whose life is the machine's; 0 while it is off.
func (m *Machine) Supervisor() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return 0
	}
	return m.process.Pid()
}
