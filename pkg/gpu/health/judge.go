package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is the verdict in one word.
type State string

const (
	// Ready means no fatal fault; the node is what it says it is.
	Ready State = "Ready"
	// Starting means not verified yet in this boot, and nothing says that it is broken.
	Starting State = "Starting"
	// Unhealthy means at least one fatal fault that waiting does not explain.
	Unhealthy State = "Unhealthy"
)

// maxXIDRecords bounds what is remembered of XID events.
const maxXIDRecords = 64

// Memory is what Judge knows of earlier samples. The zero value knows nothing.
// Treat it as opaque and pass on what Judge returned.
type Memory struct {
	BootID string
	// Verified says that the node was Ready at least once in this boot.
	Verified bool
	// GPUs is the largest number of GPUs seen while Ready in this boot.
	GPUs   int
	State  State
	Since  time.Time
	Faults []Fault
	XIDs   []XIDRecord
}

// Fault is one remembered fault.
type Fault struct {
	Finding     Finding
	First, Last time.Time
	// Active says that the fault has counted since it last persisted.
	Active bool
}

// XIDRecord counts the events of one code on one GPU or partition.
type XIDRecord struct {
	Code, GPU, GI int
	Count         int
	First, Last   time.Time
}

// Verdict is what a sample means.
type Verdict struct {
	State State
	// Since is when State last changed; a change of reason leaves it alone.
	Since time.Time
	// Reason is the fault that weighs most, or ReasonVerified.
	Reason Reason
	// Action is the strongest action that a fatal fault asks for.
	Action Action
	// Message is for a person and names every fatal fault in one stable order.
	Message string
	// Findings are all faults, fatal first, in one stable order.
	Findings []Finding
}

// Judge holds a sample against a policy. now is the time of the sample; memory is
// what the previous call returned. Neither argument is changed.
func Judge(s Sample, p Policy, memory Memory, now time.Time) (Verdict, Memory) {
	next := memory.forBoot(s.BootID)
	next.XIDs = recordXIDs(next.XIDs, s.XIDs, p, now)
	seen := append(faults(s, p, next.GPUs), xidFindings(next.XIDs, p)...)
	next.Faults = hold(next.Faults, seen, p, next.Verified, now)

	v := Verdict{Findings: active(next.Faults)}
	v.State = stateOf(v.Findings, next.Verified)
	if v.State != next.State {
		next.State, next.Since = v.State, now
	}
	if v.State == Ready {
		next.Verified = true
		next.GPUs = max(next.GPUs, len(s.GPUs))
	}
	v.Since = next.Since
	v.Reason, v.Action, v.Message = summarize(v.Findings, len(s.GPUs))
	return v, next
}

// forBoot forgets everything when the boot ID changed. An unreadable boot ID is
// no new boot.
func (m Memory) forBoot(id string) Memory {
	if id == "" || id == m.BootID {
		return m
	}
	if m.BootID == "" {
		m.BootID = id
		return m
	}
	return Memory{BootID: id, State: m.State, Since: m.Since}
}

func recordXIDs(records []XIDRecord, events []XIDEvent, p Policy, now time.Time) []XIDRecord {
	out := slices.Clone(records)
	for _, e := range events {
		if class, _ := p.XIDClassOf(e.Code); class == XIDApplication {
			continue
		}
		i := slices.IndexFunc(out, func(r XIDRecord) bool { return r.Code == e.Code && r.GPU == e.GPU && r.GI == e.GI })
		if i < 0 {
			out = append(out, XIDRecord{Code: e.Code, GPU: e.GPU, GI: e.GI, First: e.At, Last: e.At})
			i = len(out) - 1
		}
		out[i].Count++
		if e.At.After(out[i].Last) {
			out[i].Last = e.At
		}
	}
	out = slices.DeleteFunc(out, func(r XIDRecord) bool {
		class, _ := p.XIDClassOf(r.Code)
		return class == XIDApplication || class == XIDWarn && now.Sub(r.Last) >= p.warnFor()
	})
	slices.SortStableFunc(out, func(a, b XIDRecord) int {
		return cmp.Or(cmp.Compare(xidWeight(p, b.Code), xidWeight(p, a.Code)), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.GI, b.GI))
	})
	return out[:min(len(out), maxXIDRecords)]
}

// xidWeight orders classes so that a full memory forgets the mildest.
func xidWeight(p Policy, code int) int {
	class, _ := p.XIDClassOf(code)
	return slices.Index(xidClasses, class)
}

