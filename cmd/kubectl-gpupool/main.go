// Command kubectl-gpupool is the kubectl plugin of karpenter-gpu: kubectl gpupool plan
// shows what would be launched for workloads before anything is, status how the pools of
// a cluster stand, doctor what keeps them from working, and convert turns manifests of
// older Karpenters and of TensorFusion into NodePools and GPUPools.
//
// Exit codes: 0 all went well, 1 the answer is a no (some pod has no node, doctor found
// errors, convert could not carry all over), 2 an error.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := cli.New(cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, clock.RealClock{}).ExecuteContext(ctx)
	stop()
	if err != nil && !cli.IsUnmet(err) {
		fmt.Fprintln(os.Stderr, "Error:", err)
	}
	os.Exit(cli.ExitCode(err))
}
