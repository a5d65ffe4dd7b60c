//go:build cgo

package nvml_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent/cli"
	agentnvml "github.com/karpenter-gpu/karpenter-gpu/pkg/agent/nvml"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
)

// asAgent makes this test binary the real agent: one process for each scenario,
// since go-nvml keeps what it found in a library for the whole process.
const asAgent = "KPGPU_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		os.Exit(cli.Command{Out: os.Stdout, Err: os.Stderr, Clock: clock.RealClock{}, Library: agentnvml.New}.Run(stopped(), os.Args[1:]))
	}
	code := m.Run()
	for _, dir := range buildDirs {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// stopped ends when the process is told to stop.
func stopped() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	notify(signals)
	go func() { <-signals; cancel() }()
	return ctx
}

var (
	builds sync.Map
	// buildDirs are removed at the end; tests here run one after the other.
	buildDirs []string
)

// library builds the fake library, once for each set of missing functions.
func library(t *testing.T, without ...string) string {
	t.Helper()
	build, _ := builds.LoadOrStore(strings.Join(without, ","), sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "fake-nvml-")
		if err != nil {
			return "", err
		}
		buildDirs = append(buildDirs, dir)
		return nvml.Build(context.Background(), dir, without...)
	}))
	path, err := build.(func() (string, error))()
	if errors.Is(err, nvml.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// rig is one scenario: a library, its script and a host.
type rig struct {
	lib, config, root string
}

func newRig(t *testing.T, lib string, m nvml.Machine) rig {
	t.Helper()
	r := rig{lib: lib, root: t.TempDir()}
	r.config = filepath.Join(r.root, "nvml.conf")
	r.script(t, m)
	for name, text := range map[string]string{
		"boot_id": m.BootID, "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n", "dev/nvidiactl": "",
	} {
		write(t, filepath.Join(r.root, name), text)
	}
	for i := range m.GPUs {
		write(t, filepath.Join(r.root, fmt.Sprintf("dev/nvidia%d", i)), "")
	}
	return r
}

func (r rig) script(t *testing.T, m nvml.Machine) {
	t.Helper()
	if err := m.WriteConfig(r.config); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r rig) command(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, append([]string{
		"--nvml-library", r.lib, "--boot-id-path", filepath.Join(r.root, "boot_id"),
		"--proc-root", filepath.Join(r.root, "proc"), "--dev-root", filepath.Join(r.root, "dev"),
	}, args...)...)
	cmd.Env = append(os.Environ(), asAgent+"=1", nvml.ConfigEnv+"="+r.config)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	return cmd, &out, &errs
}

