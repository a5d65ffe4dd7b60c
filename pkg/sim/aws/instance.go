package aws

import (
	"time"
)

// Capacity types, by Karpenter's names.
const (
	OnDemand = "on-demand"
	Spot     = "spot"
	Reserved = "reserved"
)

// States of an instance, by EC2's names.
const (
	Pending      = "pending"
	Running      = "running"
	ShuttingDown = "shutting-down"
	Terminated   = "terminated"
)

// Reasons for which an instance ends or ended, by EC2's state reason codes.
const (
	ReasonUser         = "Client.UserInitiatedShutdown"
	ReasonInterruption = "Server.SpotInstanceTermination"
)

// nodeClaimTag is the tag that Karpenter puts on an instance once a NodeClaim owns it.
const nodeClaimTag = "karpenter.sh/nodeclaim"

// Instance is a simulated machine. Times are of the server's clock; a nil time has
// not come and is not planned.
type Instance struct {
	ID            string            `json:"id"`
	Type          string            `json:"type"`
	Zone          string            `json:"zone"`
	ZoneID        string            `json:"zoneID"`
	Region        string            `json:"region"`
	CapacityType  string            `json:"capacityType"`
	ReservationID string            `json:"reservationID,omitempty"`
	Preference    string            `json:"preference,omitempty"` // of capacity reservations
	Tenancy       string            `json:"tenancy"`
	SubnetID      string            `json:"subnetID"`
	GroupIDs      []string          `json:"groupIDs,omitempty"`
	PrivateIP     string            `json:"privateIP"`
	PrivateDNS    string            `json:"privateDNS"`
	ImageID       string            `json:"imageID"`
	FleetID       string            `json:"fleetID"`
	TemplateID    string            `json:"templateID"`
	Tags          map[string]string `json:"tags"`
	EFAs          int               `json:"efas,omitempty"`
	PricePerHour  float64           `json:"pricePerHour"`

	State         string     `json:"state"`
	Reason        string     `json:"reason,omitempty"`
	LaunchedAt    time.Time  `json:"launchedAt"`
	RunningAt     time.Time  `json:"runningAt"`
	BootAt        *time.Time `json:"bootAt,omitempty"`   // nil: never boots
	BootedAt      *time.Time `json:"bootedAt,omitempty"` // the Launcher made its Node
	WarnedAt      *time.Time `json:"warnedAt,omitempty"` // spot interruption warning
	InterruptAt   *time.Time `json:"interruptAt,omitempty"`
	FailedAt      *time.Time `json:"failedAt,omitempty"` // died without ending
	ShutdownAt    *time.Time `json:"shutdownAt,omitempty"`
	GoneAt        *time.Time `json:"goneAt,omitempty"`       // when shutting down completes
	TerminatedAt  *time.Time `json:"terminatedAt,omitempty"` // it did
	RetryAt       *time.Time `json:"retryAt,omitempty"`      // after the Launcher failed
	CapacityFault []string   `json:"capacityFaults,omitempty"`

	// Shape and Template are filled in for the Launcher and not kept.
	Shape    InstanceType `json:"-"`
	Template TemplateData `json:"-"`
}

// ProviderID is how the cloud provider of Kubernetes names the instance.
func (i *Instance) ProviderID() string { return "aws:///" + i.Zone + "/" + i.ID }

// NodeClaim is the name of the NodeClaim that owns the instance, empty until Karpenter
// has tagged it.
func (i *Instance) NodeClaim() string { return i.Tags[nodeClaimTag] }

func (i *Instance) live() bool { return i.State == Pending || i.State == Running }

// Cost is what the instance has cost in USD up to now: billed by the second from
// launch to shutdown, a minute at least. A reserved instance is billed at the
// on-demand rate; unused reservations are not counted.
func (i *Instance) Cost(now time.Time) float64 {
	end := now
	if i.ShutdownAt != nil {
		end = *i.ShutdownAt
	}
	billed := max(end.Sub(i.LaunchedAt), time.Minute)
	return i.PricePerHour * billed.Hours()
}

func (i *Instance) snapshot() Instance {
	out := *i
	out.Tags = make(map[string]string, len(i.Tags))
	for k, v := range i.Tags {
		out.Tags[k] = v
	}
	return out
}

// stateCode is the number that EC2 sends with a state.
func stateCode(state string) int {
	switch state {
	case Pending:
		return 0
	case Running:
		return 16
	case ShuttingDown:
		return 32
	default:
		return 48
	}
}
