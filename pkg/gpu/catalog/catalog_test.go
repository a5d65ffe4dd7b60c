package catalog_test

import (
	"testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

func TestDefaultHoldsEveryType(t *testing.T) {
	c := catalog.Default()
	if got := len(c.GPUShapes()); got < 69 {
		t.Errorf("got %d gpu shapes, want at least the 69 of EC2", got)
	}
	if got := len(c.Shapes()) - len(c.GPUShapes()); got < 700 {
		t.Errorf("got %d cpu shapes, want at least 700", got)
	}
}
