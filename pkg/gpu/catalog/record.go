package catalog

import (
	"encoding/csv"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// record is one line of a data file. It keeps the first error, so that readers
// need not check each cell.
type record struct {
	columns map[string]int
	cells   []string
	err     error
}

func (r *record) fail(column, problem string) {
	if r.err == nil {
		r.err = fmt.Errorf("column %s, value %q: %s", column, r.optional(column), problem)
	}
}

func (r *record) optional(column string) string {
	if i, ok := r.columns[column]; ok {
		return r.cells[i]
	}
	return ""
}

func (r *record) text(column string) string {
	if _, ok := r.columns[column]; !ok {
		r.fail(column, "no such column")
	}
	return r.optional(column)
}

func (r *record) need(column string) string {
	v := r.text(column)
	if v == "" {
		r.fail(column, "must not be empty")
	}
	return v
}

func (r *record) int(column string) int {
	v := r.text(column)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		r.fail(column, "is not a whole number")
	}
	return n
}

func (r *record) float(column string) float64 {
	n, err := strconv.ParseFloat(r.text(column), 64)
	if err != nil || n <= 0 || n > 1e6 {
		r.fail(column, "is not a positive number")
	}
	return n
}

func (r *record) capability(column string) Capability {
	c, err := parseCapability(r.text(column))
	if err != nil {
		r.fail(column, err.Error())
	}
	return c
}

func (r *record) model(column string, models map[string]Model) Model {
	m, ok := models[r.text(column)]
	if !ok {
		r.fail(column, "is not in models.csv")
	}
	return m
}

func parseCapability(s string) (Capability, error) {
	major, minor, _ := strings.Cut(s, ".")
	a, err := strconv.ParseUint(major, 10, 8)
	if err != nil {
		return Capability{}, fmt.Errorf("is not a compute capability such as 8.9")
	}
	b, err := strconv.ParseUint(minor, 10, 8)
	if err != nil {
		return Capability{}, fmt.Errorf("is not a compute capability such as 8.9")
	}
	return Capability{int(a), int(b)}, nil
}

// eachRecord reads a CSV file with a header line and # comments.
func eachRecord(fsys fs.FS, name string, read func(*record)) error {
	f, err := fsys.Open(name)
	if err != nil {
		return fmt.Errorf("opening %s, %w", name, err)
	}
	defer f.Close()
	rd := csv.NewReader(f)
	rd.Comment = '#'
	rows, err := rd.ReadAll()
	if err != nil || len(rows) == 0 {
		return fmt.Errorf("reading %s, %w", name, err)
	}
	columns := map[string]int{}
	for i, c := range rows[0] {
		columns[c] = i
	}
	for _, cells := range rows[1:] {
		r := &record{columns: columns, cells: cells}
		if read(r); r.err != nil {
			return fmt.Errorf("reading %s, line of %q, %w", name, cells[0], r.err)
		}
	}
	return nil
}
