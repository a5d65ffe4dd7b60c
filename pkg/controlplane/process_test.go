package controlplane_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
)

func shell(script string) controlplane.ProcessSpec {
	return controlplane.ProcessSpec{Name: "script", Path: "/bin/sh", Args: []string{"-c", script}, LogFile: filepath.Join(GinkgoT().TempDir(), "logs", "script.log")}
}

// whenLogged is a readiness probe that waits for a line of the script's log.
func whenLogged(spec controlplane.ProcessSpec, line string) controlplane.ProcessSpec {
	spec.Ready = func(context.Context) error {
		data, err := os.ReadFile(spec.LogFile)
		if err == nil && !strings.Contains(string(data), line+"\n") {
			return fmt.Errorf("no %q yet", line)
		}
		return err
	}
	return spec
}

var _ = Describe("Process", func() {
	It("should run with its arguments, environment, directory and log", func(ctx SpecContext) {
		spec := shell(`echo "$0 $GREETING $(pwd)"; exec sleep 600`)
		spec.Args = append(spec.Args, "zero")
		spec.Env = []string{"GREETING=hello", "PATH=/usr/bin:/bin"}
		spec.Dir = GinkgoT().TempDir()
		p, err := controlplane.StartProcess(ctx, whenLogged(spec, "zero hello "+spec.Dir))
		Expect(err).ToNot(HaveOccurred())
		Expect(p.LogTail(5)).To(Equal([]string{"zero hello " + spec.Dir}))
		Expect(p.LogFile()).To(Equal(spec.LogFile))
		Expect(p.Stop(ctx)).To(Succeed())
	})
	It("should stop with SIGTERM, and take a second stop and a kill", func(ctx SpecContext) {
		spec := shell(`trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done`)
		p, err := controlplane.StartProcess(ctx, whenLogged(spec, "up"))
		Expect(err).ToNot(HaveOccurred())
		Expect(p.Stop(ctx)).To(Succeed())
		Expect(p.LogTail(1)).To(Equal([]string{"bye"}))
		Expect(p.Wait(ctx)).To(Succeed())
		Expect(alive(p.Pid())).To(BeFalse())
		Expect(p.Stop(ctx)).To(Succeed())
		Expect(p.Kill()).To(Succeed())
		Expect(p.Signal(syscall.SIGTERM)).To(Succeed())
	})
	It("should kill what ignores SIGTERM, and say so", func(ctx SpecContext) {
		spec := shell(`trap '' TERM; echo up; while :; do sleep 0.02; done`)
		spec.StopTimeout = 200 * time.Millisecond
		p, err := controlplane.StartProcess(ctx, whenLogged(spec, "up"))
		Expect(err).ToNot(HaveOccurred())
		Expect(p.Stop(ctx)).To(MatchError("stopping script, killed: still running 200ms after SIGTERM"))
		Expect(alive(p.Pid())).To(BeFalse())
	})
	It("should kill when the context of a stop ends", func(ctx SpecContext) {
		spec := shell(`trap '' TERM; echo up; while :; do sleep 0.02; done`)
		p, err := controlplane.StartProcess(ctx, whenLogged(spec, "up"))
		Expect(err).ToNot(HaveOccurred())
		ended, cancel := context.WithCancel(ctx)
		cancel()
		Expect(p.Stop(ended)).To(MatchError(context.Canceled))
		Expect(alive(p.Pid())).To(BeFalse())
	})
	It("should end the children of its child", func(ctx SpecContext) {
		spec := shell(`sleep 600 & echo "grandchild $!"; wait`)
		spec.Ready = nil
		p, err := controlplane.StartProcess(ctx, spec)
		Expect(err).ToNot(HaveOccurred())
		var grandchild int
		Eventually(func() error {
			_, err := fmt.Sscanf(strings.Join(p.LogTail(1), ""), "grandchild %d", &grandchild)
			return err
		}).Should(Succeed())
		Expect(p.Stop(ctx)).To(Succeed())
		// Its new parent is init, whose business it is to reap it.
		Eventually(func() string { return processState(grandchild) }).Should(BeElementOf("", "Z"))
	})
	It("should tell how it ended", func(ctx SpecContext) {
		p, err := controlplane.StartProcess(ctx, shell(`exit 3`))
		Expect(err).ToNot(HaveOccurred())
		var exit *exec.ExitError
		Expect(errors.As(p.Wait(ctx), &exit)).To(BeTrue())
		Expect(exit.ExitCode()).To(Equal(3))
		Expect(p.Done()).To(BeClosed())
	})
	It("should report an early end with the last lines of this start's log", func(ctx SpecContext) {
		spec := shell(`for i in $(seq 30); do echo "line $i"; done; exit 7`)
		Expect(os.MkdirAll(filepath.Dir(spec.LogFile), 0o700)).To(Succeed())
		Expect(os.WriteFile(spec.LogFile, []byte("of an older start\n"), 0o600)).To(Succeed())
		spec.Ready = func(context.Context) error { return errors.New("never") }
		_, err := controlplane.StartProcess(ctx, spec)
		var failed *controlplane.StartError
		Expect(errors.As(err, &failed)).To(BeTrue())
		Expect(failed.Tail).To(HaveLen(20))
		Expect(err).To(MatchError(HavePrefix("starting script, it exited before it was ready (exit status 7); last lines of " + spec.LogFile + ":\n  line 11\n")))
		Expect(err).To(MatchError(HaveSuffix("\n  line 30")))
	})
	It("should give up, and leave nothing, when it is not ready in time", func(ctx SpecContext) {
		spec := shell(`echo $$; exec sleep 600`)
		spec.StartTimeout = 300 * time.Millisecond
		spec.Ready = func(context.Context) error { return errors.New("port closed") }
		_, err := controlplane.StartProcess(ctx, spec)
		Expect(err).To(MatchError(HavePrefix("starting script, not ready after 300ms (last answer: port closed)")))
		var failed *controlplane.StartError
		Expect(errors.As(err, &failed)).To(BeTrue())
		pid, err := strconv.Atoi(failed.Tail[0])
		Expect(err).ToNot(HaveOccurred())
		Expect(alive(pid)).To(BeFalse())
	})
	It("should name an executable that is missing", func(ctx SpecContext) {
		_, err := controlplane.StartProcess(ctx, controlplane.ProcessSpec{Name: "ghost", Path: "/nonexistent/ghost"})
		Expect(err).To(MatchError("starting ghost, fork/exec /nonexistent/ghost: no such file or directory"))
	})
	It("should keep a terminal's SIGINT from its children", func(ctx SpecContext) {
		p, err := controlplane.StartProcess(ctx, shell(`exec sleep 600`))
		Expect(err).ToNot(HaveOccurred())
		group, err := syscall.Getpgid(p.Pid())
		Expect(err).ToNot(HaveOccurred())
		Expect(group).To(Equal(p.Pid()))
		Expect(group).ToNot(Equal(syscall.Getpgrp()))
		Expect(p.Kill()).To(Succeed())
	})

	Context("when its parent ends", func() {
		DescribeTable("should leave no child",
			func(ctx SpecContext, end syscall.Signal) {
				if end != syscall.SIGINT && runtime.GOOS != "linux" {
					Skip("only Linux binds a child's life to its parent's")
				}
				parent, pids := startParent(ctx, "processes")
				Expect(pids).To(HaveLen(3))
				// Long enough for the Go runtime to drop an idle thread that had forked.
				Consistently(func() bool { return alive(pids[0]) }, "300ms").Should(BeTrue())
				Expect(parent.Process.Signal(end)).To(Succeed())
				err := parent.Wait()
				Expect(err == nil).To(Equal(end == syscall.SIGINT))
				for _, pid := range pids {
					Eventually(func() string { return processState(pid) }).Should(BeElementOf("", "Z"))
				}
			},
			Entry("after SIGKILL", syscall.SIGKILL),
			Entry("after SIGTERM, which it does not handle", syscall.SIGTERM),
			Entry("after SIGINT", syscall.SIGINT),
		)
	})
})

// startParent starts this test binary as a parent and returns when its children are up.
func startParent(ctx context.Context, children string) (*exec.Cmd, []int) {
	GinkgoHelper()
	self, err := os.Executable()
	Expect(err).ToNot(HaveOccurred())
	parent := exec.CommandContext(ctx, self)
	parent.Env = append(os.Environ(), parentEnv+"="+children)
	parent.Stderr = GinkgoWriter
	out, err := parent.StdoutPipe()
	Expect(err).ToNot(HaveOccurred())
	Expect(parent.Start()).To(Succeed())
	line, err := bufio.NewReader(out).ReadString('\n')
	Expect(err).ToNot(HaveOccurred(), "the parent ended before its children were up")
	var pids []int
	for _, field := range strings.Fields(line) {
		pid, err := strconv.Atoi(field)
		Expect(err).ToNot(HaveOccurred())
		Expect(alive(pid)).To(BeTrue())
		pids = append(pids, pid)
	}
	return parent, pids
}

// processState is "" for a process that is gone, else ps's letter for its state. "Z" has
// ended and waits for its new parent, init, to take note; not every container's init does.
func processState(pid int) string {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil || len(out) == 0 {
		return ""
	}
	return string(out[0])
}
