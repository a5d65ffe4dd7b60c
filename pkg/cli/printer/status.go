package printer

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/overview"
)

// Status writes an overview as tables.
func Status(w io.Writer, o *overview.Overview, s Style) error {
	t := &text{style: s}
	if len(o.GPUPools) == 0 {
		t.line("There is no GPUPool. All NodePools behave as plain Karpenter.")
		_, err := io.WriteString(w, t.String())
		return err
	}
	t.pools(o)
	t.states(o.Nodes)
	t.resources(o.GPUPools)
	t.layouts(o.GPUPools)
	t.warm(o.GPUPools)
	t.problems(o.Problems)
	_, err := io.WriteString(w, strings.TrimLeft(t.String(), "\n"))
	return err
}

func (t *text) pools(o *overview.Overview) {
	t.heading("POOLS")
	g := &grid{right: []int{4, 5, 6, 7, 8, 9, 10}}
	g.add("GPUPOOL", "READY", "NODEPOOLS", "PARTITIONING", "NODES", "GPUS READY", "PROVISIONING", "WARM", "UNHEALTHY", "TOTAL", "$/H")
	for _, p := range o.GPUPools {
		g.add(p.Name, p.Ready, lo.CoalesceOrEmpty(strings.Join(p.NodePools, ", "), "-"), partitioning(p), number(p.Nodes), number(p.GPUs.Ready), number(p.GPUs.Provisioning),
			number(p.GPUs.Warm), number(p.GPUs.Unhealthy), bounded(number(p.GPUs.Total), lo.Ternary(p.GPULimit == nil, "", fmt.Sprint(lo.FromPtr(p.GPULimit)))),
			bounded(lo.CoalesceOrEmpty(p.PricePerHour, "-"), lo.FromPtr(p.PriceLimit)))
	}
	if len(o.GPUPools) > 1 {
		n := o.Total
		g.add("total", "", "", "", number(n.Nodes), number(n.GPUs.Ready), number(n.GPUs.Provisioning), number(n.GPUs.Warm), number(n.GPUs.Unhealthy), number(n.GPUs.Total), n.PricePerHour)
	}
	for i, l := range g.lines() {
		good := i > 0 && i <= len(o.GPUPools) && o.GPUPools[i-1].Ready == "True"
		bad := i > 0 && i <= len(o.GPUPools) && o.GPUPools[i-1].Ready == "False"
		t.tinted(l, good, bad)
	}
}

// tinted writes a line in color where there is something to say by it.
func (t *text) tinted(line string, good, bad bool) {
	switch {
	case good:
		t.line("%s%s%s", t.style.good, line, t.style.off)
	case bad:
		t.line("%s%s%s", t.style.alarm, line, t.style.off)
	default:
		t.line("%s", line)
	}
}

func number(n int32) string { return strconv.Itoa(int(n)) }

// bounded writes an amount with its limit.
func bounded(amount, limit string) string {
	return lo.Ternary(limit == "", amount, amount+" of "+limit)
}

func partitioning(p overview.Pool) string {
	switch p.Partitioning {
	case v1alpha1.PartitioningMIG:
		return "MIG, " + p.Detail
	case v1alpha1.PartitioningTimeSlicing, v1alpha1.PartitioningMPS:
		return string(p.Partitioning) + " ×" + p.Detail
	}
	return "whole GPUs"
}

// states writes nodes that a row says the same of as one row, so that a thousand nodes
// are as easy to read as ten; nodes that are not well come one by one under PROBLEMS.
func (t *text) states(nodes []overview.Node) {
	t.heading("NODES")
	if len(nodes) == 0 {
		t.line("none")
		return
	}
	g := &grid{right: []int{0, 5}}
	g.add("NODES", "GPUPOOL", "NODEPOOL", "INSTANCE TYPE", "CAPACITY", "GPUS", "MIG LAYOUT", "STATE", "AGE", "SUCH AS")
	for _, group := range alike(nodes) {
		n := group[0]
		g.add(strconv.Itoa(len(group)), n.GPUPool, n.NodePool, lo.CoalesceOrEmpty(n.InstanceType, "-"), lo.CoalesceOrEmpty(n.CapacityType, "-"), strconv.Itoa(n.GPUs),
			lo.CoalesceOrEmpty(n.Layout, "-"), n.State, ages(group), n.Title())
	}
	t.grid(g)
}

func alike(nodes []overview.Node) [][]overview.Node {
	return lo.PartitionBy(nodes, func(n overview.Node) overview.Node {
		return overview.Node{GPUPool: n.GPUPool, NodePool: n.NodePool, InstanceType: n.InstanceType, CapacityType: n.CapacityType, Layout: n.Layout, State: n.State}
	})
}

// ages is the least and the greatest age.
func ages(group []overview.Node) string {
	human := func(n overview.Node) string {
		return duration.HumanDuration(time.Duration(n.AgeSeconds) * time.Second)
	}
	byAge := func(a, b overview.Node) int { return int(a.AgeSeconds - b.AgeSeconds) }
	youngest, oldest := human(slices.MinFunc(group, byAge)), human(slices.MaxFunc(group, byAge))
	return lo.Ternary(youngest == oldest, youngest, youngest+" to "+oldest)
}

func (t *text) resources(pools []overview.Pool) {
	g := &grid{right: []int{2, 3, 4}}
	g.add("GPUPOOL", "RESOURCE", "ALLOCATABLE", "REQUESTED", "FREE")
	for _, p := range pools {
		for _, r := range p.Resources {
			g.add(p.Name, r.Name, fmt.Sprint(r.Allocatable), fmt.Sprint(r.Requested), fmt.Sprint(max(0, r.Allocatable-r.Requested)))
		}
	}
	t.section("RESOURCES", g)
}

func (t *text) layouts(pools []overview.Pool) {
	g := &grid{right: []int{2}}
	g.add("GPUPOOL", "LAYOUT", "NODES")
	for _, p := range pools {
		for _, l := range p.Layouts {
			g.add(p.Name, l.Name, number(l.Nodes))
		}
	}
	t.section("MIG LAYOUTS", g)
}

func (t *text) warm(pools []overview.Pool) {
	g := &grid{right: []int{3, 4, 5}}
	g.add("GPUPOOL", "ENTRY", "UNIT", "WANTED", "READY", "PROVISIONING", "NEXT CHANGE")
	for _, p := range pools {
		for _, w := range p.Warm {
			next := "-"
			if w.NextChange != nil {
				next = w.NextChange.UTC().Format(time.RFC3339)
			}
			g.add(p.Name, w.Name, lo.CoalesceOrEmpty(string(w.Unit), "-"), number(w.Wanted), number(w.Ready), number(w.Provisioning), next)
		}
	}
	t.section("WARM", g)
}

// section writes a grid that has more than its header.
func (t *text) section(title string, g *grid) {
	if len(g.rows) > 1 {
		t.heading(title)
		t.grid(g)
	}
}

func (t *text) problems(list []overview.Problem) {
	if len(list) == 0 {
		t.line("\n%sNo problems.%s", t.style.good, t.style.off)
		return
	}
	t.line("\n%sPROBLEMS%s", t.style.alarm, t.style.off)
	for _, p := range list[:min(len(list), maxListed)] {
		t.line("%s: %s", p.Object, p.Reason)
		for l := range strings.Lines(p.Message) {
			t.line("  %s", strings.TrimRight(l, "\n"))
		}
	}
	t.more(len(list))
}
