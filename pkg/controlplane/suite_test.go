package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
)

// parentEnv makes the test binary play a program that starts children, so that specs can
// end it in ways in which they cannot end themselves. Its value names the children.
const parentEnv = "CONTROLPLANE_TEST_PARENT"

func TestMain(m *testing.M) {
	if children := os.Getenv(parentEnv); children != "" {
		if err := playParent(children); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestControlPlane(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "ControlPlane")
}

// playParent starts children, says so on stdout with their process IDs, and stops them
// when it gets SIGINT.
func playParent(children string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	var pids []string
	var stop func(context.Context) error
	switch children {
	case "processes":
		var stops []func(context.Context) error
		for range 3 {
			p, err := controlplane.StartProcess(ctx, controlplane.ProcessSpec{Name: "sleeper", Path: "/bin/sleep", Args: []string{"600"}})
			if err != nil {
				return err
			}
			pids, stops = append(pids, fmt.Sprint(p.Pid())), append(stops, p.Stop)
		}
		stop = func(ctx context.Context) error {
			var errs []error
			for _, s := range stops {
				errs = append(errs, s(ctx))
			}
			return errors.Join(errs...)
		}
	default:
		cp, err := controlplane.Start(ctx, controlplane.Options{Dir: children})
		if err != nil {
			return err
		}
		pids, stop = pidsOf(cp), cp.Stop
	}
	fmt.Println(strings.Join(pids, " "))
	<-ctx.Done()
	return stop(context.Background())
}

func pidsOf(cp *controlplane.ControlPlane) (pids []string) {
	for _, c := range controlplane.AllComponents() {
		if p := cp.Process(c); p != nil {
			pids = append(pids, fmt.Sprint(p.Pid()))
		}
	}
	return pids
}

// alive tells whether a process of that ID exists. A zombie counts: whoever started it
// should have waited for it.
func alive(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func refused(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// files lists what lies below dir, relative to it.
func files(dir string) (found []string) {
	GinkgoHelper()
	Expect(filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if path != dir {
			rel, _ := filepath.Rel(dir, path)
			found = append(found, rel)
		}
		return err
	})).To(Succeed())
	return found
}
