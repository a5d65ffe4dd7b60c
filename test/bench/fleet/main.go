// Command fleet measures what packings of the openb trace cost: ours, the simple
// greedy's, stock Karpenter's where it is plugged in, and the proven lower
// bound, for lists of the trace, families of EC2 and numbers of pods.
//
// It writes fleet.json and fleet.svg to the folder of -out and prints a table.
// Run it from the root of the repository: go run ./test/bench/fleet.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() {
	data := flag.String("data", "test/data/openb", "folder of the openb lists")
	out := flag.String("out", "bin/bench", "folder for fleet.json and fleet.svg")
	flag.Parse()
	if err := run(*data, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(data, out string) error {
	all, err := cells(data)
	if err != nil {
		return err
	}
	report := Report{}
	for _, c := range all {
		row, err := measure(c, stock, controller, time.Now)
		if err != nil {
			return fmt.Errorf("measuring %s, %w", c, err)
		}
		report.Rows = append(report.Rows, row)
	}
	if err := os.MkdirAll(out, 0o750); err != nil {
		return fmt.Errorf("making the folder for results, %w", err)
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report, %w", err)
	}
	if err := os.WriteFile(filepath.Join(out, "fleet.json"), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the report, %w", err)
	}
	if err := os.WriteFile(filepath.Join(out, "fleet.svg"), []byte(plot(report.Rows)), 0o600); err != nil {
		return fmt.Errorf("writing the plot, %w", err)
	}
	return table(os.Stdout, report.Rows)
}
