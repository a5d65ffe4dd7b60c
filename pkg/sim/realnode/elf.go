package realnode

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// libraryDirs are where the dynamic loader looks by itself, here and in a container.
var libraryDirs = []string{"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// Libraries returns what programs and libraries of this machine need to run, by the path at
// which the loader looks for each: the loader itself and all libraries, theirs included. Static
// programs need none.
func Libraries(programs ...string) (map[string]string, error) {
	found := map[string]string{}
	queue := programs
	for len(queue) > 0 {
		needs, err := needed(queue[0])
		if err != nil {
			return nil, fmt.Errorf("reading what %s needs, %w", queue[0], err)
		}
		queue = queue[1:]
		for _, name := range needs {
			path, err := locate(name)
			if err != nil {
				return nil, err
			}
			if _, known := found[path]; !known {
				found[path] = path
				queue = append(queue, path)
			}
		}
	}
	return found, nil
}

// needed returns the loader of a file, by path, and its libraries, by name.
func needed(path string) ([]string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	needs, err := file.ImportedLibraries()
	if errors.Is(err, elf.ErrNoSymbols) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	for _, p := range file.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		data := make([]byte, p.Filesz)
		if _, err := p.ReadAt(data, 0); err != nil {
			return nil, err
		}
		needs = append(needs, strings.TrimRight(string(data), "\x00"))
	}
	return needs, nil
}

func locate(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for _, dir := range libraryDirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("finding the library %s, it is in none of %s", name, strings.Join(libraryDirs, ", "))
}
