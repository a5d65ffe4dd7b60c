package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/stack"
)

type runOptions struct {
	*root
	controller string
	output     string
	results    string
	admin      bool
	keep       bool
}

func newRun(r *root) *cobra.Command {
	o := &runOptions{root: r}
	cmd := &cobra.Command{
		Use:   "run SCENARIO...",
		Short: "Play scenario files, each on a fresh sandbox",
		Args:  cobra.MinimumNArgs(1),
		Example: `  sandbox run test/scenarios/burst.yaml
  sandbox run test/scenarios/burst.yaml --controller stock
  sandbox run test/scenarios/*.yaml -o json`,
		RunE: func(cmd *cobra.Command, files []string) error { return o.run(cmd.Context(), files) },
	}
	cmd.Flags().StringVar(&o.controller, "controller", "", "ours or stock, in place of what the scenarios say")
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "text or json; json is one array of results on standard output")
	cmd.Flags().StringVar(&o.results, "results", "", "file that gets the results in JSON besides, for sandbox rules")
	cmd.Flags().BoolVar(&o.admin, "admin", false, "let the controller and the agents do everything, in place of what the charts grant them")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "keep data and logs of runs that pass too")
	return cmd
}

func (o *runOptions) run(ctx context.Context, files []string) error {
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("--output %q is neither text nor json", o.output)
	}
	scenarios, err := o.load(files)
	if err != nil {
		return err
	}
	results := []*scenario.Result{}
	met := true
	for _, s := range scenarios {
		result, playErr := o.play(ctx, s)
		if result != nil {
			results = append(results, result)
			met = met && result.Passed
			if err := o.tell(result); err != nil {
				return err
			}
		}
		if playErr != nil {
			return errors.Join(fmt.Errorf("playing %s, %w", s.Name, playErr), o.print(results), o.save(results))
		}
	}
	if err := errors.Join(o.print(results), o.save(results)); err != nil {
		return err
	}
	if !met {
		return ErrNotMet
	}
	return nil
}

// load reads all files before the first is played: an error in the last must not cost the time of
// the others.
func (o *runOptions) load(files []string) ([]*scenario.Scenario, error) {
	var scenarios []*scenario.Scenario
	var errs []error
	for _, f := range files {
		s, err := scenario.Load(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if o.controller != "" {
			s.Settings.Controller = o.controller
		}
		if s.Settings.Controller == "" {
			s.Settings.Controller = scenario.ControllerOurs
		}
		scenarios = append(scenarios, s)
	}
	return scenarios, errors.Join(errs...)
}

// tell prints one result for a person as soon as it is there.
func (o *runOptions) tell(result *scenario.Result) error {
	if o.output != "text" {
		return nil
	}
	if err := result.Write(o.Out); err != nil {
		return err
	}
	_, err := fmt.Fprintln(o.Out)
	return err
}

func (o *runOptions) print(results []*scenario.Result) error {
	if o.output != "json" {
		return nil
	}
	e := json.NewEncoder(o.Out)
	e.SetIndent("", "  ")
	return e.Encode(results)
}

func (o *runOptions) save(results []*scenario.Result) error {
	if o.results == "" {
		return nil
	}
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.results, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the results, %w", err)
	}
	return nil
}

// play brings a sandbox up, plays, and takes it down whatever happened.
func (o *runOptions) play(ctx context.Context, s *scenario.Scenario) (*scenario.Result, error) {
	dir, err := freshDir(filepath.Join(o.dir, "runs"), s.Name)
	if err != nil {
		return nil, err
	}
	p := newProgress(o.Err, o.now, s.Name)
	began := o.now()
	sandbox, err := stack.Start(ctx, stack.Options{Dir: dir, BinDir: o.bin, Settings: s.Settings, Administrators: o.admin, Progress: p.phase})
	if err != nil {
		p.end()
		return nil, fmt.Errorf("%w (logs are kept in %s)", err, dir)
	}
	up := o.now().Sub(began)
	result, playErr := scenario.NewPlayer(sandbox, clock.RealClock{}, p).Play(ctx, s)
	p.phase("stopping")
	stopErr := sandbox.Stop(context.WithoutCancel(ctx))
	p.end()
	result.UpSeconds = up.Seconds()
	usage, usageErr := sandbox.Usage()
	result.UsedRules = usage.Used
	if len(usage.Denied) > 0 {
		result.Fail("calls were denied: " + strings.Join(usage.Denied, "; "))
	}
	err = errors.Join(playErr, stopErr, usageErr)
	if err == nil && result.Passed && !o.keep {
		return result, os.RemoveAll(dir)
	}
	result.LogDir = dir
	return result, err
}

// freshDir makes the first of name-1, name-2, … that does not exist yet.
func freshDir(parent, name string) (string, error) {
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return "", fmt.Errorf("making the directory of runs, %w", err)
	}
	for n := 1; ; n++ {
		dir := filepath.Join(parent, fmt.Sprintf("%s-%d", name, n))
		err := os.Mkdir(dir, 0o750)
		if err == nil {
			return dir, nil
		}
		if !os.IsExist(err) {
			return "", fmt.Errorf("making a directory for the run, %w", err)
		}
	}
}
