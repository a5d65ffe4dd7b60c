package printer

import (
	"fmt"
	"io"
	"strings"

	"github.com/samber/lo"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/doctor"
)

// Doctor writes a report for people: what is wrong, what follows, what to do.
func Doctor(w io.Writer, r *doctor.Report, s Style) error {
	t := &text{style: s}
	for _, f := range r.Findings {
		t.finding(f)
	}
	t.list("NOTES", r.Notes)
	t.line("\nExamined %s.", examined(r.Examined))
	if len(r.Findings) == 0 {
		t.line("%sNothing is wrong.%s", s.good, s.off)
	} else {
		t.line("%s, %s.", plural(r.Errors, "error"), plural(r.Warnings, "warning"))
	}
	_, err := io.WriteString(w, strings.TrimLeft(t.String(), "\n"))
	return err
}

func (t *text) finding(f doctor.Finding) {
	color := lo.Ternary(f.Severity == doctor.Error, t.style.alarm, t.style.heading)
	t.line("\n%s%s %s%s: %s%s", color, f.Severity, f.Reason, t.style.off, f.Object, lo.Ternary(f.From == "", "", " ("+f.From+")"))
	for l := range strings.Lines(f.Message) {
		t.line("  %s", strings.TrimRight(l, "\n"))
	}
	if f.Fix != "" {
		t.line("  fix: %s", f.Fix)
	}
	if f.Command != "" {
		t.line("  run: %s", f.Command)
	}
}

func examined(counts []doctor.Count) string {
	if len(counts) == 0 {
		return "nothing that a check reads"
	}
	return strings.Join(lo.Map(counts, func(c doctor.Count, _ int) string { return plural(c.Number, c.Kind) }), ", ")
}

// plural counts kinds of objects, whose plurals are regular but for two.
func plural(n int, kind string) string {
	switch {
	case n == 1:
		return "1 " + kind
	case strings.HasSuffix(kind, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(kind, "y"))
	case strings.HasSuffix(kind, "s"):
		return fmt.Sprintf("%d %ses", n, kind)
	}
	return fmt.Sprintf("%d %ss", n, kind)
}
