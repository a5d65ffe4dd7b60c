package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/labels"
)

// maxReplicas bounds the memory that a scenario takes.
const maxReplicas = 5

var nameFormat = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// Load reads and checks a scenario file. Errors about its content are ParseErrors where a line is
// known.
func Load(file string) (*Scenario, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading scenario, %w", err)
	}
	return Parse(file, data)
}

// Parse checks the text of a scenario. file is used for messages and to resolve manifest paths.
func Parse(file string, data []byte) (*Scenario, error) {
	s := &Scenario{}
	if err := decode(file, data, s); err != nil {
		return nil, err
	}
	s.file = file
	p := placer{file: file}
	if err := yaml.Unmarshal(data, &p.root); err != nil {
		return nil, fmt.Errorf("reading %s, %w", file, err)
	}
	s.setBase(filepath.Dir(file))
	if err := s.validate(p); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Scenario) setBase(dir string) {
	for i := range s.Manifests {
		s.Manifests[i].base = dir
	}
	for i := range s.Steps {
		if s.Steps[i].Apply != nil {
			s.Steps[i].Apply.base = dir
		}
	}
}

// Text returns the manifest's YAML.
func (m Manifest) Text() (string, error) {
	if m.Inline != "" {
		return m.Inline, nil
	}
	data, err := os.ReadFile(filepath.Join(m.base, m.Path))
	if err != nil {
		return "", fmt.Errorf("reading manifest, %w", err)
	}
	return string(data), nil
}

// placer finds the line of a path such as steps/3/expect in the document.
type placer struct {
	file string
	root yaml.Node
}

func (p placer) errorf(path, format string, args ...any) error {
	return &ParseError{File: p.file, Line: p.line(path), Message: path + ": " + fmt.Sprintf(format, args...)}
}

func (p placer) line(path string) int {
	n, line := p.root.Content[0], p.root.Content[0].Line
	for part := range strings.SplitSeq(path, "/") {
		next := child(n, part)
		if next == nil {
			return line
		}
		n, line = next, next.Line
	}
	return line
}

func child(n *yaml.Node, part string) *yaml.Node {
	if n.Kind == yaml.SequenceNode {
		var i int
		if _, err := fmt.Sscanf(part, "%d", &i); err == nil && i >= 1 && i <= len(n.Content) {
			return n.Content[i-1]
		}
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == part {
			return n.Content[i+1]
		}
	}
	return nil
}

func (s *Scenario) validate(p placer) error { //nolint:gocyclo // flat: a loop for each list
	if !nameFormat.MatchString(s.Name) {
		return p.errorf("name", "%q must be lower case letters, digits and dashes", s.Name)
	}
	if c := s.Settings.Controller; c != "" && c != ControllerOurs && c != ControllerStock {
		return p.errorf("settings/controller", "%q is neither %s nor %s", c, ControllerOurs, ControllerStock)
	}
	if n := s.Settings.Replicas; n < 0 || n > maxReplicas {
		return p.errorf("settings/replicas", "%d is not between 1 and %d", n, maxReplicas)
	}
	for i, f := range s.Settings.Node.Faults {
		if err := f.Validate(); err != nil {
			return p.errorf(fmt.Sprintf("settings/node/faults/%d", i+1), "%s", err)
		}
	}
	for i, l := range s.LocalNodes {
		if l.Name == "" || l.Like == "" {
			return p.errorf(fmt.Sprintf("localNodes/%d", i+1), "name and like are needed; like is the EC2 type with the same hardware")
		}
	}
	for i, m := range s.Manifests {
		if err := m.validate(); err != nil {
			return p.errorf(fmt.Sprintf("manifests/%d", i+1), "%s", err)
		}
	}
	return s.validateSteps(p)
}

func (m Manifest) validate() error {
	if (m.Path == "") == (m.Inline == "") {
		return fmt.Errorf("a manifest has either path or inline")
	}
	if m.Path == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(m.base, m.Path)); err != nil {
		return fmt.Errorf("no manifest at %q beside the scenario", m.Path)
	}
	return nil
}

func (s *Scenario) validateSteps(p placer) error {
	if len(s.Steps) == 0 {
		return p.errorf("steps", "a scenario needs at least one step")
	}
	seen := map[string]bool{}
	for i := range s.Steps {
		path := fmt.Sprintf("steps/%d", i+1)
		step := &s.Steps[i]
		actions := step.actions()
		if len(actions) != 1 {
			return p.errorf(path, "a step does exactly one thing, this one has %d: [%s]", len(actions), strings.Join(actions, ", "))
		}
		if err := step.validate(p, path+"/"+actions[0], seen); err != nil {
			return err
		}
		if step.Name != "" {
			seen[step.Name] = true
		}
	}
	return s.validateWarmHours(p, seen)
}

