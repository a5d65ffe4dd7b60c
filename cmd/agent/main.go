// Command agent verifies the GPUs of the node it runs on. See pkg/agent.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent/cli"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent/nvml"
)

// The agent's live heap is a few MiB; collecting it more often than Go's default
// keeps the process small, since it allocates little and rests most of the time.
const (
	gcPercent   = 25
	memoryLimit = 32 << 20
)

func main() { os.Exit(run()) }

func run() int {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return cli.Command{Out: os.Stdout, Err: os.Stderr, Clock: clock.RealClock{}, Library: nvml.New}.Run(ctx, os.Args[1:])
}
