//go:build linux

// Package node_test shows the agent and the gate on a real node: a real kubelet and containerd,
// the agent's own chart, and the device-plugin protocol. See docs/development/real-node.md.
//
// The tests need root and some packages, and take minutes: they run by `make e2e-node`, and are
// skipped otherwise, with the reason.
package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode"
)

const (
	// wanted is set by make e2e-node.
	wanted = "KPGPU_NODE"
	// binaries is the directory of what make builds, bin by default.
	binaries = "KPGPU_BIN"

	agentImage  = "docker.io/local/agent"
	pluginImage = "docker.io/local/device-plugin:1"
	workImage   = "docker.io/local/work:1"
	imageTag    = "e2e"

	// patience bounds one step on a machine that compiles meanwhile.
	patience = 2 * time.Minute
	interval = 100 * time.Millisecond
)

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		if err := parent(); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if lib, err := library(); err == nil {
		_ = os.RemoveAll(filepath.Dir(lib)) // a temporary directory
	}
	os.Exit(code)
}

// need skips a test where there is no real node to be had, with the reason.
func need(t *testing.T) {
	t.Helper()
	if os.Getenv(wanted) == "" {
		t.Skip("a real node is started by `make e2e-node` only")
	}
	if err := realnode.Check(); err != nil {
		t.Fatal(err) // prepare.sh has said that a machine can be had
	}
}

// bin returns the path of a program that make builds.
func bin(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv(binaries)
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v: run `make e2e-node`", err)
	}
	return path
}

// library is the fake libnvidia-ml.so.1, built once, and only where a node is wanted.
var library = sync.OnceValues(func() (string, error) {
	if os.Getenv(wanted) == "" {
		return "", errors.New("no real node is wanted")
	}
	dir, err := os.MkdirTemp("", "kgnvml-")
	if err != nil {
		return "", err
	}
	return nvml.Build(context.Background(), dir)
})

// images are what the machine has on its disk, and the directory where the loader of the
// agent's image looks for libraries.
func images(t *testing.T, library string) (list []realnode.Image, libraryDir string) {
	t.Helper()
	guest, agent := bin(t, "guest"), bin(t, "agent")
	files, err := realnode.Libraries(agent, library)
	if err != nil {
		t.Fatal(err)
	}
	for path := range files {
		if filepath.Base(path) == "libc.so.6" {
			libraryDir = filepath.Dir(path)
		}
	}
	if libraryDir == "" {
		t.Fatalf("the agent is linked to no libc.so.6: %v", files)
	}
	files["/agent"] = agent
	return []realnode.Image{
		{Name: agentImage + ":" + imageTag, Files: files, Entrypoint: []string{"/agent"}},
		{Name: pluginImage, Files: map[string]string{"/guest": guest}, Entrypoint: []string{"/guest", "device-plugin", realnode.PluginDir}},
		{Name: workImage, Files: map[string]string{"/guest": guest}, Entrypoint: []string{"/guest", "work"}},
	}, libraryDir
}

// eventually tries until it succeeds, and fails the test with the last error.
func eventually(t *testing.T, what string, try func(ctx context.Context) error) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		err := try(t.Context())
		if err == nil {
			took := time.Since(start)
			t.Logf("%6.1fs  %s", took.Seconds(), what)
			return took
		}
		if time.Since(start) > patience {
			t.Fatalf("%s: not after %s: %v", what, patience, err)
		}
		time.Sleep(interval)
	}
}

// steadily demands that it succeeds for a while.
func steadily(t *testing.T, what string, hold time.Duration, try func(ctx context.Context) error) {
	t.Helper()
	for start := time.Now(); time.Since(start) < hold; time.Sleep(interval) {
		if err := try(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	t.Logf("%6.1fs  %s, all the time", hold.Seconds(), what)
}

// assets skips nothing: make e2e-node has built the control plane.
func assets(t *testing.T) {
	t.Helper()
	_, err := controlplane.FindBinary("", controlplane.APIServer)
	var missing *controlplane.MissingBinaryError
	if errors.As(err, &missing) {
		t.Fatal(err)
	}
}
