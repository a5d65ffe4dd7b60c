package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var born = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

var unhurried = Settings{Driver: Fixed(40 * time.Second), Plugin: Fixed(10 * time.Second), Labels: Fixed(5 * time.Second), MIG: Fixed(20 * time.Second), Strategy: "mixed"}

// moment is what a test looks at of a view.
type moment struct {
	product, state string
	capacity       map[string]int64
	allocatable    map[string]int64
	driver         bool
	layout         string
	next           time.Duration
}

func lookAt(m *Machine, at time.Duration, s Settings, faults ...Fault) moment {
	v := m.advance(born.Add(at), s, faults, Catalogue())
	out := moment{
		product: v.labels["nvidia.com/gpu.product"], state: v.labels[LabelMIGState],
		capacity: v.capacity, allocatable: v.allocatable, driver: v.facts.Driver, layout: v.facts.Layout,
	}
	if !v.next.IsZero() {
		out.next = v.next.Sub(born)
	}
	return out
}

func machineOf(instanceType string) *Machine {
	m := newMachine("n1", instanceType, "us-east-1a", 1, 0, born)
	if err := m.steer("", "", born); err != nil {
		panic(err)
	}
	return m
}

func gpus(n int64) map[string]int64 { return map[string]int64{"nvidia.com/gpu": n} }

func TestANodeComesUpStepByStep(t *testing.T) {
	m := machineOf("p5.48xlarge")
	for _, tc := range []struct {
		at   time.Duration
		want moment
	}{
		{0, moment{next: 40 * time.Second}},
		{39 * time.Second, moment{next: 40 * time.Second}},
		{40 * time.Second, moment{driver: true, next: 45 * time.Second}},
		{45 * time.Second, moment{driver: true, product: "NVIDIA-H100-80GB-HBM3", next: 50 * time.Second}},
		{50 * time.Second, moment{driver: true, product: "NVIDIA-H100-80GB-HBM3", capacity: gpus(8), allocatable: gpus(8)}},
	} {
		if diff := cmp.Diff(tc.want, lookAt(m, tc.at, unhurried), cmp.AllowUnexported(moment{})); diff != "" {
			t.Errorf("at %s: %s", tc.at, diff)
		}
	}
}

