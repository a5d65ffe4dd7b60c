package printer

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Format is how an answer is written.
type Format string

// Formats.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// ParseFormat reads the value of the flag --output.
func ParseFormat(s string) (Format, error) {
	if f := Format(s); slices.Contains([]Format{Table, JSON, YAML}, f) {
		return f, nil
	}
	return "", fmt.Errorf("--output: %q is no format; use table, json or yaml", s)
}

// Encode writes v for programs.
func Encode(w io.Writer, f Format, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err == nil && f == YAML {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("encoding the answer, %w", err)
	}
	_, err = fmt.Fprintln(w, strings.TrimRight(string(text), "\n"))
	return err
}

// Style is color, or none: its zero value.
type Style struct{ heading, alarm, good, off string }

// Colors is the style for terminals.
func Colors() Style {
	return Style{heading: "\x1b[1m", alarm: "\x1b[1;31m", good: "\x1b[32m", off: "\x1b[0m"}
}

// grid aligns cells in columns two spaces apart. Columns named in right are numbers.
type grid struct {
	rows  [][]string
	right []int
}

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

// lines are the rows, aligned, without trailing spaces.
func (g *grid) lines() []string {
	var widths []int
	for _, row := range g.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var out []string
	for _, row := range g.rows {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if slices.Contains(g.right, i) {
				b.WriteString(pad + cell + "  ")
			} else {
				b.WriteString(cell + pad + "  ")
			}
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	return out
}
