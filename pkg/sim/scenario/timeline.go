package scenario

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Write renders the result for a reader: timeline, figures, cost.
func (r *Result) Write(w io.Writer) error {
	var b strings.Builder
	verdict := "passed"
	if !r.Passed {
		verdict = "FAILED"
	}
	fmt.Fprintf(&b, "scenario %s (%s controller): %s in %.1f s\n", r.Scenario, r.Controller, verdict, r.Seconds)
	if r.Failure != "" {
		fmt.Fprintf(&b, "  %s\n", r.Failure)
	}
	r.writeTimeline(&b)
	r.writeFigures(&b)
	r.writeCost(&b)
	r.writeWarmHours(&b)
	r.writePeakFleet(&b)
	if r.LogDir != "" {
		fmt.Fprintf(&b, "\nlogs: %s\n", r.LogDir)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) writeTimeline(w io.Writer) {
	fmt.Fprint(w, "\ntimeline\n")
	t := table(w)
	for _, s := range r.Steps {
		fmt.Fprintf(t, "  %8.1f s\t%s\t%s\n", s.Start, s.Action, s.outcome())
	}
	_ = t.Flush() // w is a strings.Builder, which does not fail
}

func (s StepResult) outcome() string {
	switch {
	case !s.Passed && len(s.Unmet) > 0:
		return fmt.Sprintf("%s: FAILED after %.1f s: %s", s.Title, s.Seconds, strings.Join(s.Unmet, "; "))
	case !s.Passed:
		return fmt.Sprintf("%s: FAILED: %s", s.Title, s.Note)
	case s.Action == "expect":
		return fmt.Sprintf("%s: after %.1f s", s.Title, s.Seconds)
	case s.Note != "":
		return fmt.Sprintf("%s (%s)", s.Title, s.Note)
	}
	return s.Title
}

func (r *Result) writeFigures(w io.Writer) {
	if len(r.Measures) == 0 && r.UpSeconds == 0 && r.LateTaints == 0 {
		return
	}
	fmt.Fprint(w, "\nfigures\n")
	t := table(w)
	if r.UpSeconds > 0 {
		fmt.Fprintf(t, "  sandbox up\t%8.1f s\n", r.UpSeconds)
	}
	for _, m := range r.Measures {
		fmt.Fprintf(t, "  %s\t%8.1f s\n", m.Name, m.Seconds)
	}
	_ = t.Flush()
	if r.LateTaints > 0 {
		fmt.Fprintf(w, "  pods that the taint manager ended for a taint already gone: %d\n", r.LateTaints)
	}
}

func (r *Result) writeCost(w io.Writer) {
	fmt.Fprintf(w, "\ncost of the cloud: $%.4f, at most $%.3f an hour with up to %d instances\n",
		r.Cost.Total, r.Cost.PeakPerHour, r.Cost.PeakInstances)
	t := table(w)
	for _, l := range r.Cost.Lines {
		fmt.Fprintf(t, "  %s\t%s\t%d launched\t%.3f instance hours\tat $%.4f/h\t$%.4f\n",
			l.InstanceType, l.CapacityType, l.Launches, l.InstanceHours, l.PricePerHour, l.Total)
	}
	_ = t.Flush()
}

func (r *Result) writePeakFleet(w io.Writer) {
	f := r.PeakFleet
	if f == nil {
		return
	}
	fmt.Fprintf(w, "bought for the peak instead: %d GPUs cost $%.2f an hour, used or not ($%.0f a month)\n",
		f.GPUs, f.PricePerHour, f.PricePerHour*730)
	fmt.Fprintf(w, "  assumed: servers of %d GPUs at $%.0f, written off over %g years, %g kW each at $%g/kWh\n",
		f.GPUsPerServer, f.ServerPrice, f.Years, f.KilowattsEach, f.PricePerKWh)
	if r.Cost.PeakPerHour > 0 {
		fmt.Fprintf(w, "  the cloud at this peak costs less than that as long as it is used below %.0f %% of the time\n",
			min(100, 100*f.PricePerHour/r.Cost.PeakPerHour))
	}
}

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 8, 2, ' ', 0) }
