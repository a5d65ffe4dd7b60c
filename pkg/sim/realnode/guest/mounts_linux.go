package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// software are the directories of the host that a machine has too, read-only.
var software = []string{"bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr"}

// kernelSettings are values that the kubelet demands of settings that are not a namespace's. It
// finds them as it wants them, in files of the machine; the host's stay as they are.
var kernelSettings = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
	"kernel/random/boot_id":     "", // the machine's
}

// tree makes mounts below a root and keeps the first error, so that what to mount reads as a list.
type tree struct {
	root string
	err  error
}

func (t *tree) path(name string) string { return filepath.Join(t.root, name) }

func (t *tree) dir(name string, mode os.FileMode) {
	if t.err == nil {
		t.err = os.MkdirAll(t.path(name), mode)
	}
}

func (t *tree) mount(source, name, kind string, flags uintptr, options string) {
	t.dir(name, 0o755)
	if t.err != nil {
		return
	}
	if err := unix.Mount(source, t.path(name), kind, flags, options); err != nil {
		t.err = fmt.Errorf("mounting %s on %s, %w", kind, name, err)
	}
}

// bind shows a file or directory of the host; read-only unless writable.
func (t *tree) bind(source, name string, writable bool) {
	if t.err != nil {
		return
	}
	info, err := os.Stat(source)
	if err == nil && !info.IsDir() {
		err = os.WriteFile(t.path(name), nil, 0o600) // #nosec G703 -- below the machine's root
	} else if err == nil {
		err = os.MkdirAll(t.path(name), 0o755) //nolint:gosec // a mount point that all may pass
	}
	if err == nil {
		err = unix.Mount(source, t.path(name), "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err == nil && !writable {
		err = unix.Mount("", t.path(name), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		t.err = fmt.Errorf("binding %s, %w", source, err)
	}
}

// buildRoot makes the machine's file system and enters it: software of the host read-only, a
// disk of its own under /var, and everything that a boot makes in memory.
func buildRoot(clk clock.Clock, spec Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("parting mounts from the host's, %w", err)
	}
	hierarchies, err := hostHierarchies()
	if err != nil {
		return err
	}
	t := &tree{root: spec.root()}
	t.mount("machine", "", "tmpfs", 0, "mode=0755")
	for _, name := range software {
		t.software(name)
	}
	t.bind(spec.Disk(), "var", true)
	t.mount("run", "run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755")
	t.mount("tmp", "tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	t.bind(spec.Shared(), SharedDir, true)
	t.dir(ProgramDir, 0o755)
	for name, path := range spec.Programs {
		t.bind(path, filepath.Join(ProgramDir, name), false)
	}
	for _, name := range []string{RuntimeName, NVIDIARuntimeName} {
		t.link(programName, filepath.Join(ProgramDir, name))
	}
	t.mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	t.mount("sysfs", "sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "")
	t.cgroups(clk, hierarchies)
	t.devices()
	t.link("/run", "var/run")
	t.settings(spec)
	if t.err != nil {
		return t.err
	}
	return enterRoot(spec)
}

// software binds a directory of the host, or makes the same link; one that is not there is no error.
func (t *tree) software(name string) {
	source := "/" + name
	info, err := os.Lstat(source)
	if errors.Is(err, fs.ErrNotExist) || t.err != nil {
		return
	}
	if err != nil {
		t.err = err
		return
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(source)
		if err != nil {
			t.err = err
			return
		}
		t.link(target, name)
		return
	}
	t.bind(source, name, false)
}

func (t *tree) link(target, name string) {
	if t.err != nil {
		return
	}
	if err := os.Symlink(target, t.path(name)); err != nil && !errors.Is(err, fs.ErrExist) {
		t.err = err
	}
}

// cgroups mounts each hierarchy as it looks from the machine's group.
func (t *tree) cgroups(clk clock.Clock, hierarchies []Hierarchy) {
	if hierarchies[0].Version == 2 {
		t.mount("cgroup2", "sys/fs/cgroup", "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		if t.err == nil {
			t.err = leaveRootGroup(clk, t.path("sys/fs/cgroup"))
		}
		return
	}
	t.mount("cgroup", "sys/fs/cgroup", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755")
	for _, h := range hierarchies {
		name := filepath.Base(h.Mount)
		t.mount("cgroup", filepath.Join("sys/fs/cgroup", name), "cgroup", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, h.Options)
		for _, controller := range strings.Split(h.Options, ",") {
			if controller != name && !strings.Contains(controller, "=") {
				t.link(name, filepath.Join("sys/fs/cgroup", controller))
			}
		}
	}
}

// leaveRootGroup moves the machine's processes below its root group: in version 2 only a group
// without processes passes controllers on. The supervisor is in it for a moment longer.
func leaveRootGroup(clk clock.Clock, root string) error {
	own := filepath.Join(root, "init")
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as the kernel's own groups
		return fmt.Errorf("making init's control group, %w", err)
	}
	if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte("0"), 0o600); err != nil {
		return fmt.Errorf("entering init's control group, %w", err)
	}
	if err := awaitEmpty(clk, root); err != nil {
		return err
	}
	enable(root)
	return nil
}

// device is a node in /dev.
type device struct {
	name         string
	major, minor uint32
}

// devices makes a /dev without any of the host's own: a machine has the GPUs that it is given.
func (t *tree) devices() {
	t.mount("dev", "dev", "tmpfs", unix.MS_NOSUID, "mode=0755")
	for _, d := range []device{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"kmsg", 1, 11}, {"tty", 5, 0}} {
		if t.err != nil {
			return
		}
		path := t.path(filepath.Join("dev", d.name))
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil { //nolint:gosec // small constants
			t.err = fmt.Errorf("making /dev/%s, %w", d.name, err)
			return
		}
		t.err = os.Chmod(path, 0o666) //nolint:gosec // as everywhere; the umask took some
	}
	t.mount("devpts", "dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
	t.mount("shm", "dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	t.mount("mqueue", "dev/mqueue", "mqueue", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		t.link(target, filepath.Join("dev", name))
	}
}

// settings makes the kernel's settings read-only, but for the network's, which are the
// machine's own, and puts files in place of those that the machine sees otherwise.
func (t *tree) settings(spec Spec) {
	if t.err != nil {
		return
	}
	t.bind(t.path("proc/sys"), "proc/sys", false)
	t.bind("/proc/sys/net", "proc/sys/net", true)
	t.dir("run/kernel", 0o755)
	for _, name := range slices.Sorted(maps.Keys(kernelSettings)) {
		value := kernelSettings[name]
		if name == "kernel/random/boot_id" {
			value = spec.BootID
		}
		if _, err := os.Stat(t.path(filepath.Join("proc/sys", name))); err != nil || value == "" || t.err != nil {
			continue
		}
		source := t.path(filepath.Join("run/kernel", strings.ReplaceAll(name, "/", "_")))
		if t.err = os.WriteFile(source, []byte(value+"\n"), 0o644); t.err == nil { //nolint:gosec // as the kernel's: all may read it
			t.err = unix.Mount(source, t.path(filepath.Join("proc/sys", name)), "", unix.MS_BIND, "")
		}
	}
	if t.err == nil {
		t.err = os.WriteFile(t.path(bootIDFile), []byte(spec.BootID+"\n"), 0o644) //nolint:gosec // all may read it
	}
}

// enterRoot makes the tree the root and drops the host's.
func enterRoot(spec Spec) error {
	if err := unix.Chdir(spec.root()); err != nil {
		return fmt.Errorf("entering the machine's root, %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("making the machine's root the root, %w", err)
	}
	// The host's root now lies over the machine's, where the path leads to it.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("dropping the host's root, %w", err)
	}
	// Volumes with mount propagation need a root that propagates.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing the machine's mounts, %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("entering the machine's root, %w", err)
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("setting the host name, %w", err)
	}
	return nil
}
