package health_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

func reportOf(s Sample) Report {
	v, m := Judge(s, Policy{}, Memory{}, start)
	return NewReport(s, v, m)
}

func encode(t testing.TB, r Report) []byte {
	t.Helper()
	data, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestReportKeepsItsFormat(t *testing.T) {
	s := partitionedSample(1)
	s.GPUs[0].MIG.Instances = s.GPUs[0].MIG.Instances[:2]
	s.GPUs[0].MIG.Instances[1].Start = -1
	s.XIDs = []XIDEvent{{Code: 95, GPU: 0, GI: 7, At: start}}
	s.Probes = []Probe{{CheckFabric, 0, Unsupported, ""}}
	want := `{"v":1,"boot":"11111111-2222-3333-4444-555555555555","state":"Unhealthy","reason":"XIDNeedsReboot","since":1767323045,` +
		`"driver":"550.54.15","lib":"12.550.54.15","cuda":"12.4",` +
		`"gpus":[{"i":0,"uuid":"GPU-00000000-0000-0000-0000-000000000000","product":"NVIDIA H100 80GB HBM3","mib":81559,"cc":"9.0","mig":true,"parts":["1g.10gb@0+1","1g.10gb@?"]}],` +
		`"faults":[{"check":"xid","reason":"XIDNeedsReboot","sev":"Fatal","act":"Reboot","gpu":0,"gi":7,"xid":95,"n":1,"since":1767323045,"msg":"XID 95 (Uncontained memory error)"}],` +
		`"skipped":["fabric"]}`
	if diff := cmp.Diff(want, string(encode(t, reportOf(s)))); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestReportOfEightGPUsWithSevenInstancesIsSmall(t *testing.T) {
	data := encode(t, reportOf(partitionedSample(8)))
	t.Logf("%d bytes", len(data))
	if len(data) >= 4<<10 {
		t.Errorf("%d bytes, want fewer than 4 KiB", len(data))
	}
	back, err := Decode(data)
	if diff := cmp.Diff(reportOf(partitionedSample(8)), back); err != nil || diff != "" {
		t.Errorf("%v (-sent +received):\n%s", err, diff)
	}
}

func TestReportStaysWithinItsBoundWhateverTheDriverSays(t *testing.T) {
	s := partitionedSample(16)
	for i := range s.GPUs {
		s.GPUs[i].Identity.Product = strings.Repeat("\"\\<\u2028x", 60)
		for c := range 40 {
			s.XIDs = append(s.XIDs, xid(1000+c, i, start))
		}
		s.Probes = append(s.Probes, Probe{CheckECC, i, Errored, strings.Repeat("\x00\xff", 300)})
	}
	r := reportOf(s)
	data := encode(t, r)
	if len(data) > MaxReportBytes {
		t.Errorf("%d bytes", len(data))
	}
	back, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(back.GPUs) != 16 || len(back.Findings)+back.More != len(r.Findings)+r.More {
		t.Errorf("%d GPUs, %d findings and %d more; want 16, and %d together", len(back.GPUs), len(back.Findings), back.More, len(r.Findings)+r.More)
	}
	huge := partitionedSample(64)
	for i := range huge.GPUs {
		huge.GPUs[i].Identity.Product = strings.Repeat("x", 96)
		huge.GPUs[i].Identity.UUID = fmt.Sprintf("%096d", i)
	}
	if _, err := Encode(reportOf(huge)); err == nil {
		t.Error("facts longer than the bound were encoded")
	} else if d, ok := IsDecodeError(err); !ok || d.Kind != TooLarge {
		t.Errorf("error %v", err)
	}
}

func TestDecodeRejects(t *testing.T) {
	valid := string(encode(t, reportOf(partitionedSample(2))))
	swap := func(old, new string) string {
		if !strings.Contains(valid, old) {
			t.Fatalf("%q is not in the report", old)
		}
		return strings.Replace(valid, old, new, 1)
	}
	for name, tc := range map[string]struct {
		data  string
		kind  DecodeKind
		field string
	}{
		"nothing":                         {"", Syntax, ""},
		"blanks":                          {"   ", Syntax, ""},
		"a list":                          {"[]", Syntax, ""},
		"null":                            {"null", Syntax, ""},
		"half a report":                   {valid[:len(valid)/2], Syntax, ""},
		"two reports":                     {valid + valid, Syntax, ""},
		"a trailing brace":                {valid + "}", Syntax, ""},
		"not UTF-8":                       {swap("NVIDIA", "\xff"), Syntax, ""},
		"no version":                      {swap(`"v":1,`, ""), Syntax, "v"},
		"a version of text":               {swap(`"v":1`, `"v":"one"`), Syntax, "v"},
		"a later version":                 {swap(`"v":1`, `"v":2,"new":[1]`), UnknownVersion, "v"},
		"a version with a fraction":       {swap(`"v":1`, `"v":1.0`), UnknownVersion, "v"},
		"an enormous version":             {swap(`"v":1`, `"v":1e999`), UnknownVersion, "v"},
		"an unknown field":                {swap(`"v":1`, `"v":1,"extra":0`), Syntax, ""},
		"a repeated field":                {swap(`"v":1`, `"v":1,"state":"Ready"`), Syntax, "state"},
		"a repeated field within a GPU":   {swap(`"i":0`, `"i":0,"i":1`), Syntax, "i"},
		"a field in capitals":             {swap(`"boot"`, `"BOOT"`), Syntax, "BOOT"},
		"NaN":                             {swap(`"mib":81559`, `"mib":NaN`), Syntax, ""},
		"infinity":                        {swap(`"mib":81559`, `"mib":1e999`), Syntax, ""},
		"a fraction":                      {swap(`"mib":81559`, `"mib":0.5`), Syntax, ""},
		"an overflow":                     {swap(`"mib":81559`, `"mib":92233720368547758070`), Syntax, ""},
		"negative memory":                 {swap(`"mib":81559`, `"mib":-1`), OutOfBounds, "gpus[0].mib"},
		"too much memory":                 {swap(`"mib":81559`, `"mib":9000000000`), OutOfBounds, "gpus[0].mib"},
		"a repeated index":                {swap(`"i":1`, `"i":0`), OutOfBounds, "gpus[1].i"},
		"a negative index":                {swap(`"i":0`, `"i":-1`), OutOfBounds, "gpus[0].i"},
		"an index out of range":           {swap(`"i":1`, `"i":64`), OutOfBounds, "gpus[1].i"},
		"a repeated UUID":                 {swap("GPU-00000001", "GPU-00000000"), OutOfBounds, "gpus[1].uuid"},
		"a long product":                  {swap("NVIDIA H100", strings.Repeat("N", 100)), OutOfBounds, "gpus[0].product"},
		"a line break in a product":       {swap("NVIDIA H100", `NVIDIA\nH100`), OutOfBounds, "gpus[0].product"},
		"an unknown state":                {swap(`"state":"Ready"`, `"state":"Perfect"`), OutOfBounds, "state"},
		"an unknown reason":               {swap(`"reason":"Verified"`, `"reason":"Fine"`), OutOfBounds, "reason"},
		"ready for a reason":              {swap(`"reason":"Verified"`, `"reason":"GPULost"`), OutOfBounds, "reason"},
		"a time out of range":             {swap(`"since":1767323045`, `"since":-5`), OutOfBounds, "since"},
		"overlapping partitions":          {swap("1g.10gb@1+1", "1g.10gb@0+1"), OutOfBounds, "gpus[0].parts"},
		"a partition without place":       {swap("1g.10gb@1+1", "1g.10gb"), OutOfBounds, "gpus[0].parts"},
		"a partition of size zero":        {swap("1g.10gb@1+1", "1g.10gb@1+0"), OutOfBounds, "gpus[0].parts"},
		"a ready node with a fatal fault": {swap(`"v":1`, `"v":1,"faults":[{"check":"ecc","reason":"ECCUncorrectable","sev":"Fatal"}]`), OutOfBounds, "faults[0].sev"},
		"an unknown check":                {swap(`"v":1`, `"v":1,"skipped":["all"]`), OutOfBounds, "skipped"},
		"deep nesting":                    {swap(`"v":1`, `"v":1,"gpus":[[[[[[]]]]]]`), Syntax, ""},
		"very deep nesting":               {strings.Repeat("[", MaxReportBytes), Syntax, ""},
		"many GPUs":                       {`{"v":1,"boot":"b","state":"Ready","reason":"Verified","since":1,"gpus":[` + strings.TrimSuffix(strings.Repeat("{},", 65), ",") + "]}", OutOfBounds, "gpus"},
		"too large":                       {valid + strings.Repeat(" ", MaxReportBytes), TooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(tc.data))
			d, ok := IsDecodeError(err)
			if !ok || d.Kind != tc.kind || d.Field != tc.field {
				t.Errorf("error %v, want kind %s of field %q", err, tc.kind, tc.field)
			}
		})
	}
}

