package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// NodeLauncher turns instances into Nodes. Both methods are retried every second
// until they succeed, so they must accept to be called again for work that is done.
type NodeLauncher interface {
	// Launch is called once the instance has booted.
	Launch(ctx context.Context, instance Instance) error
	// Terminate is called once the instance is gone.
	Terminate(ctx context.Context, instance Instance) error
}

// NodeFailer is a NodeLauncher that can also stop the heartbeats of a Node. It is
// called when an instance fails hard and when a booted one starts to shut down.
type NodeFailer interface {
	Fail(ctx context.Context, instance Instance) error
}

// Options configures a Server. The zero value is a usable account in us-east-1.
type Options struct {
	// Addr is the listen address, 127.0.0.1:0 by default: a free port on loopback.
	Addr string
	// StatePath is a JSON file that holds the account. Empty keeps it in memory.
	StatePath string
	// Region is us-east-1 by default, the region that the built-in prices are of.
	Region string
	// AccountID is twelve digits, 123456789012 by default.
	AccountID string
	// Zones of the region, three by default: the region's name with a, b and c.
	Zones []string
	// Seed makes identifiers and delays; equal seeds make equal runs.
	Seed uint64
	// Clock is the real one by default.
	Clock clock.WithTicker
	// Log gets what the simulator cannot answer with, such as a failing Launcher.
	Log logr.Logger

	// BootDelay is the time from launch to the kubelet's registration, 2s by default.
	BootDelay Delay
	// ShutdownDelay is the time from termination to the machine being gone, none by default.
	ShutdownDelay Delay
	// APILatency holds every answer back.
	APILatency Delay
	// InterruptionNotice is the time from a spot warning to termination, 2m by default.
	InterruptionNotice time.Duration

	// ClusterName tags subnets and security groups (karpenter.sh/discovery) and is
	// what EKS describes, "sandbox" by default.
	ClusterName string
	// ClusterEndpoint is what EKS answers as the API server's address.
	ClusterEndpoint string
	// KubernetesVersion is what EKS answers, "1.37" by default.
	KubernetesVersion string
	// ServiceCIDR is the cluster's service network, 10.96.0.0/16 by default.
	ServiceCIDR string
	// InterruptionQueue is the name of the SQS queue that gets EC2's events. Empty: no queue.
	InterruptionQueue string

	// InstanceTypes on offer, every type of the catalogue by default.
	InstanceTypes []InstanceType
	// NotOffered takes types out of zones, for good; use a fault for a while.
	NotOffered []Pool
	// Prices replaces on-demand prices in USD per hour by instance type.
	Prices map[string]float64
	// SpotPrices replaces spot prices in USD per hour by "type/zone"; see SpotPrice.
	SpotPrices map[string]float64
	// Reservations are on-demand capacity reservations of the account.
	Reservations []Reservation
	// Quotas cap vCPUs, as account limits do.
	Quotas []Quota
	// Images are AMIs beside those that SSM's public parameters name.
	Images []Image

	// Launcher makes Nodes. Nil: instances run and no Node appears.
	Launcher NodeLauncher
}

// Quota is an account limit: the vCPUs that instances of the matching types may
// have together in one capacity type.
type Quota struct {
	// InstanceTypes is a pattern such as "p*"; CapacityType on-demand or spot.
	InstanceTypes string `json:"instanceTypes"`
	CapacityType  string `json:"capacityType"`
	VCPUs         int    `json:"vcpus"`
}

// Pool names capacity by patterns in which * stands for any text. An empty field is *.
type Pool struct {
	InstanceType string `json:"instanceType,omitempty"`
	Zone         string `json:"zone,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
}

func (p Pool) matches(instanceType, zone, capacityType string) bool {
	return matchOr(p.InstanceType, instanceType) && matchOr(p.Zone, zone) && matchOr(p.CapacityType, capacityType)
}

func matchOr(pattern, value string) bool { return pattern == "" || glob(pattern, value) }

var (
	regionForm  = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-\d$`)
	accountForm = regexp.MustCompile(`^\d{12}$`)
)

