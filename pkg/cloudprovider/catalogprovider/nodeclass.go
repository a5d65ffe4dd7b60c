package catalogprovider

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NodeClassGVK is the kind that NodePools refer to.
var NodeClassGVK = schema.GroupVersionKind{Group: Group, Version: "v1", Kind: "EC2NodeClass"}

// NodeClass is an EC2NodeClass, read only as far as it decides about capacity:
// the image's family, the kubelet's reservations and pods, the disk for pods,
// network interfaces and the zones of its subnets. The rest is kept as it came.
type NodeClass struct {
	unstructured.Unstructured
	// Unused lists the fields that change capacity and are not understood offline,
	// with the reason.
	Unused []string

	family     string
	kubelet    kubelet
	storage    resource.Quantity
	raid0      bool
	interfaces *interfaces
	zones      []zone
}

var _ status.Object = (*NodeClass)(nil)

type zone struct{ name, id string }

type kubelet struct {
	maxPods, podsPerCore         *int64
	kubeReserved, systemReserved map[string]string
	evictionHard                 map[string]string
}

type interfaces struct{ efaOnly, efaOnlyFirstCard int }

// DefaultNodeClass is what is assumed of an EC2NodeClass that was not given.
func DefaultNodeClass(name string) *NodeClass {
	u := unstructured.Unstructured{}
	u.SetGroupVersionKind(NodeClassGVK)
	u.SetName(name)
	return &NodeClass{Unstructured: u, family: familyAL2023, storage: defaultStorage.DeepCopy()}
}

// nodeClassSpec holds the fields that are read.
type nodeClassSpec struct {
	Spec struct {
		AMIFamily           *string                    `json:"amiFamily"`
		AMISelectorTerms    []struct{ Alias string }   `json:"amiSelectorTerms"`
		Kubelet             map[string]json.RawMessage `json:"kubelet"`
		BlockDeviceMappings []blockDevice              `json:"blockDeviceMappings"`
		InstanceStorePolicy *string                    `json:"instanceStorePolicy"`
		NetworkInterfaces   []networkInterface         `json:"networkInterfaces"`
	} `json:"spec"`
	Status struct {
		Subnets []struct {
			Zone   string `json:"zone"`
			ZoneID string `json:"zoneID"`
		} `json:"subnets"`
		CapacityReservations []struct {
			ID string `json:"id"`
		} `json:"capacityReservations"`
	} `json:"status"`
}

type blockDevice struct {
	DeviceName string `json:"deviceName"`
	RootVolume bool   `json:"rootVolume"`
	EBS        *struct {
		VolumeSize json.RawMessage `json:"volumeSize"`
	} `json:"ebs"`

	size *resource.Quantity // of EBS; nil if not given
}

type networkInterface struct {
	NetworkCardIndex int    `json:"networkCardIndex"`
	InterfaceType    string `json:"interfaceType"`
}

// ParseNodeClass reads an EC2NodeClass. The error names the field.
func ParseNodeClass(u *unstructured.Unstructured) (*NodeClass, error) {
	raw, err := u.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("reading EC2NodeClass %s, %w", u.GetName(), err)
	}
	var fields nodeClassSpec
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("reading EC2NodeClass %s, %w", u.GetName(), err)
	}
	n := &NodeClass{Unstructured: *u.DeepCopy()}
	if n.family, err = familyOf(fields); err != nil {
		return nil, err
	}
	if n.kubelet, n.Unused, err = parseKubelet(fields.Spec.Kubelet); err != nil {
		return nil, err
	}
	if err := parseSizes(fields.Spec.BlockDeviceMappings); err != nil {
		return nil, err
	}
	n.storage = storageOf(n.family, fields.Spec.BlockDeviceMappings)
	n.raid0 = lo.FromPtr(fields.Spec.InstanceStorePolicy) == "RAID0"
	n.interfaces = interfacesOf(fields.Spec.NetworkInterfaces)
	for _, s := range fields.Status.Subnets {
		if z := (zone{s.Zone, s.ZoneID}); s.Zone != "" && !lo.Contains(n.zones, z) {
			n.zones = append(n.zones, z)
		}
	}
	if len(fields.Status.CapacityReservations) > 0 {
		n.Unused = append(n.Unused, "status.capacityReservations: reserved capacity is not planned offline")
	}
	return n, nil
}

// interfacesOf counts interfaces that carry no IP traffic; nil where the EC2NodeClass
// leaves them to the provider.
func interfacesOf(nics []networkInterface) *interfaces {
	if nics == nil {
		return nil
	}
	out := &interfaces{}
	for _, i := range nics {
		if i.InterfaceType != "efa-only" {
			continue
		}
		out.efaOnly++
		if i.NetworkCardIndex == 0 {
			out.efaOnlyFirstCard++
		}
	}
	return out
}

