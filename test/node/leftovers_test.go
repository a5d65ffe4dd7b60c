//go:build linux

package node_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/guest"
)

// parentEnv turns this test binary into the parent of a machine, for the tests that end it. Its
// value is the machine's directory.
const parentEnv = "KPGPU_NODE_PARENT"

// nowhere is a control plane that does not answer: the kubelet keeps trying, as on a cut cable.
type nowhere struct{}

func (nowhere) URL() string { return "https://127.0.0.1:1" }

func (nowhere) AddUser(string, ...string) (*rest.Config, error) {
	return &rest.Config{BearerToken: "none"}, nil
}

// parent powers a machine on, says so, and ends it on SIGINT.
func parent() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir := filepath.Dir(os.Getenv("KPGPU_NODE_GUEST"))
	m, err := realnode.New(realnode.Options{
		Dir: os.Getenv(parentEnv), Guest: os.Getenv("KPGPU_NODE_GUEST"), Kubelet: filepath.Join(dir, "controlplane", "kubelet"), API: nowhere{},
	})
	if err != nil {
		return err
	}
	if err := m.PowerOn(ctx, realnode.Identity{Name: "real", Address: "10.0.0.7"}); err != nil {
		return errors.Join(err, m.Stop(context.Background()))
	}
	// A container has mounts, a control group and a shim of its own.
	if _, err := m.Run(ctx, "/usr/bin/ctr", "--namespace=k8s.io", "run", "--detach", realnode.PauseImage, "container"); err != nil {
		return errors.Join(err, m.Stop(context.Background()))
	}
	fmt.Println("on", m.Supervisor())
	<-ctx.Done()
	return m.Stop(context.Background())
}

// look lists what a machine could leave on the host, each kind sorted.
func look() (list []string, err error) {
	groups, err := guest.Cgroups()
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		list = append(list, "control group "+g)
	}
	for kind, dir := range map[string]string{"interface": "/sys/class/net", "network namespace": "/run/netns"} {
		names, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is good
		for _, name := range names {
			list = append(list, kind+" "+filepath.Base(name))
		}
	}
	mounts, err := column("/proc/self/mountinfo", 4)
	if err != nil {
		return nil, err
	}
	for _, path := range mounts {
		list = append(list, "mount "+path)
	}
	sockets, err := column("/proc/net/unix", 7)
	if err != nil {
		return nil, err
	}
	for _, path := range sockets {
		if strings.Contains(path, "kgnode-") || strings.Contains(path, "containerd") {
			list = append(list, "socket "+path)
		}
	}
	list = append(list, programs()...)
	slices.Sort(list)
	return slices.Compact(list), nil
}

// column reads one field of the lines of a file that have it.
func column(file string, n int) (fields []string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(data), "\n") {
		if all := strings.Fields(line); len(all) > n {
			fields = append(fields, all[n])
		}
	}
	return fields, nil
}

// programs lists the processes of machines.
func programs() (list []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		command := strings.ReplaceAll(strings.TrimRight(string(data), "\x00"), "\x00", " ")
		for _, name := range []string{"guest supervise", "guest init", "guest sweep", "/machine/bin/", "/usr/bin/containerd", "/guest ", "/agent"} {
			if strings.HasPrefix(command, name) || strings.Contains(command, "/"+name) && strings.HasPrefix(name, "guest") {
				list = append(list, "process "+filepath.Base(filepath.Dir(file))+" "+command)
			}
		}
	}
	return list
}

// before is what the host has before any test.
var before, errBefore = look()

// leftovers are what the host has beyond what it had before, after a moment's patience: the
// janitor of a machine whose parent was killed needs one.
func leftovers(t *testing.T) []string {
	t.Helper()
	if errBefore != nil {
		t.Fatal(errBefore)
	}
	var left []string
	for range 100 {
		now, err := look()
		if err != nil {
			t.Fatal(err)
		}
		left = slices.DeleteFunc(now, func(s string) bool { return slices.Contains(before, s) })
		if len(left) == 0 {
			return nil
		}
		time.Sleep(interval)
	}
	return left
}

// startParent starts this binary as the parent of a machine and returns when that is on.
func startParent(t *testing.T) (parent *exec.Cmd, supervisor int) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kgnode-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err) // such as a mount that is still there
		}
	})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"="+dir, "KPGPU_NODE_GUEST="+bin(t, "guest"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscanf(line, "on %d", &supervisor)
	}
	if err != nil {
		t.Fatalf("the parent says %q, %v, %v", line, err, cmd.Wait())
	}
	return cmd, supervisor
}

// ends are the ways in which a machine's parent may go.
var ends = map[string]func(t *testing.T, parent *exec.Cmd, supervisor int){
	"after an interrupt": func(t *testing.T, parent *exec.Cmd, _ int) {
		send(t, parent.Process.Pid, syscall.SIGINT)
		if err := parent.Wait(); err != nil {
			t.Errorf("the parent ended with %v", err)
		}
	},
	"when the parent is killed": func(t *testing.T, parent *exec.Cmd, _ int) {
		send(t, parent.Process.Pid, syscall.SIGKILL)
		_ = parent.Wait() // it was killed
	},
	"when the supervisor is killed": func(t *testing.T, parent *exec.Cmd, supervisor int) {
		send(t, supervisor, syscall.SIGKILL)
		send(t, parent.Process.Pid, syscall.SIGINT)
		_ = parent.Wait() // it may complain
	},
}

func send(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsLeft(t *testing.T) {
	need(t)
	if left := leftovers(t); len(left) > 0 {
		t.Fatalf("before the test: %v", left)
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			parent, supervisor := startParent(t)
			if now, err := look(); err != nil || len(now) < len(before)+3 {
				t.Errorf("a machine that is on shows as %v, %v", now, err)
			}
			end(t, parent, supervisor)
			if left := leftovers(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestDirectoryInUse(t *testing.T) {
	need(t)
	dir, err := os.MkdirTemp("", "kgnode-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	options := realnode.Options{Dir: dir, Guest: bin(t, "guest"), Kubelet: bin(t, "controlplane/kubelet"), API: nowhere{}}
	first, err := realnode.New(options)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.PowerOn(t.Context(), realnode.Identity{Name: "real", Address: "10.0.0.7"}); err != nil {
		t.Fatal(err)
	}
	_, err = realnode.New(options)
	if want := "the machine's directory " + dir + " is that of a machine that is on: power that one off, or choose another directory"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSweepStale(t *testing.T) {
	need(t)
	// A group whose name holds the ID of a process that has ended, as after the death of both
	// supervisor and janitor.
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	hierarchy := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(hierarchy, "pids")); err == nil {
		hierarchy = filepath.Join(hierarchy, "pids")
	}
	dir := filepath.Join(hierarchy, guest.Cgroup(gone.Process.Pid), "kubepods")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m, err := realnode.New(realnode.Options{Guest: bin(t, "guest"), Kubelet: bin(t, "controlplane/kubelet"), API: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
