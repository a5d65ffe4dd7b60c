package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// poll is how often expectations are looked at. Snapshots come from caches and cost little.
const poll = 200 * time.Millisecond

// Observer hears of progress. Its methods are called from the goroutine that plays.
type Observer interface {
	// Stepping says what is going on; it comes at every poll, with what is still unmet.
	Stepping(title, detail string)
	// Stepped says that a step ended.
	Stepped(r StepResult)
}

// Player plays scenarios on a World.
type Player struct {
	world    World
	clock    clock.Clock
	observer Observer
}

// NewPlayer returns a Player. The observer may be nil.
func NewPlayer(world World, clk clock.Clock, observer Observer) *Player {
	if observer == nil {
		observer = silent{}
	}
	return &Player{world: world, clock: clk, observer: observer}
}

type silent struct{}

func (silent) Stepping(string, string) {}
func (silent) Stepped(StepResult)      {}

// play is the state of one run.
type play struct {
	*Player
	scenario *Scenario
	result   *Result
	start    time.Time
	began    map[string]time.Time
}

// Play sets the scene and plays the steps. The result is returned in any case; the error is set
// only when the world itself failed, not when an expectation did.
func (p *Player) Play(ctx context.Context, s *Scenario) (*Result, error) {
	run := &play{Player: p, scenario: s, began: map[string]time.Time{}, result: &Result{Scenario: s.Name, Controller: s.Settings.Controller}}
	err := run.scene(ctx)
	run.start = p.clock.Now()
	for i := range s.Steps {
		if err != nil {
			break
		}
		err = run.step(ctx, &s.Steps[i])
	}
	run.finish(context.WithoutCancel(ctx), err)
	var failed *expectationError
	if errors.As(err, &failed) {
		return run.result, nil
	}
	return run.result, err
}

// expectationError ends a play that went wrong as a play, with a sound world.
type expectationError struct{ text string }

func (e *expectationError) Error() string { return e.text }