func parseSizes(devices []blockDevice) error {
	for i := range devices {
		if devices[i].EBS == nil || len(devices[i].EBS.VolumeSize) == 0 || string(devices[i].EBS.VolumeSize) == "null" {
			continue
		}
		devices[i].size = &resource.Quantity{}
		if err := devices[i].size.UnmarshalJSON(devices[i].EBS.VolumeSize); err != nil || devices[i].size.Sign() <= 0 {
			return fmt.Errorf("spec.blockDeviceMappings[%d].ebs.volumeSize: %s is no size; write one such as 100Gi", i, devices[i].EBS.VolumeSize)
		}
	}
	return nil
}

func familyOf(f nodeClassSpec) (string, error) {
	if f.Spec.AMIFamily != nil {
		return knownFamily("spec.amiFamily", *f.Spec.AMIFamily, *f.Spec.AMIFamily)
	}
	for i, t := range f.Spec.AMISelectorTerms {
		if t.Alias == "" {
			continue
		}
		name, _, ok := strings.Cut(t.Alias, "@")
		if !ok {
			return "", fmt.Errorf("spec.amiSelectorTerms[%d].alias: %q has no version; write family@version, such as al2023@latest", i, t.Alias)
		}
		return knownFamily(fmt.Sprintf("spec.amiSelectorTerms[%d].alias", i), name, t.Alias)
	}
	return familyCustom, nil
}

func knownFamily(field, name, value string) (string, error) {
	for _, f := range []string{familyAL2, familyAL2023, familyBottlerocket, familyCustom} {
		if strings.EqualFold(f, name) {
			return f, nil
		}
	}
	return "", fmt.Errorf("%s: %q is not planned for; use AL2023, AL2, Bottlerocket or Custom", field, value)
}

// parseKubelet reads static values. An expression is left out, as the controller
// does without its feature gate.
func parseKubelet(raw map[string]json.RawMessage) (k kubelet, unused []string, err error) {
	if k.maxPods, err = integer(raw, "maxPods", &unused); err != nil {
		return k, nil, err
	}
	if k.podsPerCore, err = integer(raw, "podsPerCore", &unused); err != nil {
		return k, nil, err
	}
	for _, m := range []struct {
		name string
		to   *map[string]string
	}{{"kubeReserved", &k.kubeReserved}, {"systemReserved", &k.systemReserved}, {"evictionHard", &k.evictionHard}} {
		if err := amounts(raw, m.name, m.to, &unused); err != nil {
			return k, nil, err
		}
	}
	return k, unused, nil
}

func integer(raw map[string]json.RawMessage, name string, unused *[]string) (*int64, error) {
	text, ok := raw[name]
	if !ok || string(text) == "null" {
		return nil, nil
	}
	var n int64
	if json.Unmarshal(text, &n) == nil && n >= 0 {
		return &n, nil
	}
	var expression string
	if json.Unmarshal(text, &expression) != nil {
		return nil, fmt.Errorf("spec.kubelet.%s: %s is no whole number of 0 or more", name, text)
	}
	*unused = append(*unused, fmt.Sprintf("spec.kubelet.%s: expressions are not evaluated offline; the default of the image's family is used", name))
	return nil, nil
}

func amounts(raw map[string]json.RawMessage, name string, to *map[string]string, unused *[]string) error {
	text, ok := raw[name]
	if !ok || string(text) == "null" {
		return nil
	}
	var values map[string]string
	if err := json.Unmarshal(text, &values); err != nil {
		return fmt.Errorf("spec.kubelet.%s: %s is no map of quantities", name, text)
	}
	*to = map[string]string{}
	for _, key := range sortedKeys(values) {
		v := values[key]
		_, quantityErr := resource.ParseQuantity(v)
		percent, isPercent := strings.CutSuffix(v, "%")
		_, percentErr := strconv.ParseFloat(percent, 64)
		switch {
		case quantityErr == nil, isPercent && percentErr == nil && name == "evictionHard":
			(*to)[key] = v
		case name == "evictionHard":
			return fmt.Errorf("spec.kubelet.%s[%s]: %q is neither a quantity such as 100Mi nor a percentage such as 5%%", name, key, v)
		default:
			*unused = append(*unused, fmt.Sprintf("spec.kubelet.%s[%s]: expressions are not evaluated offline; the default is used", name, key))
		}
	}
	return nil
}

// GetConditions is none: whether an EC2NodeClass is ready does not matter offline.
func (n *NodeClass) GetConditions() []status.Condition { return nil }

// SetConditions keeps nothing.
func (n *NodeClass) SetConditions([]status.Condition) {}

// StatusConditions is an empty set.
func (n *NodeClass) StatusConditions(opts ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions().For(n, opts...)
}

// DeepCopyObject copies the object and what was read from it.
func (n *NodeClass) DeepCopyObject() runtime.Object {
	out := *n
	out.Unstructured = *n.DeepCopy()
	return &out
}
