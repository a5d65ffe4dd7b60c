package printer

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/samber/lo"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/planner"
)

// maxListed bounds what a table lists of one kind; JSON and YAML have everything.
const maxListed = 20

// Plan writes a plan as tables.
func Plan(w io.Writer, p *planner.Plan, s Style) error {
	t := &text{style: s}
	t.heading("NODES TO LAUNCH")
	t.nodes(&p.Decision)
	if p.Stock != nil {
		t.heading("STOCK KARPENTER WOULD LAUNCH")
		t.nodes(p.Stock)
	}
	t.totals(p)
	t.existing(p.Decision.Existing)
	t.unplaced(p.Unplaced)
	t.ignored(p.Ignored)
	t.list("NOTES", p.Notes)
	t.assumptions(p.Assumptions)
	_, err := io.WriteString(w, strings.TrimLeft(t.String(), "\n"))
	return err
}

type text struct {
	strings.Builder
	style Style
}

func (t *text) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

func (t *text) heading(title string) { t.line("\n%s%s%s", t.style.heading, title, t.style.off) }

func (t *text) grid(g *grid) {
	for _, l := range g.lines() {
		t.line("%s", l)
	}
}

func dollars(v float64) string { return fmt.Sprintf("%.2f", v) }

// nodes writes equal nodes as one row.
func (t *text) nodes(d *planner.Decision) {
	if len(d.Nodes) == 0 {
		t.line("none")
		return
	}
	g := &grid{right: []int{0, 5, 6, 7}}
	g.add("NODES", "INSTANCE TYPE", "NODEPOOL", "CAPACITY", "MIG LAYOUT", "GPUS", "UNUSED", "$/H EACH", "PODS ON EACH")
	for _, group := range grouped(d.Nodes) {
		n := group[0]
		g.add(strconv.Itoa(len(group)), n.InstanceType, n.NodePool, lo.Ternary(n.Zone == "", n.CapacityType, n.CapacityType+" in "+n.Zone),
			lo.Ternary(n.Layout == "", "-", n.Layout), strconv.Itoa(n.GPUs), strconv.Itoa(n.UnusedGPUs), dollars(n.PricePerHour), pods(n.Pods))
	}
	t.grid(g)
}

// grouped collects neighbors that a row says the same of.
func grouped(nodes []planner.Node) [][]planner.Node {
	return lo.PartitionBy(nodes, func(n planner.Node) string {
		return fmt.Sprint(n.InstanceType, "|", n.NodePool, "|", n.CapacityType, "|", n.Zone, "|", n.Layout, "|", n.UnusedGPUs, "|", n.PricePerHour, "|", pods(n.Pods))
	})
}

// pods says how many of which workload.
func pods(list []planner.Pod) string {
	var order []string
	counts := map[string]int{}
	for _, p := range list {
		if counts[p.Workload] == 0 {
			order = append(order, p.Workload)
		}
		counts[p.Workload]++
	}
	return strings.Join(lo.Map(order, func(w string, _ int) string {
		return lo.Ternary(counts[w] == 1, w, fmt.Sprintf("%s ×%d", w, counts[w]))
	}), ", ")
}

func (t *text) totals(p *planner.Plan) {
	t.heading("TOTAL")
	g := &grid{right: []int{1, 2, 3, 4, 5}}
	g.add("", "NODES", "GPUS", "UNUSED", "PODS LEFT", "$/H")
	row := func(name string, d *planner.Decision) {
		g.add(name, strconv.Itoa(len(d.Nodes)), strconv.Itoa(d.GPUs), strconv.Itoa(d.UnusedGPUs), strconv.Itoa(d.Unplaced), dollars(d.PricePerHour))
	}
	row("karpenter-gpu", &p.Decision)
	if p.Stock != nil {
		row("stock", p.Stock)
	}
	if p.LowerBound != nil {
		g.add("lower bound", "", "", "", "", dollars(*p.LowerBound))
	}
	t.grid(g)
	if p.Stock != nil && p.Stock.Unplaced == p.Decision.Unplaced && p.Stock.PricePerHour > p.Decision.PricePerHour {
		t.line("%s%.0f %% cheaper than stock%s", t.style.good, 100*(1-p.Decision.PricePerHour/p.Stock.PricePerHour), t.style.off)
	}
}

func (t *text) existing(list []planner.Existing) {
	if len(list) == 0 {
		return
	}
	t.heading("PODS THAT FIT ON NODES THAT ARE THERE")
	g := &grid{}
	g.add("POD", "NODE")
	for _, e := range list[:min(len(list), maxListed)] {
		g.add(e.Pod, e.Node)
	}
	t.grid(g)
	t.more(len(list))
}

func (t *text) more(n int) {
	if n > maxListed {
		t.line("and %d more; -o json lists all", n-maxListed)
	}
}

func (t *text) unplaced(list []planner.Unplaced) {
	if len(list) == 0 {
		return
	}
	t.line("\n%sPODS WITHOUT A NODE%s", t.style.alarm, t.style.off)
	for _, u := range list[:min(len(list), maxListed)] {
		t.line("%s%s", u.Workload, lo.Ternary(len(u.Pods) == 1, "", fmt.Sprintf(" (%d pods)", len(u.Pods))))
		t.line("  why: %s", u.Reason)
		if u.Fix != "" {
			t.line("  fix: %s", u.Fix)
		}
	}
	t.more(len(list))
}

func (t *text) ignored(list []manifest.Ignored) {
	if len(list) == 0 {
		return
	}
	t.heading("IGNORED")
	g := &grid{}
	g.add("KIND", "NAME", "FROM", "REASON")
	for _, i := range list[:min(len(list), maxListed)] {
		g.add(i.Kind, i.Name, lo.Ternary(i.From == "", "-", i.From), i.Reason)
	}
	t.grid(g)
	t.more(len(list))
}

func (t *text) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	t.heading(title)
	for _, l := range lines {
		t.line("- %s", l)
	}
}

func (t *text) assumptions(a planner.Assumptions) {
	t.line("\nAssumed: list prices of %s, spot at %s %% of on-demand, every instance type on sale in %s.", a.PriceRegion, strconv.FormatFloat(a.SpotPercent, 'f', -1, 64), strings.Join(a.Zones, ", "))
}
