package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

// A file as karpenter-gpu writes it.
const ownLayouts = `version: v1
mig-configs:
  "all-1g.24gb":
    - device-filter: ["0x29BC10DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.24gb": 2
  "all-disabled":
    - devices: all
      mig-enabled: false
  "half":
    - devices: [0, 1, 2, 3]
      mig-enabled: true
      mig-devices:
        "3g.40gb": 2
    - devices: [4, 5, 6, 7]
      mig-enabled: false
  "seven":
    - devices: [0, 1, 2, 3, 4, 5, 6]
      mig-enabled: true
      mig-devices:
        "3g.40gb": 2
`

func TestLayoutsComeFromTheFileFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		layout, instanceType string
		want                 map[string]int64
		wantErr              string
	}{
		"some GPUs in MIG mode and some not": {layout: "half", instanceType: "p5.48xlarge", want: map[string]int64{"nvidia.com/gpu": 4, "nvidia.com/mig-3g.40gb": 8}},
		"a name that mig-parted generates":   {layout: "all-1g.10gb", instanceType: "p5.4xlarge", want: map[string]int64{"nvidia.com/mig-1g.10gb": 7}},
		"a name that nobody knows":           {layout: "none", instanceType: "p5.4xlarge", wantErr: "looking for layout \"none\""},
		"devices that the machine lacks":     {layout: "half", instanceType: "p5.4xlarge", wantErr: "there is no GPU 1"},
		"a GPU that no entry covers":         {layout: "seven", instanceType: "p5.48xlarge", wantErr: "no part covers device 7"},
		"entries for other models only":      {layout: "all-1g.24gb", instanceType: "p5.4xlarge", wantErr: "the file has no entry for h100-80gb"},
		"partitions that the model lacks":    {layout: "half", instanceType: "p4d.24xlarge", wantErr: "3g.40gb on a100-40gb"},
	} {
		t.Run(name, func(t *testing.T) {
			_, got, err := Catalogue().Predict(tc.instanceType, Partition{Layout: tc.layout, File: ownLayouts, Strategy: string(mig.Mixed)})
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one that contains %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("resources differ (-want +got):\n%s", diff)
			}
		})
	}
}