func TestFaults(t *testing.T) {
	whole := moment{driver: true, product: "NVIDIA-H100-80GB-HBM3", capacity: gpus(8), allocatable: gpus(8)}
	for name, tc := range map[string]struct {
		fault Fault
		want  moment
	}{
		"none that matches": {Fault{Kind: DriverNever, Match: Match{Nth: 2}}, whole},
		"driver never":      {Fault{Kind: DriverNever}, moment{}},
		"driver late":       {Fault{Kind: DriverLate, Delay: Fixed(time.Minute)}, moment{next: 100 * time.Second}},
		"plugin never":      {Fault{Kind: PluginNever}, moment{driver: true, product: whole.product}},
		"plugin late":       {Fault{Kind: PluginLate, Delay: Fixed(time.Minute)}, moment{driver: true, product: whole.product, next: 110 * time.Second}},
		"plugin partial":    {Fault{Kind: PluginPartial, GPUs: 5}, moment{driver: true, product: whole.product, capacity: gpus(5), allocatable: gpus(5)}},
		"plugin partial, none": {Fault{Kind: PluginPartial}, moment{
			driver: true, product: whole.product, capacity: gpus(0), allocatable: gpus(0)}},
		"one GPU lost": {Fault{Kind: GPULost, GPUs: 1}, moment{driver: true, product: whole.product, capacity: gpus(8), allocatable: gpus(7)}},
		"more GPUs lost than there are": {Fault{Kind: GPULost, GPUs: 9}, moment{
			driver: true, product: whole.product, capacity: gpus(8), allocatable: gpus(0)}},
		"labels never": {Fault{Kind: LabelsNever}, moment{driver: true, capacity: gpus(8), allocatable: gpus(8)}},
		"labels late":  {Fault{Kind: LabelsLate, Delay: Fixed(time.Hour)}, moment{driver: true, capacity: gpus(8), allocatable: gpus(8), next: 3645 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.fault.Validate(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, lookAt(machineOf("p5.48xlarge"), time.Minute, unhurried, tc.fault), cmp.AllowUnexported(moment{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFactsOfFaults: what NVML sees apart from what the plugin shows.
func TestFactsOfFaults(t *testing.T) {
	up := Facts{Driver: true, Found: -1}
	with := func(change func(*Facts)) Facts { f := up; change(&f); return f }
	for name, tc := range map[string]struct {
		faults []Fault
		want   Facts
		gpus   int64
	}{
		"none":                        {nil, up, 8},
		"fewer GPUs":                  {[]Fault{{Kind: NVMLFewer, GPUs: 7}}, with(func(f *Facts) { f.Found = 7 }), 7},
		"no GPU":                      {[]Fault{{Kind: NVMLFewer}}, with(func(f *Facts) { f.Found = 0 }), 0},
		"hidden loss":                 {[]Fault{{Kind: NVMLLost, GPUs: 1}}, with(func(f *Facts) { f.LostGPUs = 1 }), 8},
		"open loss":                   {[]Fault{{Kind: GPULost, GPUs: 1}}, with(func(f *Facts) { f.LostGPUs = 1 }), 7},
		"driver mismatch":             {[]Fault{{Kind: DriverMismatch}}, with(func(f *Facts) { f.Mismatch = true }), 8},
		"errors in order":             {[]Fault{{Kind: XIDError, Name: "a", Code: 79}, {Kind: XIDError, Name: "b", Code: 95, Instance: 3}}, with(func(f *Facts) { f.XIDs = "79/0 95/3" }), 8},
		"an error of the boot before": {[]Fault{{Kind: XIDError, Code: 79, since: born.Add(-time.Second)}}, up, 8},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineOf("p5.48xlarge")
			v := m.advance(born.Add(time.Hour), unhurried, tc.faults, Catalogue())
			if diff := cmp.Diff(tc.want, v.facts); diff != "" || v.allocatable["nvidia.com/gpu"] != tc.gpus {
				t.Errorf("allocatable %v, facts (-want +got)\n%s", v.allocatable, diff)
			}
		})
	}
	if diff := cmp.Diff([]XID{{Code: 79}, {Code: 95, Instance: 3}}, ParseXIDs("79/0 95/3")); diff != "" {
		t.Error(diff)
	}
}

func TestThePluginHoldsBackPartitionsAtFault(t *testing.T) {
	hit := func(code, instance int) Fault { return Fault{Kind: XIDError, Code: code, Instance: instance} }
	for name, tc := range map[string]struct {
		layout, strategy string
		faults           []Fault
		want             map[string]int64
	}{
		"one of a kind":               {"all-1g.5gb", "mixed", []Fault{hit(95, 3)}, map[string]int64{"nvidia.com/mig-1g.5gb": 55}},
		"two errors of one partition": {"all-1g.5gb", "mixed", []Fault{hit(95, 3), hit(79, 3)}, map[string]int64{"nvidia.com/mig-1g.5gb": 55}},
		"two partitions":              {"all-1g.5gb", "mixed", []Fault{hit(95, 3), hit(95, 4)}, map[string]int64{"nvidia.com/mig-1g.5gb": 54}},
		"the kind that was hit":       {"all-balanced", "mixed", []Fault{hit(95, 1)}, map[string]int64{"nvidia.com/mig-1g.5gb": 16, "nvidia.com/mig-2g.10gb": 8, "nvidia.com/mig-3g.20gb": 7}},
		"under the name of a GPU":     {"all-1g.5gb", "single", []Fault{hit(95, 3)}, map[string]int64{"nvidia.com/gpu": 55}},
		"the application's error":     {"all-1g.5gb", "mixed", []Fault{hit(31, 3)}, map[string]int64{"nvidia.com/mig-1g.5gb": 56}},
		"no such partition":           {"all-1g.5gb", "mixed", []Fault{hit(95, 8)}, map[string]int64{"nvidia.com/mig-1g.5gb": 56}},
		"a whole GPU":                 {"all-1g.5gb", "mixed", []Fault{hit(95, 0)}, map[string]int64{"nvidia.com/mig-1g.5gb": 56}},
		"health checks are off":       {"all-1g.5gb", "mixed", []Fault{hit(95, 3), {Kind: PluginBlind}}, map[string]int64{"nvidia.com/mig-1g.5gb": 56}},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineOf("p4d.24xlarge")
			if err := m.steer(tc.layout, "", born); err != nil {
				t.Fatal(err)
			}
			settings := unhurried
			settings.Strategy = tc.strategy
			for i := range tc.faults {
				tc.faults[i].Name = fmt.Sprint(i)
			}
			v := m.advance(born.Add(time.Hour), settings, tc.faults, Catalogue())
			if diff := cmp.Diff(tc.want, v.allocatable); diff != "" {
				t.Errorf("allocatable (-want +got)\n%s", diff)
			}
		})
	}
}

func TestMIGManagerThatIsWrongAtFirst(t *testing.T) {
	m := machineOf("p4d.24xlarge")
	if err := m.steer("all-1g.5gb", "", born); err != nil {
		t.Fatal(err)
	}
	wrong := Fault{Kind: MIGWrong, Layout: "all-7g.40gb", Delay: Fixed(time.Minute)}
	before := lookAt(m, 70*time.Second, unhurried, wrong)
	if before.state != "success" || before.layout != "all-7g.40gb" || before.allocatable["nvidia.com/mig-7g.40gb"] != 8 {
		t.Errorf("at first: %+v", before)
	}
	after := lookAt(m, 3*time.Minute, unhurried, wrong)
	if after.state != "success" || after.layout != "all-1g.5gb" || after.allocatable["nvidia.com/mig-1g.5gb"] != 56 {
		t.Errorf("in the end: %+v", after)
	}
}

func TestAFaultThatEndsLeavesNothing(t *testing.T) {
	m := machineOf("g5.xlarge")
	if got := lookAt(m, time.Minute, unhurried, Fault{Kind: GPULost, GPUs: 1}); got.allocatable["nvidia.com/gpu"] != 0 {
		t.Fatal("the GPU is still there")
	}
	if got := lookAt(m, time.Minute, unhurried); got.allocatable["nvidia.com/gpu"] != 1 {
		t.Error("the GPU did not come back")
	}
}

func TestMIGManager(t *testing.T) {
	m := machineOf("p4d.24xlarge")
	at := func(at time.Duration, layout string, faults ...Fault) moment {
		t.Helper()
		if err := m.steer(layout, "", born.Add(at)); err != nil {
			t.Fatal(err)
		}
		return lookAt(m, at, unhurried, faults...)
	}
	const product = "NVIDIA-A100-SXM4-40GB"
	whole := moment{driver: true, product: product, capacity: gpus(8), allocatable: gpus(8)}
	small := map[string]int64{"nvidia.com/mig-1g.5gb": 56}
	balanced := map[string]int64{"nvidia.com/mig-1g.5gb": 16, "nvidia.com/mig-2g.10gb": 8, "nvidia.com/mig-3g.20gb": 8}
	for _, tc := range []struct {
		what string
		got  moment
		want moment
	}{
		{"before any layout", at(time.Minute, ""), whole},
		{"when a layout is asked for", at(70*time.Second, "all-1g.5gb"), moment{driver: true, state: "pending", next: 90 * time.Second}},
		{"while it is applied", at(89*time.Second, "all-1g.5gb"), moment{driver: true, state: "pending", next: 90 * time.Second}},
		{"once it is applied", at(90*time.Second, "all-1g.5gb"), moment{driver: true, state: "success", layout: "all-1g.5gb", next: 95 * time.Second}},
		{"once the plugin is back", at(100*time.Second, "all-1g.5gb"), moment{driver: true, state: "success", layout: "all-1g.5gb", product: product, capacity: small, allocatable: small}},
		{"when one GPU of eight is lost", at(101*time.Second, "all-1g.5gb", Fault{Kind: GPULost, GPUs: 1}), moment{
			driver: true, state: "success", layout: "all-1g.5gb", product: product, capacity: small, allocatable: map[string]int64{"nvidia.com/mig-1g.5gb": 49}}},
		{"when another is asked for", at(110*time.Second, "all-balanced"), moment{driver: true, state: "pending", layout: "all-1g.5gb", next: 130 * time.Second}},
		{"once that is applied", at(140*time.Second, "all-balanced"), moment{driver: true, state: "success", layout: "all-balanced", product: product, capacity: balanced, allocatable: balanced}},
		{"when one that does not exist is asked for", at(150*time.Second, "all-9g.9gb"), moment{driver: true, state: "pending", layout: "all-balanced", next: 170 * time.Second}},
		{"once that has failed", at(180*time.Second, "all-9g.9gb"), moment{driver: true, state: "failed", layout: "all-balanced", product: product, capacity: balanced, allocatable: balanced}},
		{"when mig-manager is stuck", at(time.Hour, "all-disabled", Fault{Kind: MIGStuck}), moment{driver: true, state: "pending", layout: "all-balanced"}},
		{"when it fails", at(2*time.Hour, "all-disabled", Fault{Kind: MIGFailed}), moment{driver: true, state: "failed", layout: "all-balanced", product: product, capacity: balanced, allocatable: balanced}},
		{"when MIG is turned off", at(3*time.Hour, "all-disabled"), moment{driver: true, state: "success", layout: "all-disabled", product: product, capacity: gpus(8), allocatable: gpus(8)}},
	} {
		if diff := cmp.Diff(tc.want, tc.got, cmp.AllowUnexported(moment{})); diff != "" {
			t.Errorf("%s: %s", tc.what, diff)
		}
	}
}

func TestLayoutOnAGPUWithoutMIGFails(t *testing.T) {
	m := machineOf("g5.xlarge")
	if err := m.steer("all-1g.5gb", "", born); err != nil {
		t.Fatal(err)
	}
	if got := lookAt(m, time.Hour, unhurried); got.state != "failed" || got.allocatable["nvidia.com/gpu"] != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestSharing(t *testing.T) {
	config := func(section string, renamed bool, replicas int) string {
		return fmt.Sprintf("version: v1\nsharing:\n  %s:\n    renameByDefault: %t\n    resources:\n    - {name: nvidia.com/gpu, replicas: %d}\n", section, renamed, replicas)
	}
	for name, tc := range map[string]struct {
		config  string
		want    map[string]int64
		product string
	}{
		"time-slicing":                 {config("timeSlicing", false, 4), gpus(4), "NVIDIA-A10G-SHARED"},
		"time-slicing, renamed":        {config("timeSlicing", true, 4), map[string]int64{"nvidia.com/gpu.shared": 4}, "NVIDIA-A10G"},
		"MPS":                          {config("mps", false, 48), gpus(48), "NVIDIA-A10G-SHARED"},
		"more MPS clients than it has": {config("mps", false, 49), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineOf("g5.xlarge")
			if err := m.steer("", tc.config, born); err != nil {
				t.Fatal(err)
			}
			got := lookAt(m, time.Hour, Settings{}) // MPS is refused under strategy mixed
			if diff := cmp.Diff(tc.want, got.allocatable); diff != "" || got.product != tc.product {
				t.Errorf("product %q, %s", got.product, diff)
			}
		})
	}
}

func TestABrokenPluginConfigLeavesTheFormerInEffect(t *testing.T) {
	m := machineOf("g5.xlarge")
	good := "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}"
	if err := m.steer("", good, born); err != nil {
		t.Fatal(err)
	}
	if err := m.steer("", "sharing: [", born.Add(time.Second)); err == nil {
		t.Error("no error for a config that does not parse")
	}
	if got := lookAt(m, time.Hour, unhurried); got.allocatable["nvidia.com/gpu"] != 3 {
		t.Errorf("got %v", got.allocatable)
	}
}

func TestFactsTellWhenTheyChange(t *testing.T) {
	m := machineOf("g5.xlarge")
	before, changed := m.Facts()
	m.setFacts(before)
	select {
	case <-changed:
		t.Fatal("told of a change although nothing changed")
	default:
	}
	m.setFacts(Facts{Driver: true})
	select {
	case <-changed:
	default:
		t.Fatal("not told of a change")
	}
	if now, _ := m.Facts(); !now.Driver {
		t.Error("the change is not to be seen")
	}
}

func TestFaultsMatch(t *testing.T) {
	m := newMachine("idc-7", "p4d.24xlarge", "local", 3, 0, born)
	for name, tc := range map[string]struct {
		match Match
		want  bool
	}{
		"all":                  {Match{}, true},
		"type":                 {Match{InstanceType: "p4d.24xlarge"}, true},
		"other type":           {Match{InstanceType: "g5.xlarge"}, false},
		"zone":                 {Match{Zone: "local"}, true},
		"other zone":           {Match{Zone: "us-east-1a"}, false},
		"third":                {Match{Nth: 3}, true},
		"second":               {Match{Nth: 2}, false},
		"among the first 3":    {Match{FirstN: 3}, true},
		"among the first 2":    {Match{FirstN: 2}, false},
		"name by pattern":      {Match{Node: "idc-*"}, true},
		"name":                 {Match{Node: "idc-8"}, false},
		"one field of two not": {Match{Node: "idc-*", Zone: "us-east-1a"}, false},
	} {
		if got := tc.match.selects(m); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestFaultsAreRefusedWithTheWayOut(t *testing.T) {
	for want, f := range map[string]Fault{
		`kind "broken" is no node fault; known: driver-late, driver-mismatch, driver-never, gpu-lost, labels-late, labels-never, mig-failed, mig-late, mig-stuck, mig-wrong, nvml-fewer, nvml-lost, plugin-blind, plugin-late, plugin-never, plugin-partial, xid`: {Kind: "broken"},
		"a fault of kind driver-late needs a delay, for example delay: 90s": {Kind: DriverLate},
		"a fault of kind gpu-lost needs gpus, the number of GPUs":           {Kind: GPULost},
		"a fault of kind nvml-lost needs gpus, the number of GPUs":          {Kind: NVMLLost},
		"a fault of kind mig-wrong needs layout and delay":                  {Kind: MIGWrong, Layout: "all-1g.5gb"},
		"a fault of kind xid needs code, the XID":                           {Kind: XIDError},
		"a fault of kind plugin-partial needs gpus, the number of GPUs":     {Kind: PluginPartial, GPUs: -1},
		`match.node "[" is no pattern, syntax error in pattern`:             {Kind: PluginNever, Match: Match{Node: "["}},
	} {
		if err := f.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
