package health

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// DecodeKind says which demand a report failed.
type DecodeKind string

const (
	// TooLarge means more than MaxReportBytes.
	TooLarge DecodeKind = "TooLarge"
	// Syntax means not one JSON object of known fields, each at most once.
	Syntax DecodeKind = "Syntax"
	// UnknownVersion means well formed, of a version that this code does not read.
	UnknownVersion DecodeKind = "UnknownVersion"
	// OutOfBounds means a number, text or list outside its documented bounds.
	OutOfBounds DecodeKind = "OutOfBounds"
)

// DecodeError says why a report was rejected.
type DecodeError struct {
	Kind DecodeKind
	// Field is the JSON path of the field at fault; empty for the whole.
	Field  string
	Detail string
}

// Error implements error.
func (e *DecodeError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("gpu report rejected (%s), %s", e.Kind, e.Detail)
	}
	return fmt.Sprintf("gpu report rejected (%s), %s: %s", e.Kind, e.Field, e.Detail)
}

// IsDecodeError reports whether err is a rejection of a report, and which.
func IsDecodeError(err error) (*DecodeError, bool) {
	var d *DecodeError
	ok := errors.As(err, &d)
	return d, ok
}

func reject(kind DecodeKind, field, format string, args ...any) error {
	return &DecodeError{Kind: kind, Field: field, Detail: fmt.Sprintf(format, args...)}
}

// Decode reads a report that anybody may have written. It accepts exactly what
// Encode writes, in any order of fields and with any blanks between them, and
// rejects everything else with a *DecodeError: unknown, repeated or differently
// spelled fields, trailing data, numbers out of bounds, long or unprintable text.
// It never panics, and its work is linear in the input's length.
func Decode(data []byte) (Report, error) {
	if len(data) > MaxReportBytes {
		return Report{}, reject(TooLarge, "", "%d bytes are more than %d", len(data), MaxReportBytes)
	}
	if !utf8.Valid(data) {
		return Report{}, reject(Syntax, "", "not valid UTF-8")
	}
	if err := scan(data); err != nil {
		return Report{}, err
	}
	var version struct {
		V *json.Number `json:"v"`
	}
	if err := json.Unmarshal(data, &version); err != nil || version.V == nil {
		return Report{}, reject(Syntax, "v", "the version is missing or no number")
	}
	if version.V.String() != fmt.Sprint(ReportVersion) {
		return Report{}, reject(UnknownVersion, "v", "version %.20s is not %d", version.V.String(), ReportVersion)
	}
	var r Report
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return Report{}, reject(Syntax, "", "%s", clean(err.Error(), maxMessage))
	}
	if err := r.validate(); err != nil {
		return Report{}, err
	}
	return r, nil
}

// maxDepth is the depth of a report: object, list, object, list.
const maxDepth = 4

// frame is one open object or list of the scan.
type frame struct {
	object bool
	// key says that the next token of the object is a key.
	key  bool
	seen map[string]bool
}

// scan walks the tokens once and rejects what encoding/json would let pass: keys
// that are repeated or differ from the known ones in case only, trailing data and
// deep nesting. Keys of later versions are left to the decoder.
func scan(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var stack []frame
	for first := true; ; first = false {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) && !first && len(stack) == 0 {
			return nil
		}
		if err != nil {
			return reject(Syntax, "", "%s", clean(err.Error(), maxMessage))
		}
		if !first && len(stack) == 0 {
			return reject(Syntax, "", "data after the report")
		}
		if stack, err = step(stack, tok); err != nil {
			return err
		}
	}
}

// addKey rejects a key that an object has already, or that is not in lower case.
func (f *frame) addKey(key string) error {
	if folded := strings.ToLower(key); folded != key || f.seen[folded] {
		return reject(Syntax, clean(key, maxName), "the field is repeated or spelled in capitals")
	}
	f.seen[key] = true
	return nil
}

func step(stack []frame, tok json.Token) ([]frame, error) {
	if tok == json.Delim('}') || tok == json.Delim(']') {
		return stack[:len(stack)-1], nil
	}
	if n := len(stack); n > 0 && stack[n-1].object {
		top := &stack[n-1]
		top.key = !top.key
		if !top.key {
			return stack, top.addKey(fmt.Sprint(tok))
		}
	}
	delim, ok := tok.(json.Delim)
	if !ok && len(stack) > 0 {
		return stack, nil
	}
	if isReport := len(stack) > 0 || delim == '{'; !isReport || len(stack) >= maxDepth {
		return nil, reject(Syntax, "", "a report is an object of at most %d levels", maxDepth)
	}
	return append(stack, frame{object: delim == '{', key: true, seen: map[string]bool{}}), nil
}

// bounds gathers the first violation.
type bounds struct{ err error }