// validateWarmHours checks that the comparison names steps and measures that there are.
func (s *Scenario) validateWarmHours(p placer, steps map[string]bool) error {
	w := s.WarmHours
	if w == nil {
		return nil
	}
	measures := map[string]bool{}
	for i := range s.Steps {
		if e := s.Steps[i].Expect; e != nil && e.Measure != nil {
			measures[e.Measure.Name] = true
		}
	}
	for _, x := range []struct {
		key, name, what string
		known           map[string]bool
	}{{"from", w.From, "step", steps}, {"until", w.Until, "step", steps}, {"cold", w.Cold, "measure", measures}, {"warm", w.Warm, "measure", measures}} {
		if !x.known[x.name] {
			return p.errorf("warmHours/"+x.key, "no %s is named %q", x.what, x.name)
		}
	}
	return nil
}

func (st *Step) validate(p placer, path string, seen map[string]bool) error {
	var err error
	switch {
	case st.Apply != nil:
		err = st.Apply.validate()
	case st.Delete != nil:
		err = st.Delete.validate()
	case st.Scale != nil:
		err = st.Scale.validate()
	case st.Fail != nil:
		err = st.Fail.validate()
	case st.Heal != nil:
		err = st.Heal.validate()
	case st.Cordon != "":
		err = parsesAll(st.Cordon)
	case st.NodeFault != nil:
		err = st.NodeFault.Validate()
	case st.Expect != nil:
		return st.Expect.validate(p, path, seen)
	}
	if err != nil {
		return p.errorf(path, "%s", err)
	}
	return nil
}

func (r Ref) validate() error {
	if r.Kind == "" || r.Name == "" {
		return fmt.Errorf("kind and name are needed")
	}
	return nil
}

func (f Failure) validate() error {
	n := 0
	for _, set := range []bool{f.Capacity != nil, f.Quota != nil, f.Throttle != nil, f.Launch != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("exactly one of capacity, quota, throttle and launch is needed, %d are set", n)
	}
	return nil
}

func (e *Expectations) validate(p placer, path string, seen map[string]bool) error { //nolint:gocyclo // flat: a loop for each kind of expectation
	if e.empty() {
		return p.errorf(path, "nothing is expected; add for example pods, nodes or noOrphans")
	}
	if e.Measure != nil && e.Measure.Since != "" && !seen[e.Measure.Since] {
		return p.errorf(path+"/measure/since", "no earlier step is named %q", e.Measure.Since)
	}
	for i, x := range e.Pods {
		if err := parsesAll(x.Selector, x.OnNodes); err != nil {
			return p.errorf(fmt.Sprintf("%s/pods/%d", path, i+1), "%s", err)
		}
		if x.Startup != nil && (x.Startup.Name == "" || x.Startup.Median <= 0 || x.Startup.Quickest < 0) {
			return p.errorf(fmt.Sprintf("%s/pods/%d/startup", path, i+1), "name and median are needed, and quickest may not be negative")
		}
	}
	for i, x := range e.Nodes {
		if err := parsesAll(x.Selector); err != nil {
			return p.errorf(fmt.Sprintf("%s/nodes/%d", path, i+1), "%s", err)
		}
	}
	for i, x := range e.Events {
		if _, err := regexp.Compile(x.Message); err != nil {
			return p.errorf(fmt.Sprintf("%s/events/%d", path, i+1), "message is no regular expression, %s", err)
		}
	}
	for i, x := range e.Conditions {
		if err := x.validate(); err != nil {
			return p.errorf(fmt.Sprintf("%s/conditions/%d", path, i+1), "%s", err)
		}
	}
	return nil
}

func (c ConditionExpectation) validate() error {
	if err := c.Ref.validate(); err != nil {
		return err
	}
	if c.Type == "" || c.Status == "" {
		return fmt.Errorf("type and status are needed")
	}
	if _, err := regexp.Compile(c.Message); err != nil {
		return fmt.Errorf("message is no regular expression, %w", err)
	}
	return nil
}

func (e *Expectations) empty() bool {
	return len(e.Pods)+len(e.Nodes)+len(e.Instances)+len(e.Events)+len(e.Conditions) == 0 &&
		e.NodeClaims == nil && e.Launches == nil && e.PricePerHour == nil &&
		!e.NoOrphans && !e.NoDoubleLaunches && !e.NoUnverifiedPods && e.NoEvictions == nil
}

func parsesAll(selectors ...string) error {
	for _, s := range selectors {
		if _, err := labels.Parse(s); err != nil {
			return fmt.Errorf("%q is no label selector, %w", s, err)
		}
	}
	return nil
}
