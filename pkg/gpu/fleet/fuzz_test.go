package fleet_test

import (
	"fmt"
	"testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
)

// FuzzSolve reads a problem from bytes, eight for each class and shape in turn,
// and demands a valid plan, no dearer than greedy's, above the bound. The seeds
// are a plain case, a case of zeros and a case of the largest numbers.
func FuzzSolve(f *testing.F) {
	f.Add([]byte("\x02\x01\x00\x00\x01\x00\x00\x02\x40\x08\x10\x08\x00\x00\x00\x00\x02\x02\x01\x00\x00\x00\x00\x03\x04\x01\x01\x01\x00\x00\x00\x00"))
	f.Add(make([]byte, 32))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := decode(data)
		plan := solve(t, p, fleet.Options{Iterations: 50})
		if b := lowerBound(t, p); len(plan.Unplaced) == 0 && b.Price > plan.Price+slack*(1+plan.Price) {
			t.Fatalf("bound %v is above the price %v for %+v", b.Price, plan.Price, p)
		}
	})
}

// scale spreads a byte over the whole range of int64.
func scale(b byte) int64 { return int64(b&15) << (b >> 4 * 3) }

func decode(data []byte) fleet.Problem {
	p := fleet.Problem{Resources: []string{"a", "b"}, GPUResources: []string{"b"}}
	for i := 0; i+8 <= len(data) && i < 8*12; i += 8 {
		b := data[i : i+8]
		if i%16 == 0 {
			p.Classes = append(p.Classes, fleet.Class{Name: fmt.Sprint(i), Requests: []int64{scale(b[0]), scale(b[1])},
				Count: int(b[2]) % 40, MaxPerNode: int(b[3]) % 4})
			continue
		}
		p.Shapes = append(p.Shapes, fleet.Shape{Name: fmt.Sprint(i), Allocatable: []int64{scale(b[0]), scale(b[1])},
			Price: float64(b[2]) / 8, GPUs: int(b[3]) % 9, MaxNodes: int(b[4]) % 5})
		if b[5] > 200 {
			p.Limits.MaxUnusedGPUs = ptr(int(b[5]) - 201)
		}
		if b[6] > 200 {
			p.Limits.GPUs = ptr(int(b[6]) - 201)
		}
		if b[7] > 200 {
			p.Limits.PricePerHour = ptr(float64(b[7]) - 201)
		}
	}
	return p
}