func (b *bounds) number(field string, n, high int64) {
	if b.err == nil && (n < 0 || n > high) {
		b.err = reject(OutOfBounds, field, "%d is not between 0 and %d", n, high)
	}
}

func (b *bounds) text(field, s string, limit int) {
	if b.err == nil && (len(s) > limit || clean(s, len(s)) != s) {
		b.err = reject(OutOfBounds, field, "text of %d bytes is longer than %d or has characters that are not plain ASCII", len(s), limit)
	}
}

func (b *bounds) that(ok bool, field, format string, args ...any) {
	if b.err == nil && !ok {
		b.err = reject(OutOfBounds, field, format, args...)
	}
}

func (r Report) validate() error {
	b := &bounds{}
	b.text("boot", r.BootID, maxName)
	b.text("driver", r.Driver, maxName)
	b.text("lib", r.Library, maxName)
	b.text("cuda", r.CUDA, maxName)
	b.that(r.State == Ready || r.State == Starting || r.State == Unhealthy, "state", "%q is no state", clean(string(r.State), maxName))
	b.that(r.Reason == ReasonVerified || reasonRank(r.Reason) >= 0, "reason", "%q is no reason", clean(string(r.Reason), maxName))
	b.that((r.State == Ready) == (r.Reason == ReasonVerified), "reason", "%q does not go with state %s", r.Reason, r.State)
	b.number("since", r.Since, maxUnixSeconds)
	b.number("more", int64(r.More), maxCount)
	b.number("known", int64(r.Known), maxGPUs)
	b.number("gpus", int64(len(r.GPUs)), maxGPUs)
	b.number("faults", int64(len(r.Findings)), maxFindings)
	b.number("skipped", int64(len(r.Skipped)), int64(len(checks)))
	for _, c := range r.Skipped {
		b.that(checkRank(c) >= 0, "skipped", "%q is no check", clean(string(c), maxName))
	}
	r.validateGPUs(b)
	for i, f := range r.Findings {
		f.validate(b, fmt.Sprintf("faults[%d]", i))
		b.that(r.State != Ready || f.Severity != Fatal, fmt.Sprintf("faults[%d].sev", i), "a ready node has no fatal fault")
	}
	return b.err
}

func (r Report) validateGPUs(b *bounds) {
	last := -1
	uuids := map[string]bool{}
	for i, g := range r.GPUs {
		field := fmt.Sprintf("gpus[%d]", i)
		b.that(g.Index > last && g.Index < maxGPUs, field+".i", "%d repeats, is out of order or not below %d", g.Index, maxGPUs)
		last = g.Index
		b.that(g.UUID == "" || !uuids[g.UUID], field+".uuid", "two GPUs have one UUID")
		uuids[g.UUID] = true
		b.text(field+".uuid", g.UUID, maxName)
		b.text(field+".product", g.Product, maxName)
		b.text(field+".cc", g.ComputeCapability, maxName)
		b.number(field+".mib", int64(g.MemoryMiB), maxMemoryMiB)
		b.number(field+".parts", int64(len(g.Partitions)), maxInstances)
		validatePartitions(b, field+".parts", g.Partitions)
	}
}

// validatePartitions rejects partitions that no memory could hold: two of them on
// one slice.
func validatePartitions(b *bounds, field string, parts []Partition) {
	var taken []MIGInstance
	for _, p := range parts {
		b.text(field, string(p), maxName)
		in, err := p.Parse()
		b.that(err == nil, field, "%v", err)
		if err != nil || in.Start < 0 {
			continue
		}
		clash := slices.ContainsFunc(taken, func(t MIGInstance) bool {
			return in.Start < t.Start+t.Size && t.Start < in.Start+in.Size
		})
		b.that(!clash, field, "partition %s overlaps another", clean(string(p), maxName))
		taken = append(taken, in)
	}
}

func (f ReportFinding) validate(b *bounds, field string) {
	b.that(checkRank(f.Check) >= 0, field+".check", "%q is no check", clean(string(f.Check), maxName))
	b.that(reasonRank(f.Reason) >= 0, field+".reason", "%q is no reason", clean(string(f.Reason), maxName))
	b.that(f.Severity == Fatal || f.Severity == Warning, field+".sev", "%q is no severity", clean(string(f.Severity), maxName))
	b.that(f.Action == "" || f.Action.rank() >= 0, field+".act", "%q is no action", clean(string(f.Action), maxName))
	if f.GPU != nil {
		b.number(field+".gpu", int64(*f.GPU), maxGPUs-1)
	}
	if f.GI != nil {
		b.number(field+".gi", int64(*f.GI), maxCount)
	}
	b.number(field+".xid", int64(f.XID), maxXIDCode)
	b.number(field+".n", int64(f.Count), maxCount)
	b.number(field+".since", f.Since, maxUnixSeconds)
	b.text(field+".msg", f.Message, maxMessage)
}
