package health

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ReportVersion is the version that Encode writes and the only one that Decode
// reads. Every change of the format gets a new number.
const ReportVersion = 1

// Bounds of a report. A report within them is at most MaxReportBytes long.
const (
	// MaxReportBytes is the hard limit of an encoded report.
	MaxReportBytes = 16 << 10

	maxGPUs        = 64
	maxInstances   = 32
	maxFindings    = 32
	maxName        = 96
	maxMessage     = 160
	maxMemoryMiB   = 64 << 20
	maxUnixSeconds = 1 << 40
	maxCount       = 1 << 30
)

// Report is a verdict and the facts that a controller compares, in the form in
// which they leave the node. Times are Unix seconds.
type Report struct {
	Version int    `json:"v"`
	BootID  string `json:"boot"`
	// State, Reason and Since are the verdict's.
	State  State  `json:"state"`
	Reason Reason `json:"reason"`
	Since  int64  `json:"since"`
	// Verified says that the node was ready at least once in this boot.
	Verified bool `json:"verified,omitempty"`
	// Known is how many GPUs the node had when it was last ready in this boot.
	Known   int    `json:"known,omitempty"`
	Driver  string `json:"driver,omitempty"`
	Library string `json:"lib,omitempty"`
	CUDA    string `json:"cuda,omitempty"`
	// GPUs are in index order; GPUs that are lost are among them.
	GPUs []ReportGPU `json:"gpus,omitempty"`
	// Findings are the faults that count, in the stable order.
	Findings []ReportFinding `json:"faults,omitempty"`
	// Skipped are the checks that no GPU supports, in documented order.
	Skipped []Check `json:"skipped,omitempty"`
	// More is how many findings were left out to bound the size.
	More int `json:"more,omitempty"`
}

// ReportGPU is one GPU of a Report.
type ReportGPU struct {
	Index             int    `json:"i"`
	UUID              string `json:"uuid,omitempty"`
	Product           string `json:"product,omitempty"`
	MemoryMiB         int    `json:"mib,omitempty"`
	ComputeCapability string `json:"cc,omitempty"`
	Lost              bool   `json:"lost,omitempty"`
	MIG               bool   `json:"mig,omitempty"`
	// Partitions are usable MIG instances as profile@start+size, such as
	// 1g.10gb@0+1; "@?" where the driver tells no placement.
	Partitions []Partition `json:"parts,omitempty"`
}

// Partition is one MIG instance in text form.
type Partition string

// ReportFinding is one fault of a Report.
type ReportFinding struct {
	Check    Check    `json:"check"`
	Reason   Reason   `json:"reason"`
	Severity Severity `json:"sev"`
	Action   Action   `json:"act,omitempty"`
	// GPU and GI are absent for the node and for a whole GPU.
	GPU     *int   `json:"gpu,omitempty"`
	GI      *int   `json:"gi,omitempty"`
	XID     int    `json:"xid,omitempty"`
	Count   int    `json:"n,omitempty"`
	Since   int64  `json:"since,omitempty"`
	Message string `json:"msg,omitempty"`
}

// NewPartition writes an instance in text form.
func NewPartition(in MIGInstance) Partition {
	if in.Start < 0 {
		return Partition(clean(in.Profile, maxName) + "@?")
	}
	return Partition(fmt.Sprintf("%s@%d+%d", clean(in.Profile, maxName), in.Start, in.Size))
}

// Parse returns the instance without its IDs.
func (p Partition) Parse() (MIGInstance, error) {
	profile, place, ok := strings.Cut(string(p), "@")
	if !ok || profile == "" {
		return MIGInstance{}, fmt.Errorf("partition %q is not of the form 1g.10gb@0+1", string(p))
	}
	if place == "?" {
		return MIGInstance{Profile: profile, Start: -1, ID: -1}, nil
	}
	first, second, ok := strings.Cut(place, "+")
	start, err1 := strconv.ParseUint(first, 10, 8)
	size, err2 := strconv.ParseUint(second, 10, 8)
	if !ok || err1 != nil || err2 != nil || size == 0 {
		return MIGInstance{}, fmt.Errorf("partition %q is not of the form 1g.10gb@0+1", string(p))
	}
	return MIGInstance{Profile: profile, Start: int(start), Size: int(size), ID: -1}, nil
}

// NewReport makes the report of a verdict. Text from the driver is reduced to
// printable ASCII of bounded length.
func NewReport(s Sample, v Verdict, m Memory) Report {
	r := Report{
		Version: ReportVersion, BootID: clean(s.BootID, maxName),
		State: v.State, Reason: v.Reason, Since: v.Since.Unix(), Verified: m.Verified, Known: min(m.GPUs, maxGPUs),
		Driver: clean(s.DriverVersion, maxName), Library: clean(s.LibraryVersion, maxName), CUDA: clean(s.CUDAVersion, maxName),
		Skipped: skipped(s),
	}
	for _, g := range s.GPUs[:min(len(s.GPUs), maxGPUs)] {
		r.GPUs = append(r.GPUs, reportGPU(g))
	}
	for _, f := range v.Findings[:min(len(v.Findings), maxFindings)] {
		r.Findings = append(r.Findings, reportFinding(f))
	}
	r.More = len(v.Findings) - len(r.Findings)
	return r
}