func (r *play) scene(ctx context.Context) error {
	for _, l := range r.scenario.LocalNodes {
		r.observer.Stepping("local nodes "+l.Name, "")
		if err := r.world.AddLocalNodes(ctx, l); err != nil {
			return fmt.Errorf("adding local nodes %s, %w", l.Name, err)
		}
	}
	for _, m := range r.scenario.Manifests {
		r.observer.Stepping("manifests", m.Path)
		if err := r.apply(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (r *play) apply(ctx context.Context, m Manifest) error {
	text, err := m.Text()
	if err != nil {
		return err
	}
	text = expandTimes(text, r.clock.Now())
	name := m.Path
	if name == "" {
		name = "inline manifest"
	}
	if err := r.world.Apply(ctx, text); err != nil {
		return fmt.Errorf("applying %s, %w", name, err)
	}
	return nil
}

func (r *play) step(ctx context.Context, st *Step) error {
	began := r.clock.Now()
	result := StepResult{Action: st.Action(), Title: st.Title(), Start: seconds(began.Sub(r.start))}
	r.observer.Stepping(result.Title, "")
	if st.Name != "" {
		r.began[st.Name] = began
	}
	var err error
	if st.Expect != nil {
		result.Unmet, err = r.expect(ctx, st, began)
	} else {
		result.Note, err = r.act(ctx, st)
	}
	result.Seconds = seconds(r.clock.Since(began))
	result.Passed = err == nil
	if err != nil && len(result.Unmet) == 0 {
		result.Note = err.Error()
	}
	r.result.Steps = append(r.result.Steps, result)
	r.observer.Stepped(result)
	return err
}

func (r *play) act(ctx context.Context, st *Step) (note string, err error) {
	switch {
	case st.Apply != nil:
		return "", r.apply(ctx, *st.Apply)
	case st.Delete != nil:
		return "", r.world.Delete(ctx, *st.Delete)
	case st.Scale != nil:
		return "", r.world.Scale(ctx, st.Scale.Ref, st.Scale.Replicas)
	case st.Wait != nil:
		return "", r.sleep(ctx, time.Duration(*st.Wait))
	case st.KillController != nil:
		return "", r.world.KillController(ctx)
	case st.StartController != nil:
		return "", r.world.StartController(ctx)
	case st.RollController != nil:
		return "", r.world.RollController(ctx)
	}
	return r.disturb(ctx, st)
}

func (r *play) disturb(ctx context.Context, st *Step) (note string, err error) {
	if st.Interrupt != nil || st.Kill != nil || st.Reboot != nil || st.Cordon != "" {
		return r.strike(ctx, st)
	}
	switch {
	case st.Fail != nil:
		err = r.world.Fail(ctx, *st.Fail)
	case st.Heal != nil:
		err = r.world.Heal(ctx, *st.Heal)
	case st.NodeFault != nil:
		err = r.world.FailNode(*st.NodeFault)
	case st.HealNode != "":
		err = r.world.HealNode(st.HealNode)
	}
	return "", err
}

// strike plays the steps that select machines or nodes, of which there must be one.
func (r *play) strike(ctx context.Context, st *Step) (note string, err error) {
	hit, what := 0, "instances"
	switch {
	case st.Interrupt != nil:
		hit, err = r.world.Interrupt(ctx, *st.Interrupt)
	case st.Kill != nil:
		hit, err = r.world.Kill(ctx, *st.Kill)
	case st.Reboot != nil:
		hit, err = r.world.Reboot(ctx, *st.Reboot)
	default:
		what = "nodes"
		hit, err = r.world.Cordon(ctx, st.Cordon)
	}
	if err != nil {
		return "", err
	}
	if hit == 0 {
		return "", &expectationError{fmt.Sprintf("%s: no running instance or node matches", st.Title())}
	}
	return fmt.Sprintf("%d %s", hit, what), nil
}

// expect polls until all holds, for as long as it must hold, or the deadline passes. The measured
// time ends at the first poll of the stretch that held.
func (r *play) expect(ctx context.Context, st *Step, began time.Time) (unmet []string, err error) {
	e := st.Expect
	var met time.Time
	for {
		s, err := r.world.Observe(ctx, e.refs())
		if err != nil {
			return nil, fmt.Errorf("observing the sandbox, %w", err)
		}
		now := r.clock.Now()
		if unmet = e.Check(s); len(unmet) > 0 {
			met = time.Time{}
		} else if met.IsZero() {
			met = now
		}
		r.observer.Stepping(st.Title(), strings.Join(unmet, "; "))
		if !met.IsZero() && now.Sub(met) >= time.Duration(e.Hold) {
			r.measure(e.Measure, began, met)
			r.measureStartups(e, s)
			return nil, nil
		}
		if met.IsZero() && now.Sub(began) >= e.within() {
			return unmet, &expectationError{fmt.Sprintf("%s: not met within %s: %s", st.Title(), e.within(), strings.Join(unmet, "; "))}
		}
		if err := r.sleep(ctx, poll); err != nil {
			return unmet, err
		}
	}
}

func (r *play) measure(m *Measure, since, met time.Time) {
	if m == nil {
		return
	}
	if m.Since != "" {
		since = r.began[m.Since]
	}
	r.result.Measures = append(r.result.Measures, Figure{Name: m.Name, Seconds: seconds(met.Sub(since))})
}

// measureStartups notes the medians that the expectations bound.
func (r *play) measureStartups(e *Expectations, s *Snapshot) {
	for _, x := range e.Pods {
		if x.Startup != nil {
			r.result.Measures = append(r.result.Measures, Figure{Name: x.Startup.Name, Seconds: seconds(x.startup(s))})
		}
	}
}

func (r *play) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting, %w", context.Cause(ctx))
	case <-r.clock.After(d):
		return nil
	}
}

// finish takes the last account. It runs after an interrupt too, so that what was spent is told.
func (r *play) finish(ctx context.Context, err error) {
	now := r.clock.Now()
	r.result.Passed = err == nil
	if err != nil {
		r.result.Failure = err.Error()
	}
	r.result.Seconds = seconds(now.Sub(r.start))
	if s, observed := r.world.Observe(ctx, nil); observed == nil {
		r.result.Cost = CostOf(s.Cloud.Instances, now)
		for _, p := range s.Disrupted {
			if p.LateTaint {
				r.result.LateTaints++
			}
		}
	}
	if w := r.scenario.WarmHours; w != nil {
		r.result.WarmHours = r.warmHours(ctx, w)
	}
	if f := r.scenario.PeakFleet; f != nil {
		r.result.PeakFleet = &FleetCost{PeakFleet: *f, PricePerHour: f.PerHour()}
	}
}
