package kwoknode

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
)

const (
	// InstanceAnnotation is the instance's ID.
	InstanceAnnotation = "sandbox.karpenter-gpu.dev/instance-id"
	// DefaultMemoryOverhead is the part of a machine's memory that the kubelet does not
	// see, by the AWS provider's own default of --vm-memory-overhead-percent.
	DefaultMemoryOverhead = 0.075
)

// Options of a Launcher. The zero value is usable.
type Options struct {
	// MemoryOverhead is DefaultMemoryOverhead where 0. Give what the controller's
	// --vm-memory-overhead-percent has.
	MemoryOverhead float64
	// KubeletVersion is what the Nodes report, "v1.37.2" where empty.
	KubeletVersion string
}

// Launcher makes Nodes of instances. It is an aws.NodeLauncher and an aws.NodeFailer.
type Launcher struct {
	api  client.Client
	opts Options
}

var (
	_ aws.NodeLauncher = (*Launcher)(nil)
	_ aws.NodeFailer   = (*Launcher)(nil)
)

// New is a Launcher that works through api, which must read from the API server and not
// from a cache.
func New(api client.Client, opts Options) *Launcher {
	if opts.MemoryOverhead == 0 {
		opts.MemoryOverhead = DefaultMemoryOverhead
	}
	if opts.KubeletVersion == "" {
		opts.KubeletVersion = "v1.37.2"
	}
	return &Launcher{api: api, opts: opts}
}

// Launch registers the Node of a booted instance. A Node that the instance has
// registered before comes back to life, as after a reboot.
func (l *Launcher) Launch(ctx context.Context, i aws.Instance) error {
	node, err := l.Node(i)
	if err != nil {
		return err
	}
	err = l.api.Create(ctx, node)
	if apierrors.IsAlreadyExists(err) {
		err = l.restart(ctx, node)
	}
	if err != nil {
		return fmt.Errorf("registering node %s, %w", node.Name, err)
	}
	return nil
}

// restart tells of the new boot first, as a kubelet does with its first status, and with it
// forgets the devices: plugins register anew.
func (l *Launcher) restart(ctx context.Context, booted *corev1.Node) error {
	node := &corev1.Node{}
	if err := l.api.Get(ctx, client.ObjectKeyFromObject(booted), node); err != nil {
		return err
	}
	stored := node.DeepCopy()
	node.Status.NodeInfo.BootID = booted.Status.NodeInfo.BootID
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		for name := range list {
			if strings.HasPrefix(string(name), "nvidia.com/") {
				list[name] = resource.MustParse("0")
			}
		}
	}
	if err := l.api.Status().Patch(ctx, node, client.StrategicMergeFrom(stored)); err != nil {
		return err
	}
	return controlplane.SetNodeUp(ctx, l.api, node.Name)
}

// Terminate removes the Node of an instance that is gone.
func (l *Launcher) Terminate(ctx context.Context, i aws.Instance) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: i.PrivateDNS}}
	if err := client.IgnoreNotFound(l.api.Delete(ctx, node)); err != nil {
		return fmt.Errorf("removing node %s, %w", i.PrivateDNS, err)
	}
	return nil
}

// Fail stops the heartbeats of an instance's Node, if it has one.
func (l *Launcher) Fail(ctx context.Context, i aws.Instance) error {
	return client.IgnoreNotFound(controlplane.SetNodeDown(ctx, l.api, i.PrivateDNS))
}

// Node is the object that the kubelet of an instance registers.
func (l *Launcher) Node(i aws.Instance) (*corev1.Node, error) {
	script, err := i.Template.Script()
	if err != nil {
		return nil, fmt.Errorf("decoding user data of %s, %w", i.ID, err)
	}
	k, err := readUserData(script)
	if err != nil {
		return nil, fmt.Errorf("bootstrapping %s, %w", i.ID, err)
	}
	full := capacity(i, k, l.opts.MemoryOverhead)
	usable, err := allocatable(full, k)
	if err != nil {
		return nil, fmt.Errorf("bootstrapping %s, %w", i.ID, err)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        i.PrivateDNS,
			Labels:      labels(i, k),
			Annotations: map[string]string{controlplane.NodeAnnotation: controlplane.NodeAnnotationValue, InstanceAnnotation: i.ID},
		},
		Spec: corev1.NodeSpec{ProviderID: i.ProviderID(), Taints: k.taints},
		Status: corev1.NodeStatus{
			Capacity: full, Allocatable: usable,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: i.PrivateIP},
				{Type: corev1.NodeInternalDNS, Address: i.PrivateDNS},
				{Type: corev1.NodeHostName, Address: i.PrivateDNS},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: i.ID, SystemUUID: i.ID, BootID: fmt.Sprintf("%s-%d", i.ID, bootNumber(i)),
				KernelVersion: "6.12.0", OSImage: "Amazon Linux 2023", ContainerRuntimeVersion: "containerd://2.1.4",
				KubeletVersion: l.opts.KubeletVersion, OperatingSystem: "linux", Architecture: i.Shape.Arch,
			},
		},
	}, nil
}

// bootNumber tells the boots of an instance apart by the time of each.
func bootNumber(i aws.Instance) int64 {
	if i.BootAt == nil {
		return 0
	}
	return i.BootAt.Unix()
}

// labels are those of the user data and those that kubelet and cloud provider add.
func labels(i aws.Instance, k kubelet) map[string]string {
	out := map[string]string{}
	for key, value := range k.labels {
		out[key] = value
	}
	for key, value := range map[string]string{
		corev1.LabelHostname:            i.PrivateDNS,
		corev1.LabelOSStable:            "linux",
		corev1.LabelArchStable:          i.Shape.Arch,
		corev1.LabelInstanceTypeStable:  i.Type,
		corev1.LabelTopologyZone:        i.Zone,
		corev1.LabelTopologyRegion:      i.Region,
		"topology.k8s.aws/zone-id":      i.ZoneID,
		"topology.ebs.csi.aws.com/zone": i.Zone,
		"k8s.io/cloud-provider-aws":     "simulated",
	} {
		out[key] = value
	}
	return out
}
