package scenario

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Check judges a snapshot. The answers are one line for each expectation that does not hold, in the
// order in which the fields are declared; none means that all hold.
func (e *Expectations) Check(s *Snapshot) []string {
	var unmet []string
	add := func(line string) {
		if line != "" {
			unmet = append(unmet, line)
		}
	}
	for _, x := range e.Pods {
		add(x.check(s))
	}
	for _, x := range e.Nodes {
		add(x.check(s))
	}
	for _, x := range e.Instances {
		add(x.check(s))
	}
	for _, x := range e.Events {
		add(x.check(s))
	}
	for _, x := range e.Conditions {
		add(x.check(s))
	}
	for _, line := range e.checkTotals(s) {
		add(line)
	}
	return unmet
}

func (e *Expectations) checkTotals(s *Snapshot) []string {
	var lines []string
	if e.NodeClaims != nil {
		lines = append(lines, counted("NodeClaims", len(s.NodeClaims), *e.NodeClaims))
	}
	if e.Launches != nil {
		lines = append(lines, counted("launches", len(s.Cloud.Instances), *e.Launches))
	}
	if e.PricePerHour != nil {
		lines = append(lines, e.PricePerHour.check(s.Cloud.PricePerHour()))
	}
	if e.NoOrphans {
		lines = append(lines, none("orphans", s.Cloud.Orphans))
	}
	if e.NoDoubleLaunches {
		lines = append(lines, none("double launches", s.Cloud.DoubleLaunches))
	}
	if e.NoUnverifiedPods {
		lines = append(lines, none("pods on unverified GPUs", s.unverified()))
	}
	if e.NoEvictions != nil {
		lines = append(lines, none("evictions", e.NoEvictions.disrupted(s)))
	}
	return lines
}

func counted(what string, got int, want Count) string {
	if want.Fits(got) {
		return ""
	}
	return fmt.Sprintf("%s: %d, want %s", what, got, want)
}

// none names at most three of what should not be.
func none(what string, got []string) string {
	if len(got) == 0 {
		return ""
	}
	more := ""
	if len(got) > 3 {
		more = ", …"
	}
	return fmt.Sprintf("%s: %d, want none (%s%s)", what, len(got), strings.Join(got[:min(3, len(got))], ", "), more)
}

func (s *Snapshot) unverified() []string {
	var names []string
	for _, p := range s.Unverified {
		names = append(names, fmt.Sprintf("%s/%s on %s", p.Namespace, p.Name, p.Node))
	}
	return names
}

func (p PodSelection) selects(pod *Pod) bool {
	return fits(p.Namespace, pod.Namespace) && matches(p.Selector, pod.Labels)
}

func (p PodSelection) disrupted(s *Snapshot) []string {
	var names []string
	for i := range s.Disrupted {
		if pod := &s.Disrupted[i]; p.selects(pod) && !pod.LateTaint {
			names = append(names, fmt.Sprintf("%s/%s %s", pod.Namespace, pod.Name, pod.Disruption))
		}
	}
	return names
}

func (x PodExpectation) check(s *Snapshot) string {
	pods, allNodes := s.Pods, s.Nodes
	if x.Gone {
		pods, allNodes = slices.Concat(pods, s.GonePods), slices.Concat(s.GoneNodes, allNodes)
	}
	nodes := map[string]bool{}
	for _, n := range allNodes {
		nodes[n.Name] = matches(x.OnNodes, n.Labels)
	}
	got, waiting := 0, ""
	for i := range pods {
		pod := &pods[i]
		if !x.selects(pod) {
			continue
		}
		if waiting == "" {
			waiting = pod.Waiting
		}
		if x.Phase.Fits(pod.Phase) && (x.OnNodes == "" || nodes[pod.Node]) {
			got++
		}
	}
	line := counted(describe("pods", x.Selector, x.Phase.String(), x.OnNodes), got, x.Count)
	if line == "" {
		return x.checkStartup(s)
	}
	if waiting != "" {
		line += "; a pod waits: " + shorten(waiting, 160)
	}
	return line
}

func (x PodExpectation) checkStartup(s *Snapshot) string {
	if x.Startup == nil {
		return ""
	}
	median := x.startup(s)
	if median <= time.Duration(x.Startup.Median) {
		return ""
	}
	return fmt.Sprintf("%s: median startup %s, want at most %s", describe("pods", x.Selector), median.Round(time.Millisecond), x.Startup.Median)
}

