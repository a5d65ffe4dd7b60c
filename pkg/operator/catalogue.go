package operator

import (
	"fmt"
	"os"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

// loadCatalog returns the GPU catalogue with the corrections of a file; an empty
// name means the built-in catalogue.
func loadCatalog(name string) (*catalog.Catalog, error) {
	if name == "" {
		return catalog.Default(), nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading --gpu-catalog-file, %w", err)
	}
	corrected, err := catalog.Corrected(data)
	if err != nil {
		return nil, fmt.Errorf("reading --gpu-catalog-file=%q, %w", name, err)
	}
	return corrected, nil
}
