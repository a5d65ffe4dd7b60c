package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// Exit codes.
const (
	ExitVerified     = 0
	ExitNotVerified  = 1
	ExitUsage        = 2
	ExitDriverAbsent = 3
)

// Command is what the agent's command line needs of its surroundings.
type Command struct {
	Out, Err io.Writer
	Clock    clock.Clock
	// Library makes the NVML library at a path; empty is the default path.
	Library func(path string) agent.Library
	// Host is the machine; nil means the one that the flags describe.
	Host agent.Host
}

// Run runs the command until it is done or the context ends and returns its exit
// code.
func (c Command) Run(ctx context.Context, args []string) int {
	o, policy, err := parse(args, c.Err)
	if errors.Is(err, pflag.ErrHelp) {
		return ExitVerified
	}
	if err != nil {
		_, _ = fmt.Fprintln(c.Err, "Error:", err)
		return ExitUsage
	}
	host := c.Host
	if host == nil {
		host = o.host
	}
	sampler := agent.NewSampler(c.Library(o.library), host, c.Clock, agent.SamplerOptions{Deadline: o.deadline})
	if o.once {
		return c.once(ctx, sampler, policy, o)
	}
	return c.serve(ctx, sampler, policy, o)
}

func (c Command) serve(ctx context.Context, sampler *agent.Sampler, policy health.Policy, o options) int {
	log := logr.FromSlogHandler(slog.NewJSONHandler(c.Err, nil)).WithValues("Node", o.node)
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		log.Error(err, "starting")
		return ExitNotVerified
	}
	publisher, err := agent.NewNodePublisher(config, o.node)
	if err != nil {
		log.Error(err, "starting")
		return ExitNotVerified
	}
	a := agent.New(sampler, publisher, c.Clock, agent.Options{
		NodeName: o.node, Policy: policy, Interval: o.interval, StartInterval: o.startInterval, Heartbeat: o.heartbeat,
	})
	log.Info("started")
	if err := a.Run(logr.NewContext(ctx, log)); err != nil {
		log.Error(err, "stopping") // a driver that hangs is no reason to fail the stop
	}
	log.Info("stopped")
	return ExitVerified
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// once checks until the node is verified, the wait is over or the context ends.
func (c Command) once(ctx context.Context, sampler *agent.Sampler, policy health.Policy, o options) int {
	start := c.Clock.Now()
	var memory health.Memory
	var report health.Report
	var verdict health.Verdict
	for {
		report, verdict, memory = agent.Once(ctx, sampler, policy, memory, c.Clock.Now())
		if verdict.State == health.Ready || c.Clock.Since(start)+o.startInterval > o.wait {
			break
		}
		select {
		case <-ctx.Done():
		case <-c.Clock.After(o.startInterval):
			continue
		}
		break
	}
	_ = sampler.Close(ctx) // the process ends anyway
	if err := c.print(report, verdict, o.output); err != nil {
		_, _ = fmt.Fprintln(c.Err, "Error:", err)
		return ExitNotVerified
	}
	switch {
	case verdict.State == health.Ready:
		return ExitVerified
	case driverAbsent(report):
		return ExitDriverAbsent
	default:
		return ExitNotVerified
	}
}

func (c Command) print(report health.Report, verdict health.Verdict, format string) error {
	if format == outputTable {
		return printTable(c.Out, report, verdict)
	}
	data, err := health.Encode(report)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.Out, string(data))
	return err
}

func printTable(out io.Writer, report health.Report, verdict health.Verdict) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // Flush tells errors
	line("STATE\t%s (%s)", report.State, report.Reason)
	line("MESSAGE\t%s", verdict.Message)
	line("DRIVER\t%s\tLIBRARY\t%s\tCUDA\t%s", dash(report.Driver), dash(report.Library), dash(report.CUDA))
	line("BOOT\t%s", dash(report.BootID))
	if len(report.GPUs) > 0 {
		line("\nGPU\tPRODUCT\tMIB\tCC\tMIG\tUUID")
	}
	for _, g := range report.GPUs {
		line("%d\t%s\t%d\t%s\t%s\t%s", g.Index, dash(g.Product), g.MemoryMiB, dash(g.ComputeCapability), migCell(g), dash(g.UUID))
	}
	if len(report.Findings) > 0 {
		line("\nSEVERITY\tREASON\tACTION\tWHERE\tWHAT")
	}
	for _, f := range report.Findings {
		line("%s\t%s\t%s\t%s\t%s", f.Severity, f.Reason, f.Action, where(f), f.Message)
	}
	return w.Flush()
}

func migCell(g health.ReportGPU) string {
	switch {
	case g.Lost:
		return "lost"
	case !g.MIG:
		return "off"
	case len(g.Partitions) == 0:
		return "on, no instances"
	}
	cell := string(g.Partitions[0])
	for _, p := range g.Partitions[1:] {
		cell += "," + string(p)
	}
	return cell
}

func where(f health.ReportFinding) string {
	if f.GPU == nil {
		return "node"
	}
	if f.GI == nil {
		return fmt.Sprintf("gpu %d", *f.GPU)
	}
	return fmt.Sprintf("gpu %d instance %d", *f.GPU, *f.GI)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
