package controlplane

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// AssetsEnv names the directory of the user's own binaries, as for controller-runtime's envtest.
const AssetsEnv = "KUBEBUILDER_ASSETS"

const module = "github.com/karpenter-gpu/karpenter-gpu"

// MissingBinaryError says that a component's binary is in none of the places searched.
type MissingBinaryError struct {
	Component Component
	// Dirs are the directories searched, in order.
	Dirs []string
}

// Error names the binary, the places searched and the way out.
func (e *MissingBinaryError) Error() string {
	where := strings.Join(e.Dirs, ", ")
	if where == "" {
		where = "no directory known"
	}
	return fmt.Sprintf("finding %s, no executable of that name (searched: %s): run `make controlplane`, or set %s to a directory that has it",
		e.Component, where, AssetsEnv)
}

// FindBinary returns the absolute path of a component's binary. A directory given by
// assets is the only place searched; with assets empty the places of Options.Assets are,
// so that a user's etcd and kube-apiserver go together with the repository's KWOK.
// The error is a *MissingBinaryError.
func FindBinary(assets string, c Component) (string, error) {
	dirs := assetDirs(assets)
	for _, dir := range dirs {
		path := filepath.Join(dir, string(c))
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", &MissingBinaryError{Component: c, Dirs: dirs}
}

func assetDirs(assets string) []string {
	if assets != "" {
		return []string{absolute(assets)}
	}
	var dirs []string
	if env := os.Getenv(AssetsEnv); env != "" {
		dirs = append(dirs, absolute(env))
	}
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(exe), "controlplane"))
	}
	if wd, err := os.Getwd(); err == nil {
		if root, ok := repositoryRoot(wd); ok {
			dirs = append(dirs, filepath.Join(root, "bin", "controlplane"))
		}
	}
	return dirs
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// repositoryRoot walks up from dir to the go.mod of this module.
func repositoryRoot(dir string) (string, bool) {
	for {
		if declaresModule(filepath.Join(dir, "go.mod")) {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

func declaresModule(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "module "); ok {
			return strings.TrimSpace(name) == module
		}
	}
	return false
}
