package realnode_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode"
)

func contents(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	out := map[string]string{}
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[header.Name] = string(data)
	}
}

// written writes an image, and demands that nothing lies about besides.
func written(t *testing.T, image realnode.Image) []byte {
	t.Helper()
	dir := t.TempDir()
	path, err := image.WriteTo(dir)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("besides the archive there are %v, %v", entries, err)
	}
	return data
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func TestImage(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("code"), 0o600); err != nil {
		t.Fatal(err)
	}
	image := realnode.Image{Name: "docker.io/local/work:1", Files: map[string]string{"/bin/work": program, "/a": program}, Entrypoint: []string{"/bin/work", "now"}}
	archive := written(t, image)
	if !bytes.Equal(archive, written(t, image)) {
		t.Error("equal files make archives that differ")
	}
	outer := contents(t, bytes.NewReader(archive))
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	decode(t, outer["manifest.json"], &manifest)
	if len(manifest) != 1 || len(manifest[0].Layers) != 1 {
		t.Fatalf("the manifest is %s", outer["manifest.json"])
	}
	layer := outer[manifest[0].Layers[0]]
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode(t, outer[manifest[0].Config], &config)
	want := []string{fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(layer)))}
	if diff := cmp.Diff(want, config.RootFS.DiffIDs); diff != "" {
		t.Errorf("the layer's digest: %s", diff)
	}
	if !slices.Equal(config.Config.Entrypoint, image.Entrypoint) || !slices.Equal(manifest[0].RepoTags, []string{image.Name}) {
		t.Errorf("entrypoint %v, tags %v", config.Config.Entrypoint, manifest[0].RepoTags)
	}
	files := contents(t, strings.NewReader(layer))
	if files["bin/work"] != "code" || files["a"] != "code" {
		t.Errorf("the layer has %v", files)
	}
}

func TestImageOfMissingFile(t *testing.T) {
	_, err := realnode.Image{Name: "docker.io/local/work:1", Files: map[string]string{"/work": "/no/such/file"}}.WriteTo(t.TempDir())
	if err == nil || !strings.HasPrefix(err.Error(), "writing the layer of image docker.io/local/work:1, open /no/such/file") {
		t.Errorf("got %v", err)
	}
}

func TestLibrariesOfWhatIsNoProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("no ELF file, though long enough to have a header of one, which begins otherwise"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := realnode.Libraries(path); err == nil || !strings.HasPrefix(err.Error(), "reading what "+path+" needs, bad magic number") {
		t.Errorf("got %v", err)
	}
}
