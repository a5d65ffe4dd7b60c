package openb_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet/openb"
)

func TestRead(t *testing.T) {
	const list = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time\n" +
		"late,4000,100,1,1000,T4|A10|T4,9\nearly,2000,50,1,460,,3\nalso-early,0,0,0,0,,3\n"
	got, err := openb.Read(strings.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	want := []openb.Pod{
		{Name: "early", CPUMilli: 2000, MemoryMiB: 50, GPUs: 1, GPUMilli: 460, Created: 3},
		{Name: "also-early", Created: 3},
		{Name: "late", CPUMilli: 4000, MemoryMiB: 100, GPUs: 1, GPUMilli: 1000, Models: []string{"A10", "T4"}, Created: 9},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[2:], openb.Whole(got)); diff != "" {
		t.Errorf("whole-GPU pods (-want +got):\n%s", diff)
	}
}

func TestReadFaults(t *testing.T) {
	const head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
	tests := map[string]struct{ list, want string }{
		"an empty file":        {"", "reading the header of the pod list"},
		"another header":       {"name,cpu\n", `no column "cpu_milli"; give a list of the openb trace`},
		"a request in letters": {head + "a,many,1,1,1000\n", `reading pod 1 of the list, cpu_milli is "many"; use a whole number, 0 or more`},
		"a negative request":   {head + "a,1,1,1,1000\nb,1,-1,1,1000\n", `reading pod 2 of the list, memory_mib is "-1"; use a whole number, 0 or more`},
		"a short row":          {head + "a,1\n", "wrong number of fields"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := openb.Read(strings.NewReader(tt.list)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// The counts are those of the trace's publication, SOURCE.md beside the lists.
func TestListsAreWhole(t *testing.T) {
	tests := map[string]struct{ pods, whole int }{
		"default": {8152, 3986}, "multigpu50": {9061, 4895}, "gpuspec33": {8152, 3986},
	}
	for list, tt := range tests {
		t.Run(list, func(t *testing.T) {
			pods := read(t, list)
			if len(pods) != tt.pods || len(openb.Whole(pods)) != tt.whole {
				t.Errorf("%d pods, %d of whole GPUs, want %d and %d", len(pods), len(openb.Whole(pods)), tt.pods, tt.whole)
			}
		})
	}
}

func read(t *testing.T, list string) []openb.Pod {
	t.Helper()
	f, err := os.Open("../../../../test/data/openb/openb_pod_list_" + list + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pods, err := openb.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

// Every model that a pod of the trace names has stand-ins.
func TestStandInsCoverTheTrace(t *testing.T) {
	standIns, err := openb.StandIns()
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range read(t, "gpuspec33") {
		for _, m := range pod.Models {
			if len(standIns[m]) == 0 {
				t.Fatalf("pod %s accepts %s, which has no stand-in", pod.Name, m)
			}
		}
	}
}

// Every stand-in is on sale at EC2 with an amd64 host and has nine tenths of the
// memory of the original and more.
func TestStandInsAreSold(t *testing.T) {
	standIns, err := openb.StandIns()
	if err != nil {
		t.Fatal(err)
	}
	memoryMiB := map[string]int{}
	for _, s := range catalog.Default().GPUShapes() {
		if s.Provider == "aws" && s.Arch == "amd64" && !s.Fractional() {
			memoryMiB[s.Model.Key] = s.GPUMemoryMiB
		}
	}
	memoryGiB := map[string]int{"T4": 16, "A10": 24, "P100": 16, "V100M16": 16, "V100M32": 32, "G2": 24, "G3": 40}
	for from, to := range standIns {
		for _, key := range to {
			have, ok := memoryMiB[key]
			if !ok {
				t.Errorf("stand-in %s of %s is not sold", key, from)
			}
			if have > 0 && have*10 < memoryGiB[from]*1024*9 { // 0 is unknown
				t.Errorf("stand-in %s of %s has %d MiB, want nine tenths of %d GiB", key, from, have, memoryGiB[from])
			}
		}
	}
}

func TestShapes(t *testing.T) {
	shapes, models := openb.Shapes(catalog.Default().GPUShapes(), []string{"g4dn", "g6f"})
	want := fleet.Shape{Name: "g4dn.xlarge", Allocatable: []int64{3760, 15237, 1}, Price: 0.526, GPUs: 1}
	found := false
	for i, s := range shapes {
		if models[i] != "t4" {
			t.Errorf("%s has model %s, want T4 alone and no fraction of a GPU", s.Name, models[i])
		}
		if s.Name == want.Name {
			found = true
			if diff := cmp.Diff(want, s); diff != "" {
				t.Errorf("%s (-want +got):\n%s", s.Name, diff)
			}
		}
	}
	if !found {
		t.Errorf("%s is missing", want.Name)
	}
}

func TestProblem(t *testing.T) {
	shapes := []fleet.Shape{
		{Name: "l4", Allocatable: []int64{4000, 100, 1}, Price: 1, GPUs: 1},
		{Name: "t4", Allocatable: []int64{2000, 100, 1}, Price: 1, GPUs: 1}}
	pod := func(models ...string) openb.Pod {
		return openb.Pod{CPUMilli: 3000, MemoryMiB: 10, GPUs: 1, GPUMilli: 1000, Models: models}
	}
	standIns := map[string][]string{"T4": {"t4"}, "P4": {"t4", "l4"}, "G3": {"a100"}}
	got := openb.Problem([]openb.Pod{pod(), pod("T4"), pod(), pod("G3"), pod("P4", "T4")}, shapes, []string{"l4", "t4"}, standIns)
	request := []int64{3000, 10, 1}
	want := []fleet.Class{
		{Name: "3000m 10Mi 1gpu ", Requests: request, Count: 2},
		{Name: "3000m 10Mi 1gpu T4", Requests: request, Count: 1, Shapes: []int{1}},
		{Name: "3000m 10Mi 1gpu G3", Requests: request, Count: 1, Shapes: []int{}},
		{Name: "3000m 10Mi 1gpu P4|T4", Requests: request, Count: 1, Shapes: []int{0, 1}},
	}
	if diff := cmp.Diff(want, got.Classes); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	var runs []bool
	for _, c := range got.Classes {
		runs = append(runs, pod().Runs(shapes, c.Shapes))
	}
	if diff := cmp.Diff([]bool{true, false, false, true}, runs); diff != "" {
		t.Errorf("which classes run somewhere (-want +got):\n%s", diff)
	}
}
