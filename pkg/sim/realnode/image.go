package realnode

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Image is a container image of one layer, made of files of this machine.
type Image struct {
	// Name is a full reference, such as docker.io/local/work:1.
	Name string
	// Files are the files of the host by their paths in the image. All become executable.
	Files map[string]string
	// Entrypoint is the program and its arguments.
	Entrypoint []string
}

// WriteTo writes the image as a docker archive into a directory and returns its path. Equal
// files give equal archives.
func (i Image) WriteTo(dir string) (path string, err error) {
	base := strings.NewReplacer("/", "_", ":", "_").Replace(i.Name)
	layer := filepath.Join(dir, base+".layer")
	digest, err := i.writeLayer(layer)
	if err != nil {
		return "", fmt.Errorf("writing the layer of image %s, %w", i.Name, err)
	}
	defer func() { err = errors.Join(err, os.Remove(layer)) }()
	path = filepath.Join(dir, base+".tar")
	if err := i.writeArchive(path, layer, digest); err != nil {
		return "", fmt.Errorf("writing image %s, %w", i.Name, err)
	}
	return path, nil
}

func (i Image) writeLayer(path string) (digest string, err error) {
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	archive := tar.NewWriter(io.MultiWriter(file, sum))
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		if err := addFile(archive, strings.TrimPrefix(name, "/"), i.Files[name]); err != nil {
			return "", err
		}
	}
	// A read-only root needs its mount points.
	for _, dir := range []string{"dev", "etc", "proc", "run", "sys", "tmp"} {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return "", err
		}
	}
	if err := archive.Close(); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func addFile(archive *tar.Writer, name, source string) error {
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: 0o755}); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}

func (i Image) writeArchive(path, layer, digest string) (err error) {
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Entrypoint, "Env": []string{"PATH=/usr/bin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{i.Name}, "Layers": []string{digest + "/layer.tar"}}})
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	archive := tar.NewWriter(file)
	if err := addFile(archive, digest+"/layer.tar", layer); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{"config.json", config}, {"manifest.json", manifest}} {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: 0o644}); err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}