// TestTenThousandHostileReports mutates valid reports at random and demands that
// each is rejected with a typed error or is within the bounds of a report.
func TestTenThousandHostileReports(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	seeds := [][]byte{encode(t, reportOf(partitionedSample(8))), encode(t, reportOf(sample(1)))}
	bad := sample(3)
	bad.GPUs[1].Lost = true
	bad.XIDs = []XIDEvent{xid(79, 1, start)}
	seeds = append(seeds, encode(t, reportOf(bad)))
	tokens := []string{"null", "1e999", "-1", "9223372036854775807", "[", "{", `"`, "\x00", `"v":1,`, "NaN", "true", `\u0000`, "}}}}", `"gpus":`}
	accepted := 0
	for range 10_000 {
		data := bytes.Clone(seeds[rng.IntN(len(seeds))])
		for range 1 + rng.IntN(4) {
			at := rng.IntN(len(data))
			switch rng.IntN(4) {
			case 0:
				data[at] = byte(rng.IntN(256))
			case 1:
				data = append(data[:at:at], data[min(len(data), at+rng.IntN(40)):]...)
			case 2:
				tok := tokens[rng.IntN(len(tokens))]
				data = append(data[:at:at], append([]byte(tok), data[at:]...)...)
			default:
				from := rng.IntN(len(data))
				data = append(data[:at:at], append(bytes.Clone(data[from:min(len(data), from+200)]), data[at:]...)...)
			}
			if len(data) == 0 {
				data = []byte("{")
			}
		}
		if checkDecoded(t, data) {
			accepted++
		}
	}
	t.Logf("%d of 10000 were still valid", accepted)
}

