package realnode

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/guest"
)

const (
	// serviceAddress is the kubernetes Service's: the first of the control plane's range, for
	// which its certificate is good too.
	serviceAddress = "10.96.0.1"
	podRange       = "10.244.0.0/24"
	// PauseImage is what containerd starts first in each pod.
	PauseImage = "docker.io/local/pause:1"
)

// Identity is what a machine is told at boot: on EC2 it comes from the instance and its user data.
type Identity struct {
	// Name is that of the Node.
	Name       string
	ProviderID string
	// Address is an IPv4 address of the machine.
	Address string
	Labels  map[string]string
	Taints  []corev1.Taint
	// MaxPods is the kubelet's default where 0.
	MaxPods int
}

//go:embed containerd.toml.tmpl
var containerdTemplate string

func containerdConfig(cni string) (string, error) {
	parsed, err := template.New("containerd").Parse(containerdTemplate)
	if err != nil {
		return "", fmt.Errorf("parsing containerd's configuration, %w", err)
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, map[string]string{
		"Socket": guest.ContainerdSocket, "PauseImage": PauseImage, "CNIPrograms": cni, "CNIConfig": inMachine("config/cni"),
		"Runtime": filepath.Join(guest.ProgramDir, guest.RuntimeName), "NVIDIARuntime": filepath.Join(guest.ProgramDir, guest.NVIDIARuntimeName),
	})
	if err != nil {
		return "", fmt.Errorf("rendering containerd's configuration, %w", err)
	}
	return out.String(), nil
}

// cniConfig is a bridge in the machine's network. Nothing beyond the machine is reached from
// pods, and nothing need be: the API server's address is the machine's own.
func cniConfig() (string, error) {
	return encode(map[string]any{
		"cniVersion": "0.4.0", "name": "pods",
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": "cni0", "isGateway": true,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": "/run/cni",
				"ranges": []any{[]any{map[string]string{"subnet": podRange}}},
				"routes": []any{map[string]string{"dst": "0.0.0.0/0"}},
			},
		}},
	})
}

func kubeletConfig(id Identity) (string, error) {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"cgroupDriver": "cgroupfs", "failCgroupV1": false, "failSwapOn": false,
		"containerRuntimeEndpoint": "unix://" + guest.ContainerdSocket,
		// It listens in the machine's network, which nobody else is in.
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"providerID":     id.ProviderID,
		// Nobody answers there; without an address the kubelet complains of each pod.
		"clusterDNS": []string{"10.96.0.10"}, "clusterDomain": "cluster.local",
		"resolvConf":                "",
		"volumePluginDir":           "/var/lib/kubelet/volume-plugins",
		"nodeStatusReportFrequency": "5m", "nodeStatusUpdateFrequency": "2s",
		"makeIPTablesUtilChains": false,
		// The disk is the host's: how full it is is not the node's to judge.
		"evictionHard":                map[string]string{"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"},
		"imageGCHighThresholdPercent": 100,
		"registerWithTaints":          id.Taints,
	}
	if id.MaxPods > 0 {
		config["maxPods"] = id.MaxPods
	}
	return encode(config)
}

func encode(value any) (string, error) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding a configuration, %w", err)
	}
	return string(data), nil
}

func kubeletArguments(id Identity) []string {
	return []string{
		filepath.Join(guest.ProgramDir, "kubelet"),
		"--config=" + inMachine("config/kubelet.json"), "--kubeconfig=" + inMachine("config/kubelet.kubeconfig"),
		"--hostname-override=" + id.Name, "--node-ip=" + id.Address, "--node-labels=" + labelList(id.Labels),
		"--root-dir=/var/lib/kubelet", "--cert-dir=/var/lib/kubelet/pki", "--v=2",
	}
}

// labelList leaves out what a kubelet may not set: others' labels in Kubernetes' own domains.
func labelList(labels map[string]string) string {
	own := []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion}
	var list []string
	for key, value := range labels {
		domain, _, _ := strings.Cut(key, "/")
		reserved := domain == "kubernetes.io" || domain == "k8s.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io")
		if !reserved || slices.Contains(own, key) || domain == "node.kubernetes.io" {
			list = append(list, key+"="+value)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

func inMachine(name string) string { return filepath.Join(guest.SharedDir, name) }
