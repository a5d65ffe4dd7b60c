package testenv

import (
	"path/filepath"
	"testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
)

// UseAssets points controller-runtime's envtest, and Karpenter's test environment
// above it, at the binaries that Start would use, for the time of a test. Where there
// are none the test fails with the way to build them.
func UseAssets(t testing.TB) {
	t.Helper()
	path, err := controlplane.FindBinary("", controlplane.APIServer)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(controlplane.AssetsEnv, filepath.Dir(path))
}
