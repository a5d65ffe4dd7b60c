package stack

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
)

// pretend makes the test binary play a controller that is ready and does nothing: the suite is
// about the parts around it, and must not wait for a build of the real one.
const pretend = "STACK_TEST_CONTROLLER"

func TestMain(m *testing.M) {
	if os.Getenv(pretend) == "" {
		os.Exit(m.Run())
	}
	err := http.ListenAndServe("127.0.0.1:"+os.Getenv("HEALTH_PROBE_PORT"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
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
