package app

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

func command(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := New(Streams{Out: &out, Err: &errs}, time.Now)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestNothingIsUp(t *testing.T) {
	dir := t.TempDir()
	for verb, want := range map[string]string{
		"status": "no sandbox is up; start one with sandbox up\n",
		"down":   "no sandbox is up\n",
	} {
		out, _, err := command(t, verb, "--bin", dir)
		if err != nil || out != want {
			t.Errorf("%s: got %q, %v", verb, out, err)
		}
	}
}

func TestASecondUpIsToldHowToProceed(t *testing.T) {
	r := &root{dir: t.TempDir()}
	lock, err := r.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := r.save(state{PID: 4242, Kubeconfig: "/some/kubeconfig", Controller: scenario.ControllerOurs}); err != nil {
		t.Fatal(err)
	}
	_, _, err = command(t, "up", "--dir", r.dir)
	if err == nil {
		t.Fatal("a second up was let through")
	}
	for _, want := range []string{"up already (pid 4242)", "kubectl --kubeconfig /some/kubeconfig", "sandbox down", "--dir"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	out, _, err := command(t, "status", "--dir", r.dir)
	if err != nil || !strings.Contains(out, "pid 4242, ours controller") {
		t.Errorf("status: got %q, %v", out, err)
	}
}

func TestAStateFileWithoutALockMeansNothing(t *testing.T) {
	r := &root{dir: t.TempDir()}
	if err := r.save(state{PID: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	if s, err := r.running(); s != nil || err != nil {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestRunReadsEveryFileBeforeItPlaysOne(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", "name: good\nsteps: [{wait: 1s}]\n")
	bad := write("bad.yaml", "name: bad\nsteps:\n  - pause: 1s\n")
	_, _, err := command(t, "run", good, bad, filepath.Join(dir, "none.yaml"), "--bin", dir)
	if err == nil {
		t.Fatal("bad files were let through")
	}
	for _, want := range []string{bad + `:3: unknown field "pause" in steps`, "none.yaml: no such file"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "sandbox-data", "runs")); !os.IsNotExist(err) {
		t.Error("a run was begun")
	}
}

func TestAMissingControllerIsToldWithTheWayOut(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "s.yaml")
	if err := os.WriteFile(file, []byte("name: s\nsteps: [{wait: 1s}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _, err := command(t, "run", file, "--controller", "stock", "--bin", dir, "-o", "json")
	if err == nil || !strings.Contains(err.Error(), "stock-controller; run make build") {
		t.Errorf("got %v", err)
	}
	var results []scenario.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 0 {
		t.Errorf("standard output is no JSON array: %q", out)
	}
}

func TestProgressWithoutATerminalIsALineForEachPhase(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	p := newProgress(&b, func() time.Time { now = now.Add(500 * time.Millisecond); return now }, "burst")
	p.phase("control plane")
	p.Stepping("pods run", "")
	p.Stepping("pods run", "pods: 3, want 4")
	p.Stepped(scenario.StepResult{Title: "pods run", Unmet: []string{"pods: 3, want 4"}})
	p.end()
	want := "burst    0.5 s  control plane (0.5 s)\nburst    1.5 s  pods run (0.5 s) FAILED pods: 3, want 4\n"
	if got := b.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
