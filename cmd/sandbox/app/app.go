// Package app holds the commands of the sandbox, apart from main so that tests can run them with
// their own streams.
//
// run owns its sandbox. up starts a supervisor, the same binary in a session of its own, which owns
// the sandbox and holds a lock on the state directory as long as it lives: whoever finds the lock
// free knows that nothing runs, whatever the state file says.
package app

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// ErrNotMet says that a scenario was played and its expectations were not met; the result has been
// printed.
var ErrNotMet = errors.New("expectations were not met")

// Streams are where commands write.
type Streams struct{ Out, Err io.Writer }

// root holds what all commands share.
type root struct {
	Streams
	now  func() time.Time
	dir  string
	bin  string
	exec string
}

// New returns the root command.
func New(s Streams, now func() time.Time) *cobra.Command {
	r := &root{Streams: s, now: now}
	cmd := &cobra.Command{
		Use:           "sandbox",
		Short:         "A Kubernetes cluster with simulated GPUs and a simulated cloud, on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			klog.SetLogger(logr.Discard()) // client libraries must not write into the live line
			return r.complete()
		},
	}
	cmd.SetOut(s.Out)
	cmd.SetErr(s.Err)
	cmd.PersistentFlags().StringVar(&r.bin, "bin", "", "directory of the binaries that make build and make controlplane made (default: that of this program)")
	cmd.PersistentFlags().StringVar(&r.dir, "dir", "", "directory for state, data and logs (default: sandbox-data below --bin)")
	cmd.AddCommand(newRun(r), newUp(r), newDown(r), newStatus(r), newRules(r), newSupervise(r))
	return cmd
}

func (r *root) complete() (err error) {
	if r.exec, err = os.Executable(); err != nil {
		return err
	}
	if r.bin == "" {
		r.bin = filepath.Dir(r.exec)
	}
	if r.bin, err = filepath.Abs(r.bin); err != nil {
		return err
	}
	if r.dir == "" {
		r.dir = filepath.Join(r.bin, "sandbox-data") // sandbox is the program itself
	}
	r.dir, err = filepath.Abs(r.dir)
	return err
}