// checkDecoded demands a typed error, or a report that survives a round trip and
// does no harm to Compare.
func checkDecoded(t *testing.T, data []byte) bool {
	t.Helper()
	r, err := Decode(data)
	if err != nil {
		if _, ok := IsDecodeError(err); !ok {
			t.Fatalf("untyped error %v of %q", err, data)
		}
		return false
	}
	again, err := Encode(r)
	if err != nil {
		t.Fatalf("accepted but not encoded, %v: %q", err, data)
	}
	back, err := Decode(again)
	if err != nil {
		t.Fatalf("encoded but not accepted, %v: %q", err, again)
	}
	normal, _ := json.Marshal(r)
	if len(normal) <= MaxReportBytes && !cmp.Equal(normalized(r), normalized(back)) {
		t.Fatalf("round trip changed the report:\n%s", cmp.Diff(normalized(r), normalized(back)))
	}
	Compare(r, Expectation{GPUs: 8, Partitions: []map[string]int{{"1g.10gb": 7}}})
	r.Memory(start)
	return true
}

// normalized lets empty and absent lists be the same, as they are in JSON.
func normalized(r Report) string { return fmt.Sprintf("%+v", string(must(json.Marshal(r)))) }

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"v":1}`))
	f.Add(must(Encode(reportOf(partitionedSample(2)))))
	bad := sample(2)
	bad.GPUs[1].Lost = true
	f.Add(must(Encode(reportOf(bad))))
	f.Fuzz(func(t *testing.T, data []byte) { checkDecoded(t, data) })
}

func BenchmarkDecode(b *testing.B) {
	data := encode(b, reportOf(partitionedSample(8)))
	b.Run("gpus=8/instances=56", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
