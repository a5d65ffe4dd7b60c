// Package openb reads the pod lists of the openb GPU cluster trace and states
// them as packing problems over the shapes of the catalogue.
//
// The trace is of pods on a fixed fleet of another provider. Here only its
// demand counts: the requests of each pod, in the order of arrival, and the GPU
// models that it accepts, for which models.csv lists what can stand in. Pods
// that ask for a part of a GPU are left out by Whole. Durations are not modeled.
package openb

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Pod is one pod of the trace.
type Pod struct {
	// Name is unique in a list.
	Name string
	// CPUMilli is the CPU request in thousandths of a core.
	CPUMilli int64
	// MemoryMiB is the memory request.
	MemoryMiB int64
	// GPUs is the number of GPUs; 0 for a pod without.
	GPUs int
	// GPUMilli is the part of each GPU in thousandths; 1000 is a whole one.
	GPUMilli int
	// Models are the trace's names of the GPU models that the pod accepts,
	// sorted, each once. Empty accepts any.
	Models []string
	// Created is in seconds from the start of the trace; 0 in lists without.
	Created int64
}

// Read parses a pod list and returns the pods in order of arrival; pods that
// arrive together, and lists without times, keep the order of the file.
func Read(r io.Reader) ([]Pod, error) {
	rows := csv.NewReader(r)
	head, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("reading the header of the pod list, %w", err)
	}
	cols := map[string]int{}
	for i, name := range head {
		cols[name] = i
	}
	for _, need := range []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"} {
		if _, ok := cols[need]; !ok {
			return nil, fmt.Errorf("the header of the pod list has no column %q; give a list of the openb trace", need)
		}
	}
	var pods []Pod
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the pod list, %w", err)
		}
		pod, err := parse(cols, row)
		if err != nil {
			return nil, fmt.Errorf("reading pod %d of the list, %w", len(pods)+1, err)
		}
		pods = append(pods, pod)
	}
	slices.SortStableFunc(pods, func(a, b Pod) int { return cmp.Compare(a.Created, b.Created) })
	return pods, nil
}

func parse(cols map[string]int, row []string) (Pod, error) {
	var errs []error
	number := func(col string) int64 {
		i, ok := cols[col]
		if !ok || row[i] == "" {
			return 0
		}
		n, err := strconv.ParseInt(row[i], 10, 64)
		if err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("%s is %q; use a whole number, 0 or more", col, row[i]))
		}
		return n
	}
	pod := Pod{Name: row[cols["name"]], CPUMilli: number("cpu_milli"), MemoryMiB: number("memory_mib"),
		GPUs: int(number("num_gpu")), GPUMilli: int(number("gpu_milli")), Created: number("creation_time")}
	if i, ok := cols["gpu_spec"]; ok && row[i] != "" {
		pod.Models = strings.Split(row[i], "|")
		slices.Sort(pod.Models)
		pod.Models = slices.Compact(pod.Models)
	}
	return pod, errors.Join(errs...)
}

// Whole keeps the pods that ask for one or more whole GPUs.
func Whole(pods []Pod) []Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return p.GPUs < 1 || p.GPUMilli != 1000 })
}

//go:embed models.csv
var modelsCSV string

// StandIns maps each GPU model of the trace to the catalogue's keys of the
// models that a pod which names it can run on; models.csv has the rule and the
// reason for each.
func StandIns() (map[string][]string, error) {
	r := csv.NewReader(strings.NewReader(modelsCSV))
	r.Comment, r.FieldsPerRecord = '#', 4
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading the table of models, %w", err)
	}
	out := map[string][]string{}
	for _, row := range rows[1:] {
		out[row[0]] = strings.Split(row[2], "|")
	}
	return out, nil
}
