package nvml_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
)

func TestWriteConfigTellsTheWholeMachine(t *testing.T) {
	m := nvml.NewMachine(1, "Tesla T4", 15360, "7.5", 0)
	if err := m.Partition(0, "1g.10gb@1+1"); err != nil {
		t.Fatal(err)
	}
	m.Hang = map[string]bool{"ecc/0": true, "init": true}
	m.Errors = map[string]agent.Code{"wait": agent.GPULost}
	m.Events = []health.XIDEvent{{Code: 79, GPU: 0, GI: -1}}
	path := filepath.Join(t.TempDir(), "conf")
	if err := m.WriteConfig(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `init=0
driver=550.54.15
library=12.550.54.15
cuda=12040
gpus=1
gpu.0.lost=0
gpu.0.name=Tesla T4
gpu.0.uuid=GPU-00000000-0000-4000-8000-000000000000
gpu.0.memory=15360
gpu.0.cc=7.5
gpu.0.minor=0
gpu.0.mig=1 1 1g.10gb:1:1:1:MIG-00000000-0000-4000-8000-000000000001
gpu.0.ecc=1 1 0 0
gpu.0.rows=0 0 0 0 0 0
gpu.0.inforom=1
gpu.0.nvlink=unsupported
gpu.0.fabric=unsupported
gpu.0.pcie=16 16
gpu.0.throttle=1
gpu.0.recovery=0
gpu.0.persistence=1
gpu.0.hang.nvmlDeviceGetEccMode=1
hang.nvmlInit_v2=1
ret.nvmlEventSetWait_v2=15
event=1 0 79 -1
`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".fake-nvml-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWriteConfigNamesWhatItCannotWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		machine nvml.Machine
		want    string
	}{
		"a call that is none":    {nvml.Machine{Hang: map[string]bool{"everything": true}}, `"everything" is no call`},
		"a version that is none": {nvml.Machine{Node: agent.Node{CUDAVersion: "twelve"}}, `CUDA version "twelve"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.machine.WriteConfig(filepath.Join(t.TempDir(), "conf"))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
	m := nvml.H100(1)
	if err := m.Partition(0, "1g.10gb"); err == nil {
		t.Error("a partition without a place was taken")
	}
}

func TestEventsAreDeliveredOnce(t *testing.T) {
	lib := nvml.NewLibrary(clock.RealClock{}, nvml.H100(1))
	if _, err := lib.Wait(time.Millisecond); agent.CodeOf(err) != agent.Uninitialized {
		t.Errorf("before Init: %v", err)
	}
	if err := lib.Init(); err != nil {
		t.Fatal(err)
	}
	lib.Update(func(m *nvml.Machine) { m.Events = append(m.Events, health.XIDEvent{Code: 1, GPU: 0, GI: -1}) })
	lib.Update(func(m *nvml.Machine) { m.Events = append(m.Events, health.XIDEvent{Code: 2, GPU: 0, GI: -1}) })
	first, err := lib.Wait(time.Millisecond)
	second, err2 := lib.Wait(time.Millisecond)
	if len(first) != 2 || len(second) != 0 || err != nil || err2 != nil {
		t.Errorf("first %v %v, second %v %v", first, err, second, err2)
	}
	woken := make(chan []health.XIDEvent)
	go func() {
		events, _ := lib.Wait(time.Minute)
		woken <- events
	}()
	lib.Update(func(m *nvml.Machine) { m.Events = append(m.Events, health.XIDEvent{Code: 3, GPU: 0, GI: -1}) })
	if got := <-woken; len(got) != 1 || got[0].Code != 3 {
		t.Errorf("woken with %v", got)
	}
}
