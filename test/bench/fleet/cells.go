package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/fleet/openb"
)

// Cell is one case of the benchmark.
type Cell struct {
	// List is the openb list and Families the EC2 families, joined by a plus.
	List, Families string
	// Pods are in order of arrival.
	Pods []openb.Pod
	// LeftOut counts whole-GPU pods passed over because no shape of the families
	// holds them or may take them.
	LeftOut int
	// Batch is how many pods arrive at once; 0 means all. Later batches use what
	// is free on the nodes of earlier ones.
	Batch int

	// Shapes, the models of each, and what can stand in for the trace's models.
	Shapes   []fleet.Shape
	Models   []string
	StandIns map[string][]string
}

// String names the cell.
func (c Cell) String() string {
	if c.Batch > 0 {
		return fmt.Sprintf("%s %s %d by %d", c.List, c.Families, len(c.Pods), c.Batch)
	}
	return fmt.Sprintf("%s %s %d", c.List, c.Families, len(c.Pods))
}

// Problem is the packing problem of some of the cell's pods.
func (c Cell) Problem(pods []openb.Pod) fleet.Problem {
	return openb.Problem(pods, c.Shapes, c.Models, c.StandIns)
}

var (
	lists    = []string{"default", "multigpu50", "gpuspec33"}
	families = []string{"g6", "g4dn+g5+g6+g6e", "p4d+p5"}
	sizes    = []int{20, 80, 400}
)

const arrivalBatch = 20

// cells lists every case: all sizes at once, and the largest in batches.
func cells(data string) ([]Cell, error) {
	standIns, err := openb.StandIns()
	if err != nil {
		return nil, err
	}
	var out []Cell
	for _, list := range lists {
		pods, err := load(filepath.Join(data, "openb_pod_list_"+list+".csv"))
		if err != nil {
			return nil, err
		}
		for _, fam := range families {
			c := Cell{List: list, Families: fam, StandIns: standIns}
			c.Shapes, c.Models = openb.Shapes(catalog.Default().GPUShapes(), strings.Split(fam, "+"))
			for _, n := range sizes {
				out = append(out, c.first(pods, n))
			}
			last := out[len(out)-1]
			last.Batch = arrivalBatch
			out = append(out, last)
		}
	}
	return out, nil
}

func load(path string) ([]openb.Pod, error) {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return nil, fmt.Errorf("opening the list, %w", err)
	}
	defer f.Close()
	pods, err := openb.Read(f)
	if err != nil {
		return nil, fmt.Errorf("reading %s, %w", path, err)
	}
	return openb.Whole(pods), nil
}

// first takes the first n pods that run on the cell's shapes. A list without
// times has no arrival, and multigpu50 begins with the pods of default, its
// additions at the end; of such a list it takes n pods evenly spaced instead.
func (c Cell) first(pods []openb.Pod, n int) Cell {
	var runs []openb.Pod
	timed := len(pods) > 0 && pods[len(pods)-1].Created > 0
	for _, p := range pods {
		if timed && len(runs) == n {
			break
		}
		if !p.Runs(c.Shapes, p.Allowed(c.Models, c.StandIns)) {
			c.LeftOut++
			continue
		}
		runs = append(runs, p)
	}
	for i := range min(n, len(runs)) {
		at := i
		if !timed {
			at = i * len(runs) / n
		}
		c.Pods = append(c.Pods, runs[at])
	}
	return c
}
