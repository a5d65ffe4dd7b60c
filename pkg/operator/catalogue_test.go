package operator_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOneCatalogue holds the product to the catalogue that the user corrects: the built-in
// one is taken where it is loaded, and where nobody hands one over, which the process never
// leaves out. A new place of either kind is a decision.
func TestOneCatalogue(t *testing.T) {
	builtIn := regexp.MustCompile(`\bcatalog\.Default\(\)`)
	var got []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// The simulator is the world, not the product; the plugin is another process.
		if name := filepath.Base(path); d.IsDir() && (name == "sim" || name == "cli") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && builtIn.Match(text) {
			got = append(got, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"../cloudprovider/catalogprovider/options.go", // what the plugin assumes without a file
		"../cloudprovider/cloudprovider.go",           // without Options.Catalog
		"../operator/catalogue.go",                    // with the user's corrections
		"../provisioning/gpus.go",                     // without GPUs.Catalog
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places that take the built-in catalogue (-want +got):\n%s", diff)
	}
}