func (o *Options) defaults() {
	set(&o.Addr, "127.0.0.1:0")
	set(&o.Region, "us-east-1")
	set(&o.AccountID, "123456789012")
	set(&o.ClusterName, "sandbox")
	set(&o.ClusterEndpoint, "https://127.0.0.1:6443")
	set(&o.KubernetesVersion, "1.37")
	set(&o.ServiceCIDR, "10.96.0.0/16")
	set(&o.InterruptionNotice, 2*time.Minute)
	if o.BootDelay == (Delay{}) {
		o.BootDelay = Fixed(2 * time.Second)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if len(o.Zones) == 0 {
		o.Zones = []string{o.Region + "a", o.Region + "b", o.Region + "c"}
	}
	if len(o.InstanceTypes) == 0 {
		o.InstanceTypes = catalogTypes()
	}
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o *Options) validate() error {
	var errs []error
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	host, _, err := net.SplitHostPort(o.Addr)
	if err != nil {
		reject("addr %q is not host:port, use 127.0.0.1:0 for a free port", o.Addr)
	} else if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		reject("addr %q is not on loopback, use 127.0.0.1: the simulator checks no credentials", o.Addr)
	}
	if !regionForm.MatchString(o.Region) {
		reject("region %q is not a region, use a name such as us-east-1", o.Region)
	}
	if !accountForm.MatchString(o.AccountID) {
		reject("accountID %q is not twelve digits", o.AccountID)
	}
	if _, _, err := net.ParseCIDR(o.ServiceCIDR); err != nil {
		reject("serviceCIDR %q is not a network, use one such as 10.96.0.0/16", o.ServiceCIDR)
	}
	if o.InterruptionNotice < 0 {
		reject("interruptionNotice %s is negative, use 2m as AWS does", o.InterruptionNotice)
	}
	errs = append(errs, o.validateZones()...)
	errs = append(errs, o.validateTypes()...)
	errs = append(errs, o.validatePrices()...)
	errs = append(errs, o.validateCapacity()...)
	errs = append(errs, o.validateImages()...)
	for name, d := range map[string]Delay{"bootDelay": o.BootDelay, "shutdownDelay": o.ShutdownDelay, "apiLatency": o.APILatency} {
		if _, err := d.valid(); err != nil {
			reject("%s: %w", name, err)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func (o *Options) validateZones() (errs []error) {
	seen := map[string]bool{}
	for _, zone := range o.Zones {
		if !strings.HasPrefix(zone, o.Region) || len(zone) != len(o.Region)+1 {
			errs = append(errs, fmt.Errorf("zone %q is not in region %s, use %sa", zone, o.Region, o.Region))
		}
		if seen[zone] {
			errs = append(errs, fmt.Errorf("zone %q is listed twice", zone))
		}
		seen[zone] = true
	}
	if len(o.Zones) > 8 {
		errs = append(errs, fmt.Errorf("zones has %d entries, at most 8 fit the simulated network", len(o.Zones)))
	}
	return errs
}

func (o *Options) validateTypes() (errs []error) {
	seen := map[string]bool{}
	for _, it := range o.InstanceTypes {
		if it.Name == "" || it.VCPU <= 0 || it.MemoryMiB <= 0 || it.PricePerHour <= 0 {
			errs = append(errs, fmt.Errorf("instance type %q needs a name, vCPUs, memory and a price, all above zero", it.Name))
		}
		if seen[it.Name] {
			errs = append(errs, fmt.Errorf("instance type %q is listed twice", it.Name))
		}
		seen[it.Name] = true
	}
	return errs
}

func (o *Options) validatePrices() (errs []error) {
	seen := map[string]bool{}
	for _, it := range o.InstanceTypes {
		seen[it.Name] = true
	}
	for name, price := range o.Prices {
		if !seen[name] || price <= 0 {
			errs = append(errs, fmt.Errorf("prices[%q] is %v, name a type on offer and a price above zero", name, price))
		}
	}
	for pool, price := range o.SpotPrices {
		name, zone, _ := strings.Cut(pool, "/")
		if !seen[name] || !slices.Contains(o.Zones, zone) || price <= 0 {
			errs = append(errs, fmt.Errorf("spotPrices[%q] is %v, write type/zone of an offer and a price above zero", pool, price))
		}
	}
	return errs
}

func (o *Options) validateCapacity() (errs []error) {
	for _, r := range o.Reservations {
		if err := r.validate(o); err != nil {
			errs = append(errs, err)
		}
	}
	for _, q := range o.Quotas {
		if q.VCPUs < 0 || (q.CapacityType != OnDemand && q.CapacityType != Spot) {
			errs = append(errs, fmt.Errorf("quota %+v needs capacityType on-demand or spot and vcpus of 0 or more", q))
		}
	}
	return errs
}

func (o *Options) validateImages() (errs []error) {
	for _, image := range o.Images {
		if !strings.HasPrefix(image.ID, "ami-") || (image.Arch != "amd64" && image.Arch != "arm64") {
			errs = append(errs, fmt.Errorf("image %q needs an id that starts with ami- and arch amd64 or arm64", image.ID))
		}
	}
	return errs
}
