package scenario

import (
	"path/filepath"
	"strings"
	"testing"
)

const scenarios = "../../../test/scenarios"

func TestScenariosOfTheRepositoryLoad(t *testing.T) {
	files, err := filepath.Glob(scenarios + "/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d scenarios, %v", len(files), err)
	}
	for _, f := range files {
		s, err := Load(f)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Name+".yaml" != filepath.Base(f) {
			t.Errorf("%s: the scenario is named %s", f, s.Name)
		}
	}
}

// The figures of stock Karpenter stand beside ours, so that these manifests must mean the same to it.
func TestBurstManifestsAreStock(t *testing.T) {
	s, err := Load(scenarios + "/burst.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifests := s.Manifests
	for _, st := range s.Steps {
		if st.Apply != nil {
			manifests = append(manifests, *st.Apply)
		}
	}
	if len(manifests) < 4 {
		t.Fatalf("found %d manifests", len(manifests))
	}
	for _, m := range manifests {
		text, err := m.Text()
		if err != nil {
			t.Fatal(err)
		}
		// The simulated kubelets' annotation is the one exception: it means nothing to Karpenter.
		text = strings.ReplaceAll(text, "sandbox.karpenter-gpu.dev/run-for", "")
		if strings.Contains(text, "karpenter-gpu.dev") || strings.Contains(text, "GPUPool") {
			t.Errorf("%s has a field or label of ours", m.Path)
		}
	}
}
