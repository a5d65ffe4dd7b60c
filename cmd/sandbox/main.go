// Command sandbox runs a Kubernetes cluster with simulated GPUs on one machine and
// plays scenarios on it.
//
// The control plane and the controller are the real programs, as processes; AWS, kubelets and
// NVIDIA's node software are simulated. run plays scenario files, each on a fresh sandbox; up leaves
// one running in the background to look at with kubectl, status tells about it, and down ends it.
// rules compares what the charts grant with what scenarios needed.
//
// Exit codes: 0 all expectations were met, 1 an error, 2 a scenario's expectations were not met or
// the charts grant what nothing needs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/karpenter-gpu/karpenter-gpu/cmd/sandbox/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := app.New(app.Streams{Out: os.Stdout, Err: os.Stderr}, time.Now).ExecuteContext(ctx)
	switch {
	case err == nil:
	case errors.Is(err, app.ErrNotMet), errors.Is(err, app.ErrUnneeded):
		stop()
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "Error:", err)
		stop()
		os.Exit(1)
	}
}
