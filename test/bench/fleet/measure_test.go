package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet/openb"
)

func tinyCell(batch int) Cell {
	pod := openb.Pod{CPUMilli: 1000, MemoryMiB: 1, GPUs: 1, GPUMilli: 1000}
	return Cell{List: "l", Families: "f", Batch: batch, Pods: []openb.Pod{pod, pod, pod, pod, pod}, Models: []string{"m", "m"},
		Shapes: []fleet.Shape{{Name: "one", Price: 1, GPUs: 1, Allocatable: []int64{1000, 1, 1}}, {Name: "four", Price: 3, GPUs: 4, Allocatable: []int64{4000, 4, 4}}}}
}

// stopped is a clock that moves by a second whenever it is read.
func stopped() func() time.Time {
	at := time.Unix(0, 0)
	return func() time.Time { at = at.Add(time.Second); return at }
}

func TestMeasure(t *testing.T) {
	tests := map[string]struct {
		batch    int
		wantOurs float64
	}{
		"five pods at once":            {0, 4}, // four + one
		"three and then two":           {3, 5}, // four or three ones, then the rest
		"four and then one":            {4, 4},
		"one by one":                   {1, 5},
		"a batch larger than the pods": {50, 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			row, err := measure(tinyCell(tt.batch), func(Cell) (float64, float64, error) { return 6, 0.5, nil }, nil, stopped())
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(row.Ours-tt.wantOurs) > 1e-9 && name != "three and then two" || row.Ours > tt.wantOurs+1e-9 {
				t.Errorf("ours costs %v, want %v", row.Ours, tt.wantOurs)
			}
			if row.Bound > 4+1e-9 || row.Bound < 3.7 || *row.Stock != 6 || *row.StockSeconds != 0.5 || row.OursSeconds != 1 {
				t.Errorf("got bound %v, stock %v in %v s, ours in %v s", row.Bound, *row.Stock, *row.StockSeconds, row.OursSeconds)
			}
		})
	}
}

func TestMeasureReportsWhatFails(t *testing.T) {
	_, err := measure(tinyCell(0), func(Cell) (float64, float64, error) { return 0, 0, errors.New("no scheduler") }, nil, stopped())
	if err == nil || err.Error() != "packing as stock, no scheduler" {
		t.Errorf("got %v", err)
	}
	c := tinyCell(0)
	c.Pods[0].GPUs = 8
	if _, err = measure(c, nil, nil, stopped()); err == nil || !strings.Contains(err.Error(), "leaves 1 classes unplaced, the first for NoShape") {
		t.Errorf("got %v", err)
	}
}

func TestCells(t *testing.T) {
	all, err := cells("../../data/openb")
	if err != nil {
		t.Fatal(err)
	}
	if want := len(lists) * len(families) * (len(sizes) + 1); len(all) != want {
		t.Errorf("%d cells, want %d", len(all), want)
	}
	seen := map[string]bool{}
	for i, c := range all {
		if seen[c.String()] || len(c.Pods) != sizes[min(i%4, 2)] {
			t.Errorf("cell %s is there twice or has %d pods", c, len(c.Pods))
		}
		seen[c.String()] = true
	}
}

func TestOutputs(t *testing.T) {
	stock := 8.0
	rows := []Row{{List: "l", Families: "a+b", Pods: 20, Stock: &stock, Ours: 4, Greedy: 5, Bound: 4}, {List: "l", Pods: 20, Batch: 5, Ours: 2, Greedy: 4, Bound: 1}}
	var b strings.Builder
	if err := table(&b, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"geometric mean, all at once: ours/stock 0.5000, ours/greedy 0.8000, ours/bound 1.0000",
		"geometric mean, in batches: ours/stock -, ours/greedy 0.5000, ours/bound 2.0000"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
	marks := circles(t, plot(rows))
	if marks != 3+5 {
		t.Errorf("%d marks in the plot, want 3 of the legend and 5 of the rows", marks)
	}
	text, err := json.Marshal(rows[1])
	if err != nil || !strings.Contains(string(text), `"stock":null`) {
		t.Errorf("got %s and %v, want a null for stock", text, err)
	}
}

// circles counts the marks of a plot, which has to be well-formed.
func circles(t *testing.T, svg string) (n int) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatalf("reading the plot, %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			n++
		}
	}
}
