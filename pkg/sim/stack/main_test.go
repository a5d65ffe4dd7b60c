package stack

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
)

// pretend makes the test binary play a controller that is ready, leads if no other does, and does
// nothing: the suite is about the parts around it, and must not wait for a build of the real one.
const pretend = "STACK_TEST_CONTROLLER"

func TestMain(m *testing.M) {
	if os.Getenv(pretend) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, playController())
	os.Exit(1)
}

// playController holds a file lock in place of a lease: the kernel gives it on at the end of a
// process, however that ends.
func playController() error {
	lease, err := os.OpenFile(filepath.Join(os.Getenv("HOME"), "lease"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lease.Close()
	leads := make(chan error, 1)
	go func() { leads <- syscall.Flock(int(lease.Fd()), syscall.LOCK_EX) }()
	status := func(w http.ResponseWriter, _ *http.Request) {
		select {
		case err := <-leads:
			leads <- err
			fmt.Fprintln(w, `leader_election_master_status{name="karpenter-leader-election"} 1`)
		default:
			fmt.Fprintln(w, `leader_election_master_status{name="karpenter-leader-election"} 0`)
		}
	}
	ended := make(chan error, 2)
	for port, serve := range map[string]http.HandlerFunc{"METRICS_PORT": status, "HEALTH_PROBE_PORT": func(http.ResponseWriter, *http.Request) {}} {
		go func() { ended <- http.ListenAndServe("127.0.0.1:"+os.Getenv(port), serve) }()
	}
	return <-ended
}

// binDir returns the directory whose controlplane/ has the binaries. Without them the test is
// skipped, unless KPGPU_REQUIRE_ASSETS is set.
func binDir(t *testing.T) string {
	t.Helper()
	path, err := controlplane.FindBinary("", controlplane.KWOK)
	if err == nil {
		return filepath.Dir(filepath.Dir(path))
	}
	if os.Getenv("KPGPU_REQUIRE_ASSETS") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
	return ""
}
