package app

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

// progress tells what is going on: on a terminal by one line that is written over until its phase
// ends, elsewhere by one line for each phase.
type progress struct {
	out   io.Writer
	now   func() time.Time
	start time.Time
	name  string
	width int // of the terminal; zero when there is none
	current
}

// current is the phase that is under way.
type current struct {
	title string
	began time.Time
}

func newProgress(out io.Writer, now func() time.Time, name string) *progress {
	p := &progress{out: out, now: now, start: now(), name: name}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			p.width = width
		}
	}
	return p
}

// phase begins a phase; the one before has ended.
func (p *progress) phase(title string) {
	p.finish("")
	p.current = current{title, p.now()}
	p.live("")
}

// Stepping is called at every poll.
func (p *progress) Stepping(title, detail string) {
	if title != p.title {
		p.phase(title)
	}
	p.live(detail)
}

// Stepped ends a step's line.
func (p *progress) Stepped(r scenario.StepResult) {
	p.title = r.Title
	outcome := "ok"
	if !r.Passed {
		outcome = "FAILED " + r.Note + strings.Join(r.Unmet, "; ") // there is one of the two
	}
	p.finish(outcome)
}

// end ends the last phase.
func (p *progress) end() { p.finish("") }

func (p *progress) finish(outcome string) {
	if p.title == "" {
		return
	}
	line := fmt.Sprintf("%s %6.1f s  %s (%.1f s) %s", p.name, p.began.Sub(p.start).Seconds(), p.title, p.now().Sub(p.began).Seconds(), outcome)
	if p.width > 0 {
		line = "\r\x1b[2K" + line
	}
	fmt.Fprintln(p.out, strings.TrimRight(line, " "))
	p.current = current{}
}

func (p *progress) live(detail string) {
	if p.width == 0 {
		return
	}
	line := []rune(fmt.Sprintf("%s %6.1f s  %s … %s", p.name, p.now().Sub(p.start).Seconds(), p.title, detail))
	fmt.Fprint(p.out, "\r\x1b[2K"+string(line[:min(len(line), p.width-1)]))
}
