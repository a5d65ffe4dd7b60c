package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

func table(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "list\tfamilies\tpods\tbatch\tleft out\tstock\tcontroller\tgreedy\tours\tbound\tours/stock\tcontroller/stock\tours/greedy\tours/bound\tstock s\tcontroller s\tours s\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%.2f\t%.2f\t%.2f\t%s\t%s\t%.4f\t%.4f\t%s\t%s\t%.3f\t\n", r.List, r.Families, r.Pods, r.Batch, r.LeftOut,
			optional("%.2f", r.Stock), optional("%.2f", r.Controller), r.Greedy, r.Ours, r.Bound, optional("%.4f", r.toStock()), optional("%.4f", ratio(r.Controller, r.Stock)), r.Ours/r.Greedy, r.Ours/r.Bound,
			optional("%.3f", r.StockSeconds), optional("%.3f", r.ControllerSeconds), r.OursSeconds)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("printing the table, %w", err)
	}
	for _, b := range []struct {
		name  string
		batch bool
	}{{"all at once", false}, {"in batches", true}} {
		stock := mean(rows, b.batch, func(r Row) float64 {
			if v := r.toStock(); v != nil {
				return *v
			}
			return math.NaN()
		})
		_, err := fmt.Fprintf(w, "geometric mean, %s: ours/stock %s, ours/greedy %.4f, ours/bound %.4f\n", b.name, optional("%.4f", stock),
			*mean(rows, b.batch, func(r Row) float64 { return r.Ours / r.Greedy }),
			*mean(rows, b.batch, func(r Row) float64 { return r.Ours / r.Bound }))
		if err != nil {
			return fmt.Errorf("printing the means, %w", err)
		}
	}
	return nil
}

func (r Row) toStock() *float64 { return ratio(&r.Ours, r.Stock) }

// ratio is nil where one of the two is.
func ratio(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	v := *a / *b
	return &v
}

func optional(format string, v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

// mean is the geometric mean over the rows of one kind; nil if any is missing.
func mean(rows []Row, batch bool, ratio func(Row) float64) *float64 {
	sum, n := 0.0, 0
	for _, r := range rows {
		if (r.Batch > 0) == batch {
			sum += math.Log(ratio(r))
			n++
		}
	}
	v := math.Exp(sum / float64(n))
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

// Sizes of the plot in SVG units.
const (
	plotLeft, plotTop, plotStep, plotHeight = 60, 40, 26, 300
)

// plot draws, for each row, the cost of each packing as a multiple of the bound.
func plot(rows []Row) string {
	top := 1.1
	for _, r := range rows {
		top = max(top, r.Greedy/r.Bound, r.Ours/r.Bound)
		if r.Stock != nil {
			top = max(top, *r.Stock/r.Bound)
		}
	}
	top = math.Ceil(top*10) / 10
	y := func(ratio float64) float64 { return plotTop + plotHeight*(top-ratio)/(top-1) }
	width := plotLeft + plotStep*(len(rows)+1)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", width, plotTop+plotHeight+190)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n"+`<text x="%d" y="16" font-size="13">Price per hour as a multiple of the lower bound</text>`+"\n", plotLeft)
	for tick := 0; tick <= int(math.Round((top-1)*10)); tick++ {
		at := 1 + float64(tick)/10
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.1f</text>`+"\n", plotLeft, y(at), width, plotLeft-6, y(at)+4, at)
	}
	marks := []struct {
		name, color string
		price       func(Row) *float64
	}{
		{"stock", "#c0392b", func(r Row) *float64 { return r.Stock }},
		{"greedy", "#7f8c8d", func(r Row) *float64 { return &r.Greedy }},
		{"ours", "#1e8449", func(r Row) *float64 { return &r.Ours }},
	}
	for i, m := range marks {
		fmt.Fprintf(&b, `<circle cx="%d" cy="28" r="4" fill="%s"/><text x="%d" y="32">%s</text>`+"\n", plotLeft+4+i*70, m.color, plotLeft+12+i*70, m.name)
		for j, r := range rows {
			if p := m.price(r); p != nil {
				fmt.Fprintf(&b, `<circle cx="%d" cy="%.1f" r="4" fill="%s"/>`+"\n", plotLeft+plotStep*(j+1), y(*p/r.Bound), m.color)
			}
		}
	}
	for j, r := range rows {
		label := fmt.Sprintf("%s %s %d", r.List, r.Families, r.Pods)
		if r.Batch > 0 {
			label += fmt.Sprintf(" by %d", r.Batch)
		}
		x, at := plotLeft+plotStep*(j+1), plotTop+plotHeight+12
		fmt.Fprintf(&b, `<text x="%d" y="%d" transform="rotate(60 %d %d)">%s</text>`+"\n", x, at, x, at, label)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
