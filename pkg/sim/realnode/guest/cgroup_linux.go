package guest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// CgroupPrefix begins the names of machines' control groups; what follows is the process ID of
// their supervisor.
const CgroupPrefix = "karpenter-gpu-node-"

const (
	cgroupRoot  = "/sys/fs/cgroup"
	sweepPause  = 50 * time.Millisecond
	sweepRounds = 400
)

// Hierarchy is one tree of control groups of the host: one for each controller in version 1,
// one for all in version 2.
type Hierarchy struct {
	// Mount is where the host has it, Options what mounts it again; version 2 has none.
	Mount, Options string
	Version        int
}

// Hierarchies reads those that the host has. Where there are any of version 1, that of
// version 2 beside them carries no controllers and is left out.
func Hierarchies(mountinfo string) []Hierarchy {
	var out []Hierarchy
	for lines := bufio.NewScanner(strings.NewReader(mountinfo)); lines.Scan(); {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		fields, after := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 5 || len(after) < 3 {
			continue
		}
		switch after[0] {
		case "cgroup":
			options := slices.DeleteFunc(strings.Split(after[2], ","), func(o string) bool { return o == "rw" || o == "ro" || strings.HasPrefix(o, "release_agent=") })
			out = append(out, Hierarchy{Mount: fields[4], Options: strings.Join(options, ","), Version: 1})
		case "cgroup2":
			out = append(out, Hierarchy{Mount: fields[4], Version: 2})
		}
	}
	if slices.ContainsFunc(out, func(h Hierarchy) bool { return h.Version == 1 }) {
		out = slices.DeleteFunc(out, func(h Hierarchy) bool { return h.Version == 2 })
	}
	return out
}

func hostHierarchies() ([]Hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mounts, %w", err)
	}
	found := Hierarchies(string(data))
	if len(found) == 0 {
		return nil, errors.New("no control groups are mounted below " + cgroupRoot + ": mount them (Debian's cgroupfs-mount does), or run on a host with systemd")
	}
	return found, nil
}

// makeCgroup makes the machine's group in each hierarchy.
func makeCgroup(hierarchies []Hierarchy, name string) error {
	for _, h := range hierarchies {
		if h.Version == 2 {
			enable(h.Mount, "cpu", "memory", "pids") // which systemd has enabled already
		}
		dir := filepath.Join(h.Mount, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as the kernel's own groups
			return fmt.Errorf("creating the machine's control group, %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			// A new group of version 1 has no processors, and no process may enter it.
			if data, err := os.ReadFile(filepath.Join(h.Mount, file)); err == nil && h.Version == 1 {
				if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil { //nolint:gosec // below the mounts of cgroups
					return fmt.Errorf("giving the machine its processors, %w", err)
				}
			}
		}
	}
	return nil
}

// enable passes controllers of a group of version 2 on to those below it, all that it has where
// none are named. One that cannot be is not demanded here: the kubelet tells what it misses.
func enable(dir string, controllers ...string) {
	if len(controllers) == 0 {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return
		}
		controllers = strings.Fields(string(data))
	}
	for _, controller := range controllers {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o600) //nolint:gosec // below the mounts of cgroups
	}
}

// awaitEmpty waits until no process is in a group itself: those of others show as 0.
func awaitEmpty(clk clock.Clock, dir string) error {
	for range sweepRounds {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return fmt.Errorf("looking for processes in a control group, %w", err)
		}
		if len(data) == 0 {
			return nil
		}
		clk.Sleep(sweepPause)
	}
	return fmt.Errorf("waiting until the control group %s has no process of its own, it still has", dir)
}

// enterCgroup moves a process and all its threads.
func enterCgroup(hierarchies []Hierarchy, name string, pid int) error {
	for _, h := range hierarchies {
		if err := os.WriteFile(filepath.Join(h.Mount, name, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			return fmt.Errorf("entering a control group, %w", err)
		}
	}
	return nil
}

// groupsOf returns the group of this process in each hierarchy.
func groupsOf(hierarchies []Hierarchy) ([]string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("reading this process's control groups, %w", err)
	}
	out := make([]string, len(hierarchies))
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		parts := strings.SplitN(line, ":", 3)
		for i, h := range hierarchies {
			if len(parts) == 3 && h.holds(parts[1]) {
				out[i] = parts[2]
			}
		}
	}
	return out, nil
}

// holds tells whether the controllers of a line of /proc/self/cgroup are the hierarchy's.
func (h Hierarchy) holds(controllers string) bool {
	if h.Version == 2 {
		return controllers == ""
	}
	options := strings.Split(h.Options, ",")
	return controllers != "" && !slices.ContainsFunc(strings.Split(controllers, ","), func(c string) bool { return !slices.Contains(options, c) })
}

// removeCgroup ends what is left in the group and removes it from each hierarchy.
func removeCgroup(clk clock.Clock, hierarchies []Hierarchy, name string) error {
	var last error
	for range sweepRounds {
		last = nil
		for _, h := range hierarchies {
			last = errors.Join(last, removeTree(filepath.Join(h.Mount, name)))
		}
		if last == nil {
			return nil
		}
		clk.Sleep(sweepPause)
	}
	return fmt.Errorf("removing the machine's control group, %w", last)
}

// removeTree removes a group and those below it, innermost first, after ending their processes.
func removeTree(dir string) error {
	var groups []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			groups = append(groups, path)
		}
		return ignoreGone(err)
	})
	var errs []error
	for _, group := range slices.Backward(groups) {
		for _, pid := range processes(group) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already, or gone soon
		}
		errs = append(errs, ignoreGone(syscall.Rmdir(group)))
	}
	return errors.Join(append(errs, err)...)
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}

func processes(group string) (pids []int) {
	data, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return nil
	}
	for _, field := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Processes returns the host's process IDs of all that runs in a machine, in ascending order.
func Processes(cgroup string) ([]int, error) {
	hierarchies, err := hostHierarchies()
	if err != nil {
		return nil, err
	}
	var pids []int
	err = filepath.WalkDir(filepath.Join(hierarchies[0].Mount, cgroup), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			pids = append(pids, processes(path)...)
		}
		return ignoreGone(err)
	})
	slices.Sort(pids)
	return pids, err
}

// Cgroups returns the machines' control groups that the host has, sorted.
func Cgroups() ([]string, error) {
	hierarchies, err := hostHierarchies()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, h := range hierarchies {
		entries, err := os.ReadDir(h.Mount)
		if err != nil {
			return nil, fmt.Errorf("listing control groups, %w", err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), CgroupPrefix) {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// SweepStale removes the groups of machines whose supervisor and janitor were both killed.
func SweepStale(clk clock.Clock) error {
	names, err := Cgroups()
	if err != nil {
		return err
	}
	hierarchies, err := hostHierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		pid, err := strconv.Atoi(strings.TrimPrefix(name, CgroupPrefix))
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			errs = append(errs, removeCgroup(clk, hierarchies, name))
		}
	}
	return errors.Join(errs...)
}
