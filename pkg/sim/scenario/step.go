package scenario

import (
	"fmt"
	"strings"
	"time"
)

// actions returns the names of the action fields that are set, in the order of their declaration.
func (st *Step) actions() []string {
	set := []struct {
		name string
		on   bool
	}{
		{"apply", st.Apply != nil}, {"delete", st.Delete != nil}, {"scale", st.Scale != nil},
		{"fail", st.Fail != nil}, {"heal", st.Heal != nil}, {"interrupt", st.Interrupt != nil},
		{"kill", st.Kill != nil}, {"reboot", st.Reboot != nil}, {"cordon", st.Cordon != ""}, {"nodeFault", st.NodeFault != nil}, {"healNode", st.HealNode != ""},
		{"killController", st.KillController != nil}, {"startController", st.StartController != nil},
		{"rollController", st.RollController != nil},
		{"wait", st.Wait != nil}, {"expect", st.Expect != nil},
	}
	names := []string{}
	for _, s := range set {
		if s.on {
			names = append(names, s.name)
		}
	}
	return names
}

// Action returns the name of what the step does: apply, expect, …
func (st *Step) Action() string { return st.actions()[0] }

// Title returns the step's name, or else a description of what it does.
func (st *Step) Title() string { //nolint:gocyclo // flat: a case for each action
	if st.Name != "" {
		return st.Name
	}
	switch {
	case st.Apply != nil && st.Apply.Path != "":
		return "apply " + st.Apply.Path
	case st.Delete != nil:
		return "delete " + st.Delete.String()
	case st.Scale != nil:
		return fmt.Sprintf("scale %s to %d", st.Scale.String(), st.Scale.Replicas)
	case st.Fail != nil:
		return st.Fail.String() + " fails"
	case st.Heal != nil:
		return st.Heal.String() + " works again"
	case st.Interrupt != nil:
		return "interrupt " + st.Interrupt.String()
	case st.Kill != nil:
		return "kill " + st.Kill.String()
	case st.Reboot != nil:
		return "reboot " + st.Reboot.String()
	case st.Cordon != "":
		return "cordon nodes " + st.Cordon
	case st.NodeFault != nil:
		return "node fault " + st.NodeFault.Kind
	case st.HealNode != "":
		return "heal node fault " + st.HealNode
	case st.Wait != nil:
		return "wait " + st.Wait.String()
	}
	return map[string]string{
		"apply": "apply", "killController": "SIGKILL to the controller", "startController": "controller starts", "rollController": "rolling update of the controller",
		"expect": "expectations",
	}[st.Action()]
}

// String returns Kind namespace/name.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// String names the offerings, with "any" for what is left open.
func (o Offering) String() string {
	parts := []string{}
	for _, p := range []string{o.CapacityType, o.InstanceType, o.Zone} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return "any"
	}
	return strings.Join(parts, " ")
}

// String names the failure.
func (f Failure) String() string {
	switch {
	case f.Capacity != nil:
		return "capacity of " + f.Capacity.String()
	case f.Quota != nil:
		return "quota of " + f.Quota.String()
	case f.Throttle != nil:
		return "API rate of " + f.Throttle.operation()
	case f.Launch != nil:
		return "launch by " + f.Launch.operation()
	}
	return "nothing"
}

// String names the instances.
func (t Targets) String() string {
	if t.Count == 0 {
		return "every instance of " + t.Offering.String()
	}
	return fmt.Sprintf("%d of %s", t.Count, t.Offering.String())
}

func (a APIFault) operation() string {
	if a.Operation == "" {
		return "CreateFleet"
	}
	return a.Operation
}

func (e *Expectations) within() time.Duration {
	if e.Within == 0 {
		return time.Minute
	}
	return time.Duration(e.Within)
}
