package mig_test

import (
	"fmt"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/mig"
)

func ExampleGeometry_Plan() {
	g, _ := mig.ForProduct("NVIDIA-H100-80GB-HBM3")
	plan, err := g.Plan(mig.Demand{"1g.10gb": 5, "3g.40gb": 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range plan.Shares {
		fmt.Println(s.GPUs, s.Layout, s.Layout.Resources())
	}
	fmt.Println("spare", plan.Spare)
	// Output:
	// 2 1x3g.40gb_4x1g.10gb map[nvidia.com/mig-1g.10gb:4 nvidia.com/mig-3g.40gb:1]
	// spare 3×1g.10gb, 1×3g.40gb
}

func ExamplePartedConfig() {
	g, _ := mig.ForProduct("NVIDIA-H100-80GB-HBM3")
	whole, _ := g.Layout(mig.AllDisabled)
	balanced, _ := g.Layout(mig.AllBalanced)
	half, err := mig.NewNodeLayout("half", mig.Devices(whole, 0, 1, 2, 3), mig.Devices(balanced, 4, 5, 6, 7))
	if err != nil {
		fmt.Println(err)
		return
	}
	config, _ := mig.PartedConfig([]mig.NodeLayout{half})
	fmt.Print(string(config))
	// Output:
	// version: v1
	// mig-configs:
	//   "all-disabled":
	//     - devices: all
	//       mig-enabled: false
	//   "half":
	//     - devices: [0, 1, 2, 3]
	//       mig-enabled: false
	//     - devices: [4, 5, 6, 7]
	//       mig-enabled: true
	//       mig-devices:
	//         "1g.10gb": 2
	//         "2g.20gb": 1
	//         "3g.40gb": 1
}
