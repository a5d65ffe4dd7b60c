package kwoknode

import (
	"fmt"

	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"

	"strings"
)

// bottlerocketSettings is the part of Bottlerocket's settings that matters here.
type bottlerocketSettings struct {
	Settings struct {
		Kubernetes struct {
			NodeLabels     map[string]string   `toml:"node-labels"`
			NodeTaints     map[string][]string `toml:"node-taints"`
			MaxPods        int                 `toml:"max-pods"`
			KubeReserved   map[string]string   `toml:"kube-reserved"`
			SystemReserved map[string]string   `toml:"system-reserved"`
			EvictionHard   map[string]string   `toml:"eviction-hard"`
		} `toml:"kubernetes"`
		BootstrapCommands map[string]struct {
			Commands [][]string `toml:"commands"`
		} `toml:"bootstrap-commands"`
	} `toml:"settings"`
}

func (k *kubelet) readBottlerocket(text string) error {
	var s bottlerocketSettings
	if err := toml.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("reading bottlerocket settings, %w", err)
	}
	in := s.Settings.Kubernetes
	for key, value := range in.NodeLabels {
		k.labels[key] = value
	}
	for key, taints := range in.NodeTaints {
		for _, taint := range taints {
			value, effect, _ := strings.Cut(taint, ":")
			k.taints = append(k.taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		}
	}
	k.maxPods = in.MaxPods
	replace(&k.kubeReserved, in.KubeReserved)
	replace(&k.systemReserved, in.SystemReserved)
	replace(&k.evictionHard, in.EvictionHard)
	for _, command := range s.Settings.BootstrapCommands {
		for _, words := range command.Commands {
			k.raid0 = k.raid0 || strings.HasPrefix(strings.Join(words, " "), "apiclient ephemeral-storage init")
		}
	}
	return nil
}