func xidFindings(records []XIDRecord, p Policy) []Finding {
	c := &collector{policy: p}
	for _, r := range records {
		class, name := p.XIDClassOf(r.Code)
		if name != "" {
			name = " (" + name + ")"
		}
		before := len(c.findings)
		c.add(CheckXID, xidReasons[class], r.GPU, "XID %d%s", r.Code, name)
		if len(c.findings) > before {
			f := &c.findings[before]
			f.GI, f.XID, f.Count = r.GI, r.Code, r.Count
		}
	}
	return c.findings
}

// faultKey tells faults apart. Messages do not count: they may carry figures.
type faultKey struct {
	check   Check
	reason  Reason
	gpu, gi int
	xid     int
}

func keyOf(f Finding) faultKey { return faultKey{f.Check, f.Reason, f.GPU, f.GI, f.XID} }

// hold applies hysteresis. A fault counts at once unless it can flap and the node
// was verified; then it must be seen without a gap for Policy.Raise. A fault that
// counted on a verified node is kept until it was away for Policy.Clear; all
// others end when they are not seen.
func hold(old []Fault, seen []Finding, p Policy, verified bool, now time.Time) []Fault {
	byKey := make(map[faultKey]Fault, len(old))
	for _, f := range old {
		byKey[keyOf(f.Finding)] = f
	}
	var out []Fault
	told := map[faultKey]bool{}
	for _, s := range seen {
		if told[keyOf(s)] {
			continue
		}
		told[keyOf(s)] = true
		f, ok := byKey[keyOf(s)]
		if !ok {
			f = Fault{First: now}
		}
		delete(byKey, keyOf(s))
		out = append(out, f.again(s, p, verified, now))
	}
	for _, f := range old {
		_, gone := byKey[keyOf(f.Finding)]
		if gone && f.Active && verified && kept(f, p, now) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b Fault) int { return compareFindings(a.Finding, b.Finding) })
	return out
}

// again is the fault after it was seen once more.
func (f Fault) again(s Finding, p Policy, verified bool, now time.Time) Fault {
	s.Since = f.First.Unix()
	f.Finding, f.Last = s, now
	f.Active = f.Active || !verified || !reasonInfo(s.Reason).Flaps || now.Sub(f.First) >= p.raise()
	return f
}

// kept reports whether a fault that was not seen still counts. XID faults have a
// memory of their own, and a check that was switched off keeps nothing.
func kept(f Fault, p Policy, now time.Time) bool {
	return f.Finding.Check != CheckXID && p.Enabled(f.Finding.Check) && now.Sub(f.Last) < p.clear()
}

// compareFindings is the one order in which faults are told: fatal first, then
// checks and reasons as documented, then GPU, partition and XID.
func compareFindings(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(severityRank(a.Severity), severityRank(b.Severity)),
		cmp.Compare(checkRank(a.Check), checkRank(b.Check)),
		cmp.Compare(reasonRank(a.Reason), reasonRank(b.Reason)),
		cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.GI, b.GI), cmp.Compare(a.XID, b.XID),
	)
}

func severityRank(s Severity) int {
	if s == Fatal {
		return 0
	}
	return 1
}

func active(faults []Fault) []Finding {
	var out []Finding
	for _, f := range faults {
		if f.Active {
			out = append(out, f.Finding)
		}
	}
	return out
}

func stateOf(findings []Finding, verified bool) State {
	state := Ready
	for _, f := range findings {
		if f.Severity != Fatal {
			continue
		}
		if verified || !reasonInfo(f.Reason).Boots {
			return Unhealthy
		}
		state = Starting
	}
	return state
}

// summarize picks the fatal fault with the strongest action, the first of them in
// the stable order, and tells all fatal faults.
func summarize(findings []Finding, gpus int) (Reason, Action, string) {
	reason, action := ReasonVerified, ActionNone
	var messages []string
	for _, f := range findings {
		if f.Severity != Fatal {
			continue
		}
		if reason == ReasonVerified || f.Action.rank() > action.rank() {
			reason, action = f.Reason, f.Action
		}
		messages = append(messages, f.String())
	}
	if len(messages) == 0 {
		return reason, action, fmt.Sprintf("%s verified", plural(gpus, "GPU"))
	}
	if len(messages) > maxTold {
		messages = append(messages[:maxTold], fmt.Sprintf("and %d more", len(messages)-maxTold))
	}
	return reason, action, strings.Join(messages, "; ")
}

// String tells the finding with its place: "GPU 3: XID 79 (...)".
func (f Finding) String() string {
	switch {
	case f.GPU < 0:
		return f.Message
	case f.GI >= 0:
		return fmt.Sprintf("GPU %d instance %d: %s", f.GPU, f.GI, f.Message)
	default:
		return fmt.Sprintf("GPU %d: %s", f.GPU, f.Message)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
