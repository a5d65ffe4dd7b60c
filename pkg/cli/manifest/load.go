package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// StandardInput is the path that stands for standard input.
const StandardInput = "-"

// maxBytes bounds one file, so that a wrong path does not fill the memory.
const maxBytes = 64 << 20

// Load reads files and, without their subdirectories, directories. All faults of all
// files are reported at once.
func Load(paths []string, stdin io.Reader) (*Set, error) {
	r := &reader{set: &Set{}, seen: map[string]place{}}
	err := visitor(r.object).paths(paths, stdin)
	return r.set, err
}

// Document is one object of the input as it was written.
type Document struct {
	Object *unstructured.Unstructured
	// From is the file and document.
	From string
}

// Documents reads the same input as Load and leaves the objects as they are: any kind
// and version, not held to any rule but that kind and apiVersion are there.
func Documents(paths []string, stdin io.Reader) ([]Document, error) {
	var out []Document
	err := visitor(func(object map[string]any, at place) error {
		u := &unstructured.Unstructured{Object: object}
		out = append(out, Document{Object: u, From: at.String()})
		return typed(u, at)
	}).paths(paths, stdin)
	return out, err
}

// visitor takes the objects of the input one by one.
type visitor func(object map[string]any, at place) error

func (v visitor) paths(paths []string, stdin io.Reader) error {
	var errs []error
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, f := range files {
			errs = append(errs, v.file(f, stdin))
		}
	}
	return errors.Join(errs...)
}

func expand(path string) ([]string, error) {
	if path == StandardInput {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s, %w", path, errors.Unwrap(err))
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("reading directory %s, %w", path, err)
	}
	var files []string
	for _, e := range entries { // sorted by name
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("reading directory %s, no .yaml, .yml or .json file in it; subdirectories are not read, name them too", path)
	}
	return files, nil
}

func (v visitor) file(path string, stdin io.Reader) error {
	in, name := stdin, "standard input"
	if path != StandardInput {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("reading %s, %w", path, errors.Unwrap(err))
		}
		defer f.Close()
		in, name = f, path
	}
	data, err := io.ReadAll(io.LimitReader(in, maxBytes+1))
	if err != nil {
		return fmt.Errorf("reading %s, %w", name, err)
	}
	if len(data) > maxBytes {
		return fmt.Errorf("reading %s, larger than %d MiB; split it", name, maxBytes>>20)
	}
	var errs []error
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("%s, document %d: %w", name, n, err))...)
		}
		if !blank(text) {
			errs = append(errs, v.document(text, place{file: name, document: n}))
		}
	}
	return errors.Join(errs...)
}

// blank says whether a document has nothing but comments.
func blank(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && line != "---" && line != "..." {
			return false
		}
	}
	return true
}
