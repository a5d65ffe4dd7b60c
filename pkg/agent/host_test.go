package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOSHostReadsTheMachine(t *testing.T) {
	root := t.TempDir()
	h := agent.OSHost{ProcRoot: filepath.Join(root, "proc"), DevRoot: filepath.Join(root, "dev")}
	if _, err := h.BootID(); err == nil {
		t.Error("a boot ID was read from nowhere")
	}
	if got := h.KernelModule(); got != "" {
		t.Errorf("module %q", got)
	}
	if diff := cmp.Diff([]string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"}, h.MissingDeviceNodes([]int{1, 0, -1})); diff != "" {
		t.Error(diff)
	}
	write(t, filepath.Join(root, "proc/sys/kernel/random/boot_id"), "abc\n")
	write(t, filepath.Join(root, "proc/driver/nvidia/version"),
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  gcc version 12.2.0\n")
	write(t, filepath.Join(root, "dev/nvidiactl"), "")
	write(t, filepath.Join(root, "dev/nvidia0"), "")
	if id, err := h.BootID(); err != nil || id != "abc" {
		t.Errorf("boot ID %q, %v", id, err)
	}
	if got := h.KernelModule(); got != "550.54.15" {
		t.Errorf("module %q", got)
	}
	if diff := cmp.Diff([]string{"/dev/nvidia1"}, h.MissingDeviceNodes([]int{0, 1})); diff != "" {
		t.Error(diff)
	}
}
