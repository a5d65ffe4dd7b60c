package scenario

import "time"

// Result is what a play came to. Times are seconds since the first step began.
type Result struct {
	Scenario   string       `json:"scenario"`
	Controller string       `json:"controller"`
	Passed     bool         `json:"passed"`
	Failure    string       `json:"failure,omitempty"`
	Seconds    float64      `json:"seconds"`
	Steps      []StepResult `json:"steps"`
	Measures   []Figure     `json:"measures,omitempty"`
	Cost       Cost         `json:"cost"`
	// LateTaints counts pods that the taint manager ended for a taint that had gone, see Pod.
	LateTaints int `json:"lateTaints,omitempty"`
	// WarmHours is what holding capacity ready cost and saved.
	WarmHours *WarmHoursCost `json:"warmHours,omitempty"`
	// PeakFleet is the owned fleet that the scenario states for comparison.
	PeakFleet *FleetCost `json:"peakFleet,omitempty"`
	// UpSeconds is how long the sandbox took to come up, and LogDir where its logs are kept.
	// UsedRules are the grants of the charts that controller and agents needed. The engine leaves
	// these to its caller.
	UpSeconds float64  `json:"upSeconds,omitempty"`
	LogDir    string   `json:"logDir,omitempty"`
	UsedRules []string `json:"usedRules,omitempty"`
}

// Fail makes a play that its steps passed, or that has failed already, fail for a further reason.
func (r *Result) Fail(reason string) {
	if r.Failure != "" {
		reason = r.Failure + "; " + reason
	}
	r.Passed, r.Failure = false, reason
}

// StepResult is one line of the timeline.
type StepResult struct {
	Action  string  `json:"action"`
	Title   string  `json:"title"`
	Start   float64 `json:"start"`
	Seconds float64 `json:"seconds"`
	Passed  bool    `json:"passed"`
	// Note is what an action reported, and Unmet what an expectation still lacked at its deadline.
	Note  string   `json:"note,omitempty"`
	Unmet []string `json:"unmet,omitempty"`
}

// Figure is a measured time.
type Figure struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// FleetCost is the price of owned hardware, which runs whether it is used or not.
type FleetCost struct {
	PeakFleet
	PricePerHour float64 `json:"pricePerHour"`
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond)) / float64(time.Second)
}
