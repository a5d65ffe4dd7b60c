package scenario

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const minimal = `name: small
steps:
  - wait: 1s
`

func TestParseErrorsNameFileLineAndWayOut(t *testing.T) {
	for name, tc := range map[string]struct {
		text        string
		wantLine    int
		wantMessage string
	}{
		"an unknown field at the top": {
			text: minimal + "color: red\n", wantLine: 4, wantMessage: `unknown field "color" in a scenario; known fields: description,`,
		},
		"an unknown field deep down": {
			text:     "name: x\nsteps:\n  - expect:\n      pods:\n        - {selctor: a=b, count: 3}\n",
			wantLine: 5, wantMessage: `unknown field "selctor" in pods; known fields: count, gone, namespace, onNodes, phase, selector, startup`,
		},
		"an unknown field of an inlined struct": {
			text:     "name: x\nsteps:\n  - scale: {kind: Job, name: a, replica: 3}\n",
			wantLine: 3, wantMessage: `unknown field "replica" in scale; known fields: apiVersion, kind, name, namespace, replicas`,
		},
		"a step with two actions": {
			text: "name: x\nsteps:\n  - wait: 1s\n  - wait: 1s\n    healNode: a\n", wantLine: 4, wantMessage: "exactly one thing, this one has 2: [healNode, wait]",
		},
		"a step with none": {
			text: "name: x\nsteps:\n  - name: nothing\n", wantLine: 3, wantMessage: "exactly one thing, this one has 0",
		},
		"a mapping where a list belongs": {
			text: "name: x\nsteps:\n  wait: 1s\n", wantLine: 3, wantMessage: "steps must be a list",
		},
		"a scalar where a mapping belongs": {
			text: "name: x\nsteps:\n  - kill: all\n", wantLine: 3, wantMessage: "kill must be a mapping with keys out of: capacityType,",
		},
		"a count that is none": {
			text: "name: x\nsteps:\n  - expect:\n      nodeClaims: many\n", wantLine: 4, wantMessage: `"many" is not a count; write 80`,
		},
		"a range upside down": {
			text: "name: x\nsteps:\n  - expect:\n      nodeClaims: 5..3\n", wantLine: 4, wantMessage: `"5..3" is not a count`,
		},
		"a negative duration": {
			text: "name: x\nsteps:\n  - wait: -1s\n", wantLine: 3, wantMessage: `"-1s" is not a duration`,
		},
		"a phase that does not exist": {
			text:     "name: x\nsteps:\n  - expect:\n      pods: [{phase: [Running, Done], count: 1}]\n",
			wantLine: 4, wantMessage: `"Done" is no pod phase`,
		},
		"an expectation of nothing": {
			text: "name: x\nsteps:\n  - expect: {within: 3s}\n", wantLine: 3, wantMessage: "steps/1/expect: nothing is expected",
		},
		"a measure since a step that comes later": {
			text:     "name: x\nsteps:\n  - expect:\n      nodeClaims: 0\n      measure:\n        name: t\n        since: later\n  - name: later\n    wait: 1s\n",
			wantLine: 7, wantMessage: `no earlier step is named "later"`,
		},
		"more replicas than a machine takes": {
			text: minimal + "settings: {replicas: 6}\n", wantLine: 4, wantMessage: "settings/replicas: 6 is not between 1 and 5",
		},
		"a startup without a name": {
			text: "name: x\nsteps:\n  - expect:\n      pods: [{count: 1, startup: {median: 2s}}]\n", wantLine: 4, wantMessage: "name and median are needed",
		},
		"warm hours of a measure that is not there": {
			text:     "name: x\nsteps:\n  - name: a\n    expect: {nodeClaims: 0, measure: {name: m}}\nwarmHours: {from: a, until: a, cold: m, warm: w}\n",
			wantLine: 5, wantMessage: `no measure is named "w"`,
		},
		"warm hours from a step that is not there": {
			text: minimal + "warmHours: {from: a}\n", wantLine: 4, wantMessage: `no step is named "a"`,
		},
		"a selector that does not parse": {
			text: "name: x\nsteps:\n  - expect:\n      pods:\n        - {selector: 'a in', count: 1}\n", wantLine: 5, wantMessage: `"a in" is no label selector`,
		},
		"a regular expression that does not compile": {
			text: "name: x\nsteps:\n  - expect:\n      events: [{message: '('}]\n", wantLine: 4, wantMessage: "message is no regular expression",
		},
		"a manifest that is not there": {
			text: minimal + "manifests:\n  - path: nowhere.yaml\n", wantLine: 5, wantMessage: `no manifest at "nowhere.yaml"`,
		},
		"a manifest with path and text": {
			text: minimal + "manifests:\n  - {path: a, inline: b}\n", wantLine: 5, wantMessage: "either path or inline",
		},
		"a failure of two kinds": {
			text: "name: x\nsteps:\n  - fail: {capacity: {}, throttle: {}}\n", wantLine: 3, wantMessage: "exactly one of capacity, quota, throttle and launch is needed, 2 are set",
		},
		"a node fault of an unknown kind": {
			text: "name: x\nsteps:\n  - nodeFault: {kind: driver-slow}\n", wantLine: 3, wantMessage: `kind "driver-slow" is no node fault; known: driver-late,`,
		},
		"a controller that does not exist": {
			text: minimal + "settings:\n  controller: mine\n", wantLine: 5, wantMessage: `"mine" is neither ours nor stock`,
		},
		"a name that cannot be a directory": {
			text: "name: A B\nsteps:\n  - wait: 1s\n", wantLine: 1, wantMessage: `"A B" must be lower case letters`,
		},
		"no steps": {
			text: "name: x\n", wantLine: 1, wantMessage: "at least one step",
		},
		"an empty file": {
			text: "", wantLine: 1, wantMessage: "the file is empty",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("dir/x.yaml", []byte(tc.text))
			var parse *ParseError
			if !errors.As(err, &parse) {
				t.Fatalf("got %v, want a ParseError", err)
			}
			if parse.File != "dir/x.yaml" || parse.Line != tc.wantLine || !strings.Contains(parse.Error(), tc.wantMessage) {
				t.Errorf("got %v, want line %d and %q", err, tc.wantLine, tc.wantMessage)
			}
		})
	}
}