// startup is the median startup of the selected pods that run or ran, or of the quickest of them.
func (x PodExpectation) startup(s *Snapshot) time.Duration {
	var all []time.Duration
	for _, pod := range slices.Concat(s.Pods, s.GonePods) {
		if x.selects(&pod) && pod.Startup > 0 {
			all = append(all, pod.Startup)
		}
	}
	slices.Sort(all)
	if n := x.Startup.Quickest; n > 0 && n < len(all) {
		all = all[:n]
	}
	if len(all) == 0 {
		return 0
	}
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

func (x NodeExpectation) check(s *Snapshot) string {
	got := 0
	for i := range s.Nodes {
		if x.selects(&s.Nodes[i]) {
			got++
		}
	}
	return counted(describe("nodes", x.Selector, x.CapacityType, x.InstanceType, x.Zone), got, x.Count)
}

// Labels that the checks read by name.
const (
	labelInstanceType = "node.kubernetes.io/instance-type"
	labelZone         = "topology.kubernetes.io/zone"
	labelCapacityType = "karpenter.sh/capacity-type"
	labelNodePool     = "karpenter.sh/nodepool"
)

func (x NodeExpectation) selects(n *Node) bool {
	_, managed := n.Labels[labelNodePool]
	if x.Managed != nil && *x.Managed != managed || x.Ready != nil && *x.Ready != n.Ready {
		return false
	}
	if !x.schedulable(n) {
		return false
	}
	for name, want := range x.Allocatable {
		if n.Allocatable[name] != want {
			return false
		}
	}
	return matches(x.Selector, n.Labels) &&
		fits(x.InstanceType, n.Labels[labelInstanceType]) &&
		fits(x.CapacityType, n.Labels[labelCapacityType]) &&
		fits(x.Zone, n.Labels[labelZone])
}

// schedulable compares cordon and taints.
func (x NodeExpectation) schedulable(n *Node) bool {
	if x.Cordoned != nil && *x.Cordoned != n.Cordoned {
		return false
	}
	return (x.Tainted == "" || slices.Contains(n.Taints, x.Tainted)) && !slices.Contains(n.Taints, x.Untainted)
}

func (x InstanceExpectation) check(s *Snapshot) string {
	got := 0
	for _, i := range s.Cloud.Instances {
		if i.End.IsZero() && i.Matches(x.Offering) {
			got++
		}
	}
	return counted(describe("instances", x.String()), got, x.Count)
}

func (p Price) check(got float64) string {
	high := math.Inf(1)
	if p.Max != nil {
		high = *p.Max
	}
	if got >= p.Min && got <= high {
		return ""
	}
	return fmt.Sprintf("price per hour: $%.3f, want $%.3f to $%.3f", got, p.Min, high)
}

func (x EventExpectation) check(s *Snapshot) string {
	message := regexp.MustCompile(x.Message) // compiled once before, by validate
	got := 0
	for _, e := range s.Events {
		if fits(x.Reason, e.Reason) && fits(x.Kind, e.Kind) && message.MatchString(e.Message) {
			got++
		}
	}
	want := AtLeast(1)
	if x.Count != nil {
		want = x.Count
	}
	return counted(describe("events", x.Kind, x.Reason, x.Message), got, *want)
}

func (c ConditionExpectation) check(s *Snapshot) string {
	conditions, ok := s.Conditions[c.Ref]
	if !ok {
		return fmt.Sprintf("%s does not exist; apply it, or correct its name", c.Ref)
	}
	for _, got := range conditions {
		if got.Type == c.Type {
			return c.judge(got)
		}
	}
	return fmt.Sprintf("%s has no condition %s, want %s", c.Ref, c.Type, c.Status)
}

func (c ConditionExpectation) judge(got Condition) string {
	if c.Status == got.Status && fits(c.Reason, got.Reason) && regexp.MustCompile(c.Message).MatchString(got.Message) {
		return ""
	}
	return fmt.Sprintf("%s: %s is %s (%s: %s), want %s %s %s",
		c.Ref, c.Type, got.Status, got.Reason, got.Message, c.Status, c.Reason, c.Message)
}

func matches(selector string, set map[string]string) bool {
	if selector == "" {
		return true
	}
	parsed, err := labels.Parse(selector)
	return err == nil && parsed.Matches(labels.Set(set))
}

func describe(what string, parts ...string) string {
	for _, p := range parts {
		if p != "" {
			what += " " + p
		}
	}
	return what
}

func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// refs are the objects whose conditions the expectations ask for.
func (e *Expectations) refs() []Ref {
	var refs []Ref
	for _, c := range e.Conditions {
		refs = append(refs, c.Ref)
	}
	return refs
}
