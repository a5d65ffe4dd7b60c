package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// options are the parsed flags.
type options struct {
	once       bool
	output     string
	wait       time.Duration
	library    string
	node       string
	kubeconfig string
	policyFile string
	disable    []string
	minDriver  string
	gpus       int
	host       agent.OSHost

	interval, startInterval, heartbeat, deadline time.Duration
}

// output formats of --once.
const (
	outputJSON  = "json"
	outputTable = "table"
)

func (o *options) bind(fs *pflag.FlagSet) {
	fs.BoolVar(&o.once, "once", false, "check once, print the result and exit: 0 verified, 1 not verified, 2 usage, 3 driver absent")
	fs.StringVarP(&o.output, "output", "o", outputTable, "format of --once, json or table")
	fs.DurationVar(&o.wait, "wait", 0, "with --once, check again for this long until the node is verified")
	fs.StringVar(&o.library, "nvml-library", "", "path of libnvidia-ml.so.1; empty leaves the search to the dynamic loader")
	fs.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "name of this Node (NODE_NAME)")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty means the pod's service account")
	fs.StringVar(&o.policyFile, "policy-file", "", "YAML file with checks, XID classes and demands")
	fs.StringSliceVar(&o.disable, "disable-checks", nil, "checks to switch off, see docs/reference/health-checks.md")
	fs.StringVar(&o.minDriver, "min-driver", "", "oldest driver version accepted, such as 550")
	fs.IntVar(&o.gpus, "gpus", 0, "number of GPUs expected; 0 expects at least one")
	fs.DurationVar(&o.interval, "interval", agent.DefaultInterval, "time between checks of a verified node")
	fs.DurationVar(&o.startInterval, "start-interval", agent.DefaultStartInterval, "time between checks of a node that is not verified")
	fs.DurationVar(&o.heartbeat, "heartbeat", agent.DefaultHeartbeat, "mean time between writes when nothing changes")
	fs.DurationVar(&o.deadline, "probe-timeout", agent.DefaultDeadline, "time that one probe may take whose check has no timeout of its own, in --policy-file or the pool")
	fs.StringVar(&o.host.BootIDPath, "boot-id-path", "", "file with the boot ID; empty means sys/kernel/random/boot_id under --proc-root")
	fs.StringVar(&o.host.ProcRoot, "proc-root", "/proc", "where the host's /proc is")
	fs.StringVar(&o.host.DevRoot, "dev-root", "/dev", "where the host's /dev is")
}

// parse reads and validates the flags.
func parse(args []string, stderr io.Writer) (options, health.Policy, error) {
	var o options
	fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	o.bind(fs)
	if err := fs.Parse(args); err != nil {
		return o, health.Policy{}, err
	}
	if fs.NArg() > 0 {
		return o, health.Policy{}, fmt.Errorf("%q is no flag, this command takes flags only", fs.Arg(0))
	}
	if err := o.validate(); err != nil {
		return o, health.Policy{}, err
	}
	p, err := o.policy()
	return o, p, err
}

func (o options) validate() error {
	var errs []error
	if o.output != outputJSON && o.output != outputTable {
		errs = append(errs, fmt.Errorf("--output %q is neither json nor table", o.output))
	}
	if !o.once && o.node == "" {
		errs = append(errs, errors.New("--node-name is empty, set it or NODE_NAME, or use --once"))
	}
	for _, d := range []struct {
		name       string
		value, min time.Duration
	}{
		{"interval", o.interval, time.Second}, {"start-interval", o.startInterval, time.Second},
		{"heartbeat", o.heartbeat, 10 * time.Second}, {"probe-timeout", o.deadline, 10 * time.Millisecond}, {"wait", o.wait, 0},
	} {
		if d.value < d.min {
			errs = append(errs, fmt.Errorf("--%s %s is below %s", d.name, d.value, d.min))
		}
	}
	return errors.Join(errs...)
}

// policy is the file's, with the flags on top.
func (o options) policy() (health.Policy, error) {
	var p health.Policy
	if o.policyFile != "" {
		data, err := os.ReadFile(o.policyFile)
		if err != nil {
			return p, fmt.Errorf("reading --policy-file, %w", err)
		}
		if p, err = health.ParsePolicy(data); err != nil {
			return p, fmt.Errorf("reading --policy-file %s, %w", o.policyFile, err)
		}
	}
	if o.minDriver != "" {
		p.MinDriver = o.minDriver
	}
	if o.gpus != 0 {
		p.GPUs = o.gpus
	}
	for _, name := range o.disable {
		if p.Checks == nil {
			p.Checks = map[health.Check]health.CheckPolicy{}
		}
		p.Checks[health.Check(strings.TrimSpace(name))] = health.CheckPolicy{Disabled: true}
	}
	return p, p.Validate()
}

// driverAbsent says whether a report is of a node whose driver is not there.
func driverAbsent(r health.Report) bool {
	return slices.ContainsFunc(r.Findings, func(f health.ReportFinding) bool {
		return f.Reason == health.DriverNotLoaded || f.Reason == health.LibraryMissing
	})
}