func TestParseReadsWhatIsWritten(t *testing.T) {
	s, err := Parse("x.yaml", []byte(`name: small
settings: {boot: 2s..5s, node: {driver: {median: 40s, p95: 90s}}}
steps:
  - name: begin
    scale: {kind: Deployment, name: web, replicas: 3}
  - expect:
      within: 2m
      pods: [{selector: app=web, phase: [Running, Succeeded], count: ">=2"}]
      pricePerHour: {max: 1.5}
      launches: 17..25
`))
	if err != nil {
		t.Fatal(err)
	}
	most := 1.5
	want := []Step{
		{Name: "begin", Scale: &Scale{Ref: Ref{Kind: "Deployment", Name: "web"}, Replicas: 3}},
		{Expect: &Expectations{
			Within:       Duration(2 * time.Minute),
			Pods:         []PodExpectation{{PodSelection: PodSelection{Selector: "app=web"}, Phase: Phases{"Running", "Succeeded"}, Count: *AtLeast(2)}},
			PricePerHour: &Price{Max: &most},
			Launches:     &Count{17, 25},
		}},
	}
	if diff := cmp.Diff(want, s.Steps); diff != "" {
		t.Error(diff)
	}
	if s.Settings.Boot.Max != 5*time.Second || s.Settings.Node.Driver.Median != 40*time.Second {
		t.Errorf("delays: got %v and %v", s.Settings.Boot, s.Settings.Node.Driver)
	}
}

func TestCountIsReadAsItIsPrinted(t *testing.T) {
	for _, text := range []string{"0", "80", ">=1", "<=5", "17..25"} {
		c, err := parseCount(text)
		if err != nil {
			t.Fatal(err)
		}
		if c.String() != text {
			t.Errorf("%q reads as %v", text, c)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("name: x\nsteps: [{expect: {pods: [{count: 1}]}}]\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("name: &n x\nsteps: *n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("x.yaml", data)
		if err == nil && (s.Name == "" || len(s.Steps) == 0) {
			t.Errorf("accepted without name or steps: %q", data)
		}
	})
}
