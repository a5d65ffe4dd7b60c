package realnode

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/nvml"
)

func TestLibrariesAreComplete(t *testing.T) {
	program, err := exec.LookPath("tar")
	if err != nil {
		t.Skip(err)
	}
	if file, err := elf.Open(program); err != nil {
		t.Skip(err)
	} else if libs, err := file.ImportedLibraries(); err != nil || !slices.Contains(libs, "libc.so.6") {
		t.Skipf("%s is linked to %v, %v", program, libs, err)
	}
	found, err := Libraries(program)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for path, source := range found {
		if path != source {
			t.Errorf("%s comes from %s", path, source)
		}
		names = append(names, filepath.Base(path))
	}
	slices.Sort(names)
	if !slices.Contains(names, "libc.so.6") || !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "ld-") }) {
		t.Errorf("no libc or no loader among %v", names)
	}
}

func TestLabelsThatAKubeletMaySet(t *testing.T) {
	got := labelList(map[string]string{
		"karpenter.sh/nodepool": "gpu", "node.kubernetes.io/instance-type": "g5.xlarge", "topology.kubernetes.io/zone": "a",
		"kubernetes.io/hostname": "n", "k8s.io/cloud-provider-aws": "x", "node-role.kubernetes.io/worker": "", "topology.k8s.aws/zone-id": "z",
	})
	want := "karpenter.sh/nodepool=gpu,kubernetes.io/hostname=n,node.kubernetes.io/instance-type=g5.xlarge,topology.k8s.aws/zone-id=z,topology.kubernetes.io/zone=a"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBootIDs(t *testing.T) {
	seen := map[string]bool{}
	for seed := range int64(3) {
		for boot := range 3 {
			id := bootID(seed, boot)
			if len(id) != 36 || id[14] != '4' || !strings.ContainsRune("89ab", rune(id[19])) || seen[id] {
				t.Errorf("boot %d of seed %d is %s", boot, seed, id)
			}
			seen[id] = true
		}
	}
	if !seen[bootID(1, 1)] {
		t.Error("the same boot has two IDs")
	}
}

func TestKubeletConfig(t *testing.T) {
	taint := corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}
	text, err := kubeletConfig(Identity{ProviderID: "aws:///a/i-1", Taints: []corev1.Taint{taint}, MaxPods: 20})
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		ProviderID         string
		MaxPods            int
		RegisterWithTaints []corev1.Taint
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	if config.ProviderID != "aws:///a/i-1" || config.MaxPods != 20 || !cmp.Equal(config.RegisterWithTaints, []corev1.Taint{taint}) {
		t.Errorf("got %+v", config)
	}
}

func TestMinorsNamePartitionsToo(t *testing.T) {
	machine := nvml.H100(2)
	if err := machine.Partition(1, health.Partition("1g.10gb@0+1")); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"0": 0, "GPU-00000000-0000-4000-8000-000000000000": 0, "1": 1, "GPU-00000001-0000-4000-8000-000000000000": 1,
		"MIG-00000001-0000-4000-8000-000000000001": 1,
	}
	if diff := cmp.Diff(want, minors(machine)); diff != "" {
		t.Error(diff)
	}
}

func TestMissingErrorNamesTheWayOut(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := checkPrograms()
	var missing *MissingError
	if !errors.As(err, &missing) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		"a real node needs the program containerd: install it, on Debian with `apt-get install containerd`",
		"a real node needs the program runc: install it, on Debian with `apt-get install runc`",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
}
