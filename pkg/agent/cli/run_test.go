package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent/cli"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
)

// run runs the command on a simulated machine.
func run(t *testing.T, m nvml.Machine, args ...string) (int, string, string) {
	t.Helper()
	t.Setenv("NODE_NAME", "")
	var out, errs bytes.Buffer
	lib := nvml.NewLibrary(clock.RealClock{}, m)
	code := cli.Command{Out: &out, Err: &errs, Clock: clock.RealClock{}, Host: lib,
		Library: func(string) agent.Library { return lib }}.Run(context.Background(), args)
	return code, out.String(), errs.String()
}

func TestTableIsForPeople(t *testing.T) {
	m := nvml.H100(3)
	if err := m.Partition(1, "3g.40gb@0+4", "3g.40gb@4+4"); err != nil {
		t.Fatal(err)
	}
	m.GPUs[2].Lost = true
	*m.GPUs[0].Persistence = false
	code, out, _ := run(t, m, "--once")
	lines := strings.Split(out, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	want := `STATE    Unhealthy (GPULost)
MESSAGE  GPU 2: lost, the GPU does not answer
DRIVER   550.54.15  LIBRARY  12.550.54.15  CUDA  12.4
BOOT     00000000-0000-4000-8000-000000000001

GPU  PRODUCT                MIB    CC   MIG                      UUID
0    NVIDIA H100 80GB HBM3  81559  9.0  off                      GPU-00000000-0000-4000-8000-000000000000
1    NVIDIA H100 80GB HBM3  81559  9.0  3g.40gb@0+4,3g.40gb@4+4  GPU-00000001-0000-4000-8000-000000000000
2    -                      0      -    lost                     -

SEVERITY  REASON          ACTION   WHERE  WHAT
Fatal     GPULost         Replace  gpu 2  lost, the GPU does not answer
Warning   PersistenceOff  None     gpu 0  persistence mode is off, the driver unloads when idle
`
	if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" || code != cli.ExitNotVerified {
		t.Errorf("exit %d, output (-want +got):\n%s", code, diff)
	}
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for path, text := range map[string]string{good: "checks: {persistence: {severity: Fatal}}", bad: "checks: {ecc: {severity: Loud}}"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	off := nvml.H100(1)
	*off.GPUs[0].Persistence = false
	absent := nvml.H100(1)
	absent.Init = agent.LibraryMissing
	for name, tc := range map[string]struct {
		machine nvml.Machine
		args    []string
		code    int
		stderr  string
	}{
		"a verified node":              {nvml.H100(1), []string{"--once", "-o", "json"}, cli.ExitVerified, ""},
		"a warning is verified":        {off, []string{"--once"}, cli.ExitVerified, ""},
		"a policy that makes it fatal": {off, []string{"--once", "--policy-file", good}, cli.ExitNotVerified, ""},
		"a check that is off":          {off, []string{"--once", "--policy-file", good, "--disable-checks", "persistence"}, cli.ExitVerified, ""},
		"a missing library":            {absent, []string{"--once"}, cli.ExitDriverAbsent, ""},
		"help":                         {nvml.H100(1), []string{"--help"}, cli.ExitVerified, "--nvml-library"},
		"an unknown flag":              {nvml.H100(1), []string{"--twice"}, cli.ExitUsage, "unknown flag: --twice"},
		"an argument":                  {nvml.H100(1), []string{"--once", "now"}, cli.ExitUsage, `"now" is no flag`},
		"an unknown format":            {nvml.H100(1), []string{"--once", "-o", "xml"}, cli.ExitUsage, `--output "xml" is neither json nor table`},
		"a service without a name":     {nvml.H100(1), nil, cli.ExitUsage, "--node-name is empty"},
		"an interval of nothing":       {nvml.H100(1), []string{"--once", "--interval", "0s"}, cli.ExitUsage, "--interval 0s is below 1s"},
		"a policy that is wrong":       {nvml.H100(1), []string{"--once", "--policy-file", bad}, cli.ExitUsage, `checks.ecc.severity: "Loud" is neither`},
		"a policy that is missing":     {nvml.H100(1), []string{"--once", "--policy-file", bad + "x"}, cli.ExitUsage, "reading --policy-file"},
		"an unknown check":             {nvml.H100(1), []string{"--once", "--disable-checks", "all"}, cli.ExitUsage, `"all" is no check`},
		"a version that is none":       {nvml.H100(1), []string{"--once", "--min-driver", "new"}, cli.ExitUsage, `minDriver: version "new"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := run(t, tc.machine, tc.args...)
			if code != tc.code || !strings.Contains(stderr, tc.stderr) {
				t.Errorf("exit %d, want %d; errors %q, want %q in them", code, tc.code, stderr, tc.stderr)
			}
		})
	}
}

func TestWaitEndsWhenTheDriverComes(t *testing.T) {
	m := nvml.H100(1)
	m.Init = agent.DriverNotLoaded
	lib := nvml.NewLibrary(clock.RealClock{}, m)
	var out bytes.Buffer
	polls := 0
	c := cli.Command{Out: &out, Err: &out, Clock: clock.RealClock{}, Host: lib, Library: func(string) agent.Library {
		return late{lib, func() {
			if polls++; polls == 2 {
				lib.Update(func(m *nvml.Machine) { m.Init = "" })
			}
		}}
	}}
	if code := c.Run(context.Background(), []string{"--once", "-o", "json", "--wait", "20s", "--start-interval", "1s"}); code != cli.ExitVerified {
		t.Errorf("exit %d: %s", code, out.String())
	}
	if r, err := health.Decode(bytes.TrimSpace(out.Bytes())); err != nil || r.State != health.Ready {
		t.Errorf("%v: %s", err, out.String())
	}
}

// late runs a hook before each initialization.
type late struct {
	*nvml.Library
	before func()
}

func (l late) Init() error {
	l.before()
	return l.Library.Init()
}
