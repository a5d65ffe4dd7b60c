package guest

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/deviceplugin"
)

// Main plays the part that the name or the first argument names, and returns the exit status.
func Main(clk clock.Clock, args []string) int {
	err := play(clk, filepath.Base(args[0]), args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
	return 0
}

func play(clk clock.Clock, name string, args []string) error {
	switch name {
	case RuntimeName:
		return runtimeMain(args, false)
	case NVIDIARuntimeName:
		return runtimeMain(args, true)
	}
	if len(args) == 0 {
		return fmt.Errorf("no part to play: this program is started by the sandbox's real node")
	}
	part, rest := args[0], args[1:]
	if want := operands[part]; len(rest) != want {
		return fmt.Errorf("part %q: it takes %d arguments and got %d", part, want, len(rest))
	}
	switch part {
	case "supervise":
		return supervise(clk, rest[0])
	case "sweep":
		return sweep(clk, rest[0])
	case "init":
		return runInit(clk, rest[0])
	case "boot-id":
		return bootIDMain(os.Stdin)
	default:
		return playContainer(clk, part, rest)
	}
}

// operands counts the arguments of the parts that have any.
var operands = map[string]int{"supervise": 1, "sweep": 1, "init": 1, "device-plugin": 1}

// playContainer plays the programs of the images that are made of this binary.
func playContainer(clk clock.Clock, part string, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	switch part {
	case "pause":
		<-ctx.Done()
		return nil
	case "work":
		fmt.Printf("%s working on %q\n", clk.Now().UTC().Format(timeFormat), os.Getenv("NVIDIA_VISIBLE_DEVICES"))
		<-ctx.Done()
		return nil
	case "device-plugin":
		return deviceplugin.New(deviceplugin.Options{Dir: args[0], Clock: clk}).Run(ctx)
	}
	return fmt.Errorf("part %q is unknown", part)
}

const timeFormat = "2006-01-02T15:04:05.000Z07:00"