func reportGPU(g GPU) ReportGPU {
	out := ReportGPU{Index: g.Index, Lost: g.Lost}
	if id := g.Identity; id != nil {
		out.UUID, out.Product = clean(id.UUID, maxName), clean(id.Product, maxName)
		out.ComputeCapability = clean(id.ComputeCapability, maxName)
		out.MemoryMiB = min(max(id.MemoryMiB, 0), maxMemoryMiB)
	}
	if g.MIG != nil {
		out.MIG = g.MIG.Enabled
		for _, in := range g.MIG.Instances[:min(len(g.MIG.Instances), maxInstances)] {
			out.Partitions = append(out.Partitions, NewPartition(in))
		}
	}
	return out
}

func reportFinding(f Finding) ReportFinding {
	out := ReportFinding{
		Check: f.Check, Reason: f.Reason, Severity: f.Severity, Action: f.Action,
		XID: f.XID, Count: min(f.Count, maxCount), Since: f.Since, Message: clean(f.Message, maxMessage),
	}
	if f.GPU >= 0 {
		out.GPU = &f.GPU
	}
	if f.GI >= 0 {
		out.GI = &f.GI
	}
	return out
}

// skipped lists the per-GPU checks that every GPU of the sample lacks.
func skipped(s Sample) []Check {
	lacking := map[Check]int{}
	for _, p := range s.Probes {
		if p.Outcome == Unsupported {
			lacking[p.Check]++
		}
	}
	var out []Check
	for _, c := range checks {
		if n := lacking[c.Check]; n > 0 && (n >= len(s.GPUs) || !c.PerGPU) {
			out = append(out, c.Check)
		}
	}
	return out
}

// Encode writes the report as one line of JSON of at most MaxReportBytes. To keep
// the bound it drops messages of findings first, then findings but the first
// eight; facts are never dropped. The error means that facts alone are too long.
func Encode(r Report) ([]byte, error) {
	for _, shrink := range []func(Report) Report{
		func(r Report) Report { return r },
		withoutMessages,
		func(r Report) Report { return withFindings(withoutMessages(r), maxTold) },
	} {
		data, err := json.Marshal(shrink(r))
		if err != nil {
			return nil, fmt.Errorf("encoding gpu report, %w", err)
		}
		if len(data) <= MaxReportBytes {
			return data, nil
		}
	}
	return nil, &DecodeError{Kind: TooLarge, Detail: fmt.Sprintf("the facts alone are longer than %d bytes", MaxReportBytes)}
}

func withoutMessages(r Report) Report {
	findings := make([]ReportFinding, len(r.Findings))
	for i, f := range r.Findings {
		f.Message = ""
		findings[i] = f
	}
	r.Findings = findings
	return r
}

func withFindings(r Report, n int) Report {
	if len(r.Findings) > n {
		r.More += len(r.Findings) - n
		r.Findings = r.Findings[:n]
	}
	return r
}

// Memory returns what Judge may take over from a report of this node that it
// published itself: an agent that restarts within one boot forgets no XID and
// keeps the time of the last change. Faults count as seen at now.
func (r Report) Memory(now time.Time) Memory {
	m := Memory{BootID: r.BootID, Verified: r.Verified, GPUs: r.Known, State: r.State, Since: time.Unix(r.Since, 0).UTC()}
	for _, f := range r.Findings {
		gpu, gi := orMinus(f.GPU), orMinus(f.GI)
		at := time.Unix(f.Since, 0).UTC()
		if f.Check == CheckXID && f.XID > 0 {
			m.XIDs = append(m.XIDs, XIDRecord{Code: f.XID, GPU: gpu, GI: gi, Count: f.Count, First: at, Last: at})
		}
		m.Faults = append(m.Faults, Fault{
			Finding: Finding{Check: f.Check, Reason: f.Reason, Severity: f.Severity, Action: f.Action,
				GPU: gpu, GI: gi, XID: f.XID, Count: f.Count, Since: f.Since, Message: f.Message},
			First: at, Last: now, Active: true,
		})
	}
	return m
}

func orMinus(p *int) int {
	if p == nil {
		return -1
	}
	return *p
}

// clean reduces text to printable ASCII without quotes and backslashes, which
// JSON would lengthen, and cuts it to n bytes.
func clean(s string, n int) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= n {
			break
		}
		switch {
		case r == '"':
			b.WriteByte('\'')
		case r < ' ' || r > '~' || r == '\\' || r == '<' || r == '>' || r == '&':
			b.WriteByte('?')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
