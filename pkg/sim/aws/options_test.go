package aws_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
)

func TestNewRejects(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(broken, []byte(`{"version": 99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for sentence, tc := range map[string]struct {
		opts aws.Options
		want string
	}{
		"an address without a port":              {aws.Options{Addr: "localhost"}, `addr "localhost" is not host:port`},
		"an address that others can reach":       {aws.Options{Addr: "0.0.0.0:80"}, `addr "0.0.0.0:80" is not on loopback`},
		"a region that is none":                  {aws.Options{Region: "moon"}, `region "moon" is not a region`},
		"an account that is not twelve digits":   {aws.Options{AccountID: "1"}, `accountID "1" is not twelve digits`},
		"a zone of another region":               {aws.Options{Zones: []string{"us-west-2a"}}, `zone "us-west-2a" is not in region us-east-1`},
		"a zone twice":                           {aws.Options{Zones: []string{"us-east-1a", "us-east-1a"}}, `zone "us-east-1a" is listed twice`},
		"a service network that is none":         {aws.Options{ServiceCIDR: "10.0"}, `serviceCIDR "10.0" is not a network`},
		"a negative notice":                      {aws.Options{InterruptionNotice: -1}, "interruptionNotice -1ns is negative"},
		"a boot delay that ends before it":       {aws.Options{BootDelay: aws.Uniform(2, 1)}, "bootDelay: delay uniform(2ns,1ns) ends before it starts"},
		"a price of a type that is not on offer": {aws.Options{Prices: map[string]float64{"x": 1}}, `prices["x"] is 1`},
		"a spot price without a zone":            {aws.Options{SpotPrices: map[string]float64{"g5.xlarge": 1}}, `spotPrices["g5.xlarge"] is 1`},
		"a type without memory":                  {aws.Options{InstanceTypes: []aws.InstanceType{{Name: "x", VCPU: 1}}}, `instance type "x" needs a name, vCPUs, memory and a price`},
		"a reservation of nothing":               {aws.Options{Reservations: []aws.Reservation{{InstanceType: "g5.xlarge", Zone: "us-east-1a"}}}, "has count 0"},
		"a reservation of an unknown type":       {aws.Options{Reservations: []aws.Reservation{{InstanceType: "x"}}}, `reservation of instanceType "x"`},
		"a quota of reserved capacity":           {aws.Options{Quotas: []aws.Quota{{CapacityType: "reserved"}}}, "needs capacityType on-demand or spot"},
		"an image without an architecture":       {aws.Options{Images: []aws.Image{{ID: "ami-1"}}}, `image "ami-1" needs`},
		"a state of another version":             {aws.Options{StatePath: broken}, "version 99 is not 1; remove the file"},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := aws.New(tc.opts)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestAddFaultRejects(t *testing.T) {
	s, err := aws.New(aws.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for sentence, tc := range map[string]struct {
		fault aws.Fault
		want  string
	}{
		"no kind":                       {aws.Fault{}, `kind "" is none of capacity, launch, boot, api, drop`},
		"a launch fault without a code": {aws.Fault{Kind: aws.LaunchFault}, "a launch fault needs code"},
		"an api fault of nothing":       {aws.Fault{Kind: aws.APIFault}, "needs operation"},
		"a negative room":               {aws.Fault{Kind: aws.CapacityFault, Left: -1}, "left -1"},
		"a rate above one":              {aws.Fault{Kind: aws.APIFault, Operation: "*", Rate: 2}, "rate 2 is not between 0 and 1"},
		"a rate that is no number":      {aws.Fault{Kind: aws.APIFault, Operation: "*", Rate: math.NaN()}, "rate NaN is not between"},
		"a capacity type that is none":  {aws.Fault{Kind: aws.CapacityFault, Pool: aws.Pool{CapacityType: "cheap"}}, `capacityType "cheap" matches none`},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := s.AddFault(tc.fault)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestParseDelay(t *testing.T) {
	for _, text := range []string{"40s", "0s", "uniform(20s,1m0s)", "lognormal(45s,0.4)"} {
		d, err := aws.ParseDelay(text)
		if err != nil || d.String() != text {
			t.Errorf("%s reads as %s, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "-1s", "uniform(1s)", "uniform(2s,1s)", "normal(1s,2s)", "lognormal(1s,9)", "lognormal(1s,NaN)", "uniform(1s,2s"} {
		if d, err := aws.ParseDelay(text); err == nil || !strings.Contains(err.Error(), "delay") {
			t.Errorf("%q reads as %s, %v", text, d, err)
		}
	}
}

func TestTheCatalogueIsOnOffer(t *testing.T) {
	s, err := aws.New(aws.Options{Reservations: []aws.Reservation{{InstanceType: "p5.48xlarge", Zone: "us-east-1a", Count: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	for _, shape := range catalog.Default().GPUShapes() {
		if shape.Provider != "aws" || shape.PricePerHour == 0 {
			continue
		}
		if _, err := s.Reserve(aws.Reservation{InstanceType: shape.Name, Zone: "us-east-1a", Count: 1}); err != nil {
			t.Error(err)
		}
	}
	if p := aws.SpotPrice(10, "g5.xlarge", "us-east-1a"); p == aws.SpotPrice(10, "g5.xlarge", "us-east-1b") || p < 3 || p > 5.5 {
		t.Errorf("spot price is %v", p)
	}
}