// once runs the agent's --once and returns its report and exit code.
func (r rig) once(t *testing.T, args ...string) (health.Report, int) {
	t.Helper()
	cmd, out, errs := r.command(t, append([]string{"--once", "-o", "json"}, args...)...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	report, err := health.Decode(bytes.TrimSpace(out.Bytes()))
	if err != nil {
		t.Fatalf("%v; exit %d, output %s, errors %s", err, cmd.ProcessState.ExitCode(), out, errs)
	}
	return report, cmd.ProcessState.ExitCode()
}

// told is what the table compares of a report.
func told(r health.Report) []string {
	var out []string
	for _, f := range r.Findings {
		where := ""
		if f.GPU != nil {
			where = fmt.Sprintf(" %d", *f.GPU)
		}
		out = append(out, string(f.Reason)+where)
	}
	return out
}

func TestOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		without []string
		change  func(*nvml.Machine)
		args    []string
		exit    int
		faults  []string
	}{
		"a healthy machine is verified": {exit: cli.ExitVerified},
		"a driver that is not loaded":   {change: func(m *nvml.Machine) { m.Init = agent.DriverNotLoaded }, exit: cli.ExitDriverAbsent, faults: []string{"DriverNotLoaded"}},
		"a library of another version":  {change: func(m *nvml.Machine) { m.Init = agent.VersionMismatch }, exit: cli.ExitNotVerified, faults: []string{"DriverLibraryMismatch"}},
		"no GPUs":                       {change: func(m *nvml.Machine) { m.GPUs = nil }, exit: cli.ExitNotVerified, faults: []string{"NoGPUs"}},
		"fewer GPUs than expected":      {args: []string{"--gpus", "3"}, exit: cli.ExitNotVerified, faults: []string{"GPUCountLow"}},
		"a lost GPU":                    {change: func(m *nvml.Machine) { m.GPUs[1].Lost = true }, exit: cli.ExitNotVerified, faults: []string{"GPULost 1"}},
		"an old driver":                 {args: []string{"--min-driver", "560"}, exit: cli.ExitNotVerified, faults: []string{"DriverTooOld"}},
		"a call that hangs": {change: func(m *nvml.Machine) { m.Hang = map[string]bool{"ecc/1": true} },
			args: []string{"--probe-timeout", "200ms"}, exit: cli.ExitNotVerified, faults: []string{"ProbeTimedOut 1"}},
		"an initialization that hangs": {change: func(m *nvml.Machine) { m.Hang = map[string]bool{"init": true} },
			args: []string{"--probe-timeout", "200ms"}, exit: cli.ExitNotVerified, faults: []string{"ProbeTimedOut"}},
		"faults of memory": {change: func(m *nvml.Machine) {
			m.GPUs[0].ECC = &health.ECC{Enabled: true, Pending: true, Uncorrectable: 2, SRAMThreshold: true}
			m.GPUs[1].Rows = &health.Rows{RemapFailed: true, RemapPending: true, PagesPending: true, RepairPending: true}
			*m.GPUs[1].InfoROMValid = false
		}, exit: cli.ExitNotVerified, faults: []string{"ECCThresholdExceeded 0", "RowRemapFailed 1", "ECCUncorrectable 0",
			"RowRemapPending 1", "PageRetirementPending 1", "RepairPending 1", "InfoROMCorrupt 1"}},
		"faults of links": {change: func(m *nvml.Machine) {
			m.GPUs[1].NVLink.Active = 17
			m.GPUs[0].Fabric.State = health.FabricInProgress
			m.GPUs[0].PCIe.Width = 4
		}, exit: cli.ExitNotVerified, faults: []string{"NVLinkDown 1", "FabricNotReady 0", "PCIeWidthReduced 0"}},
		"what the driver asks for": {change: func(m *nvml.Machine) {
			*m.GPUs[0].Recovery, *m.GPUs[1].Throttle, *m.GPUs[1].Persistence = 2, 0x40, false
		}, exit: cli.ExitNotVerified, faults: []string{"RecoveryNeedsReboot 0", "HardwareThrottled 1", "PersistenceOff 1"}},
		"a GPU without optional parts is verified": {change: func(m *nvml.Machine) {
			for i := range m.GPUs {
				m.GPUs[i] = health.GPU{Index: i, Identity: m.GPUs[i].Identity}
			}
		}, exit: cli.ExitVerified},
		"a library without the optional functions is verified, not a crash": {without: optional, exit: cli.ExitVerified},
		"an error that the table does not know": {change: func(m *nvml.Machine) { m.Errors = map[string]agent.Code{"inforom/0": agent.OtherError} },
			exit: cli.ExitVerified, faults: []string{"ProbeFailed 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := nvml.H100(2)
			if tc.change != nil {
				tc.change(&m)
			}
			report, exit := newRig(t, library(t, tc.without...), m).once(t, tc.args...)
			if exit != tc.exit {
				t.Errorf("exit %d, want %d", exit, tc.exit)
			}
			if diff := cmp.Diff(tc.faults, told(report)); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// optional are functions that libraries of old drivers lack.
var optional = []string{
	"nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetMigMode", "nvmlDeviceGetTotalEccErrors",
	"nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPagesPendingStatus", "nvmlDeviceGetRepairStatus",
	"nvmlDeviceValidateInforom", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetCurrPcieLinkWidth",
	"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetFieldValues",
	"nvmlDeviceGetPersistenceMode", "nvmlEventSetCreate",
}

func TestMissingLibraryIsADriverThatIsAbsent(t *testing.T) {
	r := newRig(t, filepath.Join(t.TempDir(), "libnvidia-ml.so.1"), nvml.H100(1))
	report, exit := r.once(t)
	if exit != cli.ExitDriverAbsent || !strings.Contains(report.Findings[0].Message, "cannot open shared object file") {
		t.Errorf("exit %d, %+v", exit, report.Findings)
	}
}

func TestGeometryIsReadAsItIs(t *testing.T) {
	parts := []health.Partition{"3g.40gb@4+4", "2g.20gb@2+2", "1g.10gb+me@0+1", "1g.10gb@1+1"}
	for name, tc := range map[string]struct {
		without []string
		want    []health.Partition
	}{
		"by the driver's profile names":       {nil, parts},
		"by device names without them":        {[]string{"nvmlDeviceGetGpuInstanceProfileInfoV"}, parts},
		"without the right to read the place": {[]string{"nvmlDeviceGetGpuInstanceById"}, []health.Partition{"3g.40gb@?", "2g.20gb@?", "1g.10gb+me@?", "1g.10gb@?"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := nvml.H100(2)
			if err := m.Partition(1, parts...); err != nil {
				t.Fatal(err)
			}
			report, exit := newRig(t, library(t, tc.without...), m).once(t)
			if exit != cli.ExitVerified || report.GPUs[0].MIG || !report.GPUs[1].MIG {
				t.Errorf("exit %d, %+v", exit, report.Findings)
			}
			if diff := cmp.Diff(tc.want, report.GPUs[1].Partitions); diff != "" {
				t.Errorf("partitions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnUpgradedLibraryIsSeenWithoutARestart(t *testing.T) {
	r := newRig(t, filepath.Join(t.TempDir(), "libnvidia-ml.so.1"), nvml.H100(1))
	copyFile(t, library(t, "nvmlDeviceGetMigMode"), r.lib)
	m := nvml.H100(1)
	m.Init = agent.VersionMismatch
	r.script(t, m)
	cmd, out, errs := r.command(t, "--once", "-o", "json", "--wait", "30s", "--start-interval", "1s")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	// The new library knows MIG: only if it was loaded does the report tell of it.
	copyFile(t, library(t), r.lib)
	m = nvml.H100(1)
	if err := m.Partition(0, "7g.80gb@0+8"); err != nil {
		t.Fatal(err)
	}
	r.script(t, m)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	report, err := health.Decode(bytes.TrimSpace(out.Bytes()))
	if err != nil || !report.GPUs[0].MIG {
		t.Errorf("%v, the old library is still loaded: %s", err, out)
	}
}

// copyFile puts a copy in place under a new inode, as a package manager does.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to+".new", data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
}

// apiServer keeps one Node as far as the agent touches it.
type apiServer struct {
	mu        sync.Mutex
	condition map[string]any
	report    string
	heartbeat int
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body struct {
		Metadata struct{ Annotations map[string]string }
		Status   struct{ Conditions []map[string]any }
	}
	if r.Method == http.MethodPatch {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	if report, ok := body.Metadata.Annotations[agent.ReportAnnotation]; ok {
		s.report = report
	}
	if len(body.Status.Conditions) > 0 {
		s.condition = body.Status.Conditions[0]
		s.heartbeat++
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Node", "apiVersion": "v1", "metadata": map[string]any{
		"name": "node-1", "annotations": map[string]string{agent.ReportAnnotation: s.report}}})
}

func (s *apiServer) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%v %v", s.condition["status"], s.condition["reason"])
}

func TestServiceFollowsTheScriptAndStaysSmall(t *testing.T) {
	api := &apiServer{}
	server := httptest.NewServer(api)
	defer server.Close()
	m := nvml.H100(8)
	m.Init = agent.DriverNotLoaded
	r := newRig(t, library(t), m)
	kubeconfig := filepath.Join(r.root, "kubeconfig")
	write(t, kubeconfig, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {}}]}`, server.URL))
	cmd, _, errs := r.command(t, "--node-name", "node-1", "--kubeconfig", kubeconfig, "--start-interval", "1s", "--interval", "1s", "--probe-timeout", "1s")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await := func(what, want string) {
		t.Helper()
		for range 300 {
			if api.reason() == want {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatalf("%s: %s, want %s; errors %s", what, api.reason(), want, errs)
	}
	await("before the driver", "Unknown DriverNotLoaded")
	m.Init = ""
	r.script(t, m)
	await("with the driver", "True Verified")
	time.Sleep(2 * time.Second)
	rss := residentKiB(t, cmd.Process.Pid)
	t.Logf("resident after start and checks of 8 GPUs: %d KiB", rss)
	if rss > 40<<10 && !instrumented {
		t.Errorf("resident %d KiB, want at most 40 MiB", rss)
	}
	m.Events = []health.XIDEvent{{Code: 13, GPU: 0, GI: -1}, {Code: 79, GPU: 5, GI: -1}}
	r.script(t, m)
	await("after XID 79", "False XIDNeedsReplacement")
	if report, err := health.Decode([]byte(api.report)); err != nil || *report.Findings[0].GPU != 5 {
		t.Errorf("%v, report %s", err, api.report)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %s", took)
	}
}

func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc here")
	}
	var kib int
	for line := range strings.Lines(string(data)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

func TestAFullCheckOfEightGPUsTakesLessThanASecond(t *testing.T) {
	m := nvml.H100(8)
	for i := range m.GPUs {
		if err := m.Partition(i, "1g.10gb@0+1", "1g.10gb@1+1", "1g.10gb@2+1", "1g.10gb@3+1", "1g.10gb@4+1", "1g.10gb@5+1", "1g.10gb@6+1"); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, library(t), m)
	t.Setenv(nvml.ConfigEnv, r.config)
	lib := agentnvml.New(r.lib)
	s := agent.NewSampler(lib, agent.OSHost{DevRoot: filepath.Join(r.root, "dev")}, clock.RealClock{}, agent.SamplerOptions{})
	best := time.Hour
	for range 5 {
		began := time.Now()
		got := s.Sample(context.Background(), health.Policy{})
		best = min(best, time.Since(began))
		if len(got.GPUs) != 8 || len(got.GPUs[7].MIG.Instances) != 7 || len(got.Probes) != 0 {
			t.Fatalf("%d GPUs, probes %v", len(got.GPUs), got.Probes)
		}
	}
	t.Logf("full check of 8 GPUs with 56 instances: %s", best)
	if best > time.Second {
		t.Errorf("a full check took %s", best)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
