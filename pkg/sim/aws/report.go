package aws

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Existing is what the cluster knows, for telling orphans. A nil set is unknown.
type Existing struct {
	// NodeClaims are names, ProviderIDs are those of NodeClaims or Nodes.
	NodeClaims  []string `json:"nodeClaims,omitempty"`
	ProviderIDs []string `json:"providerIDs,omitempty"`
}

// InstanceReport is one instance of a Report.
type InstanceReport struct {
	ID            string     `json:"id"`
	NodeClaim     string     `json:"nodeClaim,omitempty"`
	NodePool      string     `json:"nodePool,omitempty"`
	Node          string     `json:"node"`
	Type          string     `json:"type"`
	Zone          string     `json:"zone"`
	CapacityType  string     `json:"capacityType"`
	ReservationID string     `json:"reservationID,omitempty"`
	State         string     `json:"state"`
	Reason        string     `json:"reason,omitempty"`
	LaunchedAt    time.Time  `json:"launchedAt"`
	BootedAt      *time.Time `json:"bootedAt,omitempty"`
	WarnedAt      *time.Time `json:"warnedAt,omitempty"`
	FailedAt      *time.Time `json:"failedAt,omitempty"`
	ShutdownAt    *time.Time `json:"shutdownAt,omitempty"`
	TerminatedAt  *time.Time `json:"terminatedAt,omitempty"`
	PricePerHour  float64    `json:"pricePerHour"`
	Cost          float64    `json:"cost"`
}

// DoubleLaunch is a NodeClaim for which more than one instance was ever launched.
type DoubleLaunch struct {
	NodeClaim string   `json:"nodeClaim"`
	Instances []string `json:"instances"`
}

// Report is what happened in the account since it was made.
type Report struct {
	StartedAt  time.Time `json:"startedAt"`
	ReportedAt time.Time `json:"reportedAt"`

	Launched    int `json:"launched"`
	Live        int `json:"live"` // pending or running
	Terminated  int `json:"terminated"`
	Interrupted int `json:"interrupted"` // warned spot instances
	Failed      int `json:"failed"`      // machines that died and were not revived

	// PricePerHour is of the live instances, Cost of all; both in USD.
	PricePerHour float64 `json:"pricePerHour"`
	Cost         float64 `json:"cost"`
	// PeakLive is the largest number of instances that were live at once.
	PeakLive int `json:"peakLive"`

	Instances []InstanceReport `json:"instances"`
	// Orphans are live instances that nothing in Existing owns.
	Orphans []string `json:"orphans"`
	// DoubleLaunches go by the tag that Karpenter sets once a NodeClaim has its instance.
	DoubleLaunches []DoubleLaunch `json:"doubleLaunches"`
	// Unclaimed ended without that tag: launched for nobody, or for a NodeClaim that
	// was deleted before it could be tagged.
	Unclaimed []string `json:"unclaimed"`

	// Calls by operation, Errors by code of whole calls, LaunchErrors by code of the
	// pools that fleets could not use, Unknown by operation that is not simulated.
	Calls        map[string]int `json:"calls"`
	Errors       map[string]int `json:"errors"`
	LaunchErrors map[string]int `json:"launchErrors"`
	Unknown      map[string]int `json:"unknown"`
}

// Report sums up the account. Orphans are told only where existing is not nil.
func (s *Server) Report(existing *Existing) Report {
	instances := s.Instances()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Clock.Now()
	out := Report{
		StartedAt: s.st.StartedAt, ReportedAt: now, Launched: len(instances), PeakLive: peak(instances),
		Instances: []InstanceReport{}, Orphans: []string{}, DoubleLaunches: []DoubleLaunch{}, Unclaimed: []string{},
		Calls: maps.Clone(s.st.Calls), Errors: maps.Clone(s.st.Errors),
		LaunchErrors: maps.Clone(s.st.LaunchErrors), Unknown: maps.Clone(s.st.Unknown),
	}
	claims := map[string][]string{}
	for _, i := range instances {
		out.add(&i, now)
		if i.live() && existing.lacks(&i) {
			out.Orphans = append(out.Orphans, i.ID)
		}
		if claim := i.NodeClaim(); claim != "" {
			claims[claim] = append(claims[claim], i.ID)
		} else if !i.live() {
			out.Unclaimed = append(out.Unclaimed, i.ID)
		}
	}
	for _, claim := range sortedKeys(claims) {
		if len(claims[claim]) > 1 {
			out.DoubleLaunches = append(out.DoubleLaunches, DoubleLaunch{NodeClaim: claim, Instances: claims[claim]})
		}
	}
	return out
}

func (r *Report) add(i *Instance, now time.Time) {
	r.Instances = append(r.Instances, InstanceReport{
		ID: i.ID, NodeClaim: i.NodeClaim(), NodePool: i.Tags["karpenter.sh/nodepool"], Node: i.PrivateDNS,
		Type: i.Type, Zone: i.Zone, CapacityType: i.CapacityType, ReservationID: i.ReservationID, State: i.State, Reason: i.Reason,
		LaunchedAt: i.LaunchedAt, BootedAt: i.BootedAt, WarnedAt: i.WarnedAt, FailedAt: i.FailedAt,
		ShutdownAt: i.ShutdownAt, TerminatedAt: i.TerminatedAt, PricePerHour: i.PricePerHour, Cost: i.Cost(now),
	})
	r.Cost += i.Cost(now)
	if i.live() {
		r.Live++
		r.PricePerHour += i.PricePerHour
	}
	if i.State == Terminated {
		r.Terminated++
	}
	if i.WarnedAt != nil {
		r.Interrupted++
	}
	if i.FailedAt != nil {
		r.Failed++
	}
}

// lacks tells whether the cluster does not know a live instance.
func (e *Existing) lacks(i *Instance) bool {
	if e == nil {
		return false
	}
	return !slices.Contains(e.ProviderIDs, i.ProviderID()) && (i.NodeClaim() == "" || !slices.Contains(e.NodeClaims, i.NodeClaim()))
}

// peak is the largest number of instances between launch and shutdown at one time.
func peak(instances []Instance) int {
	type step struct {
		at    time.Time
		delta int
	}
	var steps []step
	for _, i := range instances {
		steps = append(steps, step{i.LaunchedAt, 1})
		if i.ShutdownAt != nil {
			steps = append(steps, step{*i.ShutdownAt, -1})
		}
	}
	// An end and a start at the same moment do not overlap.
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.delta, b.delta)) })
	live, highest := 0, 0
	for _, st := range steps {
		live += st.delta
		highest = max(highest, live)
	}
	return highest
}
