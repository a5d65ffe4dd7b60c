package health_test

import (
	"fmt"
	"time"

	. "github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const boot = "11111111-2222-3333-4444-555555555555"

func ptr[T any](v T) *T { return &v }

// gpu is a healthy H100 without MIG.
func gpu(i int) GPU {
	return GPU{
		Index: i,
		Identity: &Identity{UUID: fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", i), Product: "NVIDIA H100 80GB HBM3",
			MemoryMiB: 81559, ComputeCapability: "9.0", Minor: i},
		MIG: &MIG{}, ECC: &ECC{Enabled: true, Pending: true}, Rows: &Rows{}, InfoROMValid: ptr(true),
		NVLink: &NVLink{Active: 18, Total: 18}, Fabric: &Fabric{State: FabricCompleted},
		PCIe: &PCIe{Width: 16, MaxWidth: 16}, Throttle: ptr(uint64(1)), Recovery: ptr(0), Persistence: ptr(true),
	}
}

// sample is a healthy node of n GPUs.
func sample(n int) Sample {
	s := Sample{BootID: boot, Driver: DriverReady, DriverVersion: "550.54.15", LibraryVersion: "12.550.54.15", CUDAVersion: "12.4"}
	for i := range n {
		s.GPUs = append(s.GPUs, gpu(i))
	}
	return s
}

// partitionedSample has seven instances on each of n GPUs.
func partitionedSample(n int) Sample {
	s := sample(n)
	for i := range s.GPUs {
		s.GPUs[i].MIG = &MIG{Enabled: true, Pending: true}
		for k := range 7 {
			s.GPUs[i].MIG.Instances = append(s.GPUs[i].MIG.Instances, MIGInstance{
				Profile: "1g.10gb", Start: k, Size: 1, ID: 7 + k, UUID: fmt.Sprintf("MIG-%d-%d", i, k)})
		}
	}
	return s
}

func xid(code, gpu int, at time.Time) XIDEvent { return XIDEvent{Code: code, GPU: gpu, GI: -1, At: at} }
