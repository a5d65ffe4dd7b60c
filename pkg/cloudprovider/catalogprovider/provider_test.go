package catalogprovider_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

func class(t *testing.T, text string) (*catalogprovider.NodeClass, error) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetName("default")
	u.SetGroupVersionKind(catalogprovider.NodeClassGVK)
	return catalogprovider.ParseNodeClass(u)
}

func nodePool(group, kind, name string) *karpv1.NodePool {
	np := &karpv1.NodePool{}
	np.Name = "gpu"
	np.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: group, Kind: kind, Name: name}
	return np
}

func TestFaultsOfANodeClassNameTheField(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"a family that is not planned for": {`{spec: {amiFamily: Windows2022}}`, `spec.amiFamily: "Windows2022" is not planned for; use AL2023, AL2, Bottlerocket or Custom`},
		"an alias without a version":       {`{spec: {amiSelectorTerms: [{id: ami-1}, {alias: al2023}]}}`, `spec.amiSelectorTerms[1].alias: "al2023" has no version; write family@version, such as al2023@latest`},
		"an alias of an unknown family":    {`{spec: {amiSelectorTerms: [{alias: suse@latest}]}}`, `spec.amiSelectorTerms[0].alias: "suse@latest" is not planned for; use AL2023, AL2, Bottlerocket or Custom`},
		"a size that is none":              {`{spec: {amiFamily: AL2, blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: big}}]}}`, `spec.blockDeviceMappings[0].ebs.volumeSize: "big" is no size; write one such as 100Gi`},
		"a negative number of pods":        {`{spec: {amiFamily: AL2, kubelet: {maxPods: -1}}}`, `spec.kubelet.maxPods: -1 is no whole number of 0 or more`},
		"reservations that are a list":     {`{spec: {amiFamily: AL2, kubelet: {kubeReserved: [1]}}}`, `spec.kubelet.kubeReserved: [1] is no map of quantities`},
		"an eviction signal in words":      {`{spec: {amiFamily: AL2, kubelet: {evictionHard: {memory.available: much}}}}`, `spec.kubelet.evictionHard[memory.available]: "much" is neither a quantity such as 100Mi nor a percentage such as 5%`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := class(t, tc.in)
			if err == nil {
				t.Fatal("no error")
			}
			if d := cmp.Diff(tc.want, err.Error()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestExpressionsAndReservationsAreNoted(t *testing.T) {
	c, err := class(t, `{spec: {amiFamily: AL2023, kubelet: {maxPods: "default_enis * 2", kubeReserved: {cpu: "vcpus * 10", memory: 1Gi}}}, status: {capacityReservations: [{id: cr-1}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"spec.kubelet.maxPods: expressions are not evaluated offline; the default of the image's family is used",
		"spec.kubelet.kubeReserved[cpu]: expressions are not evaluated offline; the default is used",
		"status.capacityReservations: reserved capacity is not planned offline",
	}
	if d := cmp.Diff(want, c.Unused); d != "" {
		t.Error(d)
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for want, change := range map[string]func(*catalogprovider.Options){
		"the catalogue is missing":                                                 func(o *catalogprovider.Options) { o.Catalog = nil },
		"region is empty; name one, such as us-east-1":                             func(o *catalogprovider.Options) { o.Region = "" },
		`zones are [""]; name at least one and no empty one, such as us-east-1a`:   func(o *catalogprovider.Options) { o.Zones = []string{""} },
		"the spot price is NaN percent of on-demand; use 1 to 100":                 func(o *catalogprovider.Options) { o.SpotPercent = math.NaN() },
		"the spot price is 101 percent of on-demand; use 1 to 100":                 func(o *catalogprovider.Options) { o.SpotPercent = 101 },
		"vm memory overhead is 1; use a fraction from 0 to below 1, such as 0.075": func(o *catalogprovider.Options) { o.VMMemoryOverheadPercent = 1 },
		"reserved ENIs are -1; use 0 or more":                                      func(o *catalogprovider.Options) { o.ReservedENIs = -1 },
	} {
		o := catalogprovider.DefaultOptions()
		change(&o)
		_, err := catalogprovider.New(o)
		if err == nil || err.Error() != "reading options of the offline provider, "+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestNodePoolsOfOtherCloudsAreRefused(t *testing.T) {
	p, err := catalogprovider.New(catalogprovider.DefaultOptions(), catalogprovider.DefaultNodeClass("default"))
	if err != nil {
		t.Fatal(err)
	}
	for want, np := range map[string]*karpv1.NodePool{
		`NodePool gpu: EC2NodeClass "other" is not known`:                                          nodePool(catalogprovider.Group, "EC2NodeClass", "other"),
		"NodePool gpu: spec.template.spec.nodeClassRef names no EC2NodeClass of karpenter.k8s.aws": nodePool("karpenter.azure.com", "AKSNodeClass", "default"),
	} {
		if _, err := p.GetInstanceTypes(context.Background(), np); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestEveryShapeOfAWSIsOnSaleAtItsPrice(t *testing.T) {
	o := catalogprovider.DefaultOptions()
	o.SpotPercent = 30
	p, err := catalogprovider.New(o, catalogprovider.DefaultNodeClass("default"))
	if err != nil {
		t.Fatal(err)
	}
	types, err := p.GetInstanceTypes(context.Background(), nodePool(catalogprovider.Group, "EC2NodeClass", "default"))
	if err != nil {
		t.Fatal(err)
	}
	if len(types) < 900 {
		t.Errorf("%d types only", len(types))
	}
	for _, it := range types {
		shape, _ := catalog.Default().Shape(it.Name)
		if len(it.Offerings) != 6 || it.Offerings.HasCompatible(it.Requirements) != true {
			t.Errorf("%s: %d offerings, want 2 in each of 3 zones that its requirements allow", it.Name, len(it.Offerings))
		}
		for _, of := range it.Offerings {
			want := shape.PricePerHour
			if of.CapacityType() == karpv1.CapacityTypeSpot {
				want *= 0.3
			}
			if of.Available != (shape.PricePerHour > 0) || math.Abs(of.Price-want) > 1e-9 {
				t.Errorf("%s %s: available %t at %v, want %v", it.Name, of.CapacityType(), of.Available, of.Price, want)
			}
		}
		alloc, capacity := it.Allocatable(), it.Capacity
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			have, most := alloc[name], capacity[name]
			if have.Sign() <= 0 || have.Cmp(most) >= 0 {
				t.Errorf("%s: %s allocatable %s of %s", it.Name, name, have.String(), most.String())
			}
		}
	}
}

func TestNothingReachesACloud(t *testing.T) {
	p, err := catalogprovider.New(catalogprovider.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	_, create := p.Create(ctx, &karpv1.NodeClaim{})
	_, get := p.Get(ctx, "aws:///us-east-1a/i-1")
	_, list := p.List(ctx)
	_, drifted := p.IsDrifted(ctx, &karpv1.NodeClaim{})
	for name, err := range map[string]error{"Create": create, "Get": get, "List": list, "IsDrifted": drifted, "Delete": p.Delete(ctx, &karpv1.NodeClaim{})} {
		if !errors.Is(err, catalogprovider.ErrOffline) {
			t.Errorf("%s answered %v", name, err)
		}
	}
	if !cloudprovider.IsNodeRebootNotImplementedError(p.Reboot(ctx, &karpv1.NodeClaim{}, "1")) {
		t.Error("Reboot did not refuse")
	}
}
