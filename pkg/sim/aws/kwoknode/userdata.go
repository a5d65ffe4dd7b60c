package kwoknode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// kubelet is what user data tells the kubelet.
type kubelet struct {
	labels         map[string]string
	taints         []corev1.Taint
	maxPods        int
	podsPerCore    int
	kubeReserved   map[string]string
	systemReserved map[string]string
	evictionHard   map[string]string
	raid0          bool // local disks hold the ephemeral storage
}

// readUserData understands the user data of AL2023, AL2 and Bottlerocket. Anything
// else, such as that of a custom image, yields a kubelet with defaults.
func readUserData(script string) (kubelet, error) {
	k := kubelet{labels: map[string]string{}}
	trimmed := strings.TrimSpace(script)
	switch {
	case strings.HasPrefix(trimmed, "MIME-Version:"), strings.HasPrefix(trimmed, "Content-Type:"):
		return k, k.readArchive(trimmed)
	case strings.HasPrefix(trimmed, "[settings"):
		return k, k.readBottlerocket(trimmed)
	case strings.HasPrefix(trimmed, "#!"):
		return k, k.readBootstrap(trimmed)
	default:
		return k, nil
	}
}

// readArchive reads every part of a MIME archive; the last word on a setting wins.
func (k *kubelet) readArchive(text string) error {
	message, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("reading user data, %w", err)
	}
	_, options, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("reading user data, content type, %w", err)
	}
	parts := multipart.NewReader(message.Body, options["boundary"])
	for {
		part, err := parts.NextPart()
		if err == io.EOF { //nolint:errorlint // a wrapped one is an archive that ends too early
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading user data, %w", err)
		}
		raw, err := io.ReadAll(part)
		if err != nil {
			return fmt.Errorf("reading user data, %w", err)
		}
		if err := k.readPart(part.Header.Get("Content-Type"), raw); err != nil {
			return err
		}
	}
}

func (k *kubelet) readPart(contentType string, raw []byte) error {
	if strings.HasPrefix(contentType, "application/node.eks.aws") {
		return k.readNodeConfig(raw)
	}
	if bytes.Contains(raw, []byte("/etc/eks/bootstrap.sh")) {
		return k.readBootstrap(string(raw))
	}
	return nil
}

// nodeConfig is the part of nodeadm's NodeConfig that matters here.
type nodeConfig struct {
	Spec struct {
		Kubelet struct {
			Config struct {
				MaxPods            int               `json:"maxPods"`
				PodsPerCore        int               `json:"podsPerCore"`
				KubeReserved       map[string]string `json:"kubeReserved"`
				SystemReserved     map[string]string `json:"systemReserved"`
				EvictionHard       map[string]string `json:"evictionHard"`
				RegisterWithTaints []corev1.Taint    `json:"registerWithTaints"`
			} `json:"config"`
			Flags []string `json:"flags"`
		} `json:"kubelet"`
		Instance struct {
			LocalStorage struct {
				Strategy string `json:"strategy"`
			} `json:"localStorage"`
		} `json:"instance"`
	} `json:"spec"`
}

func (k *kubelet) readNodeConfig(raw []byte) error {
	var c nodeConfig
	document, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return fmt.Errorf("reading NodeConfig, %w", err)
	}
	if err := json.Unmarshal(document, &c); err != nil {
		return fmt.Errorf("reading NodeConfig, %w", err)
	}
	config := c.Spec.Kubelet.Config
	k.taints = append(k.taints, config.RegisterWithTaints...)
	k.maxPods = max(k.maxPods, config.MaxPods)
	k.podsPerCore = max(k.podsPerCore, config.PodsPerCore)
	replace(&k.kubeReserved, config.KubeReserved)
	replace(&k.systemReserved, config.SystemReserved)
	replace(&k.evictionHard, config.EvictionHard)
	k.raid0 = k.raid0 || c.Spec.Instance.LocalStorage.Strategy == "RAID0"
	for _, flag := range c.Spec.Kubelet.Flags {
		if err := k.readFlags(flag); err != nil {
			return err
		}
	}
	return nil
}

func replace(into *map[string]string, with map[string]string) {
	if with != nil {
		*into = with
	}
}

// readBootstrap reads the call of bootstrap.sh: the kubelet's flags are one quoted word.
func (k *kubelet) readBootstrap(script string) error {
	k.raid0 = k.raid0 || strings.Contains(script, "--local-disks raid0")
	_, rest, ok := strings.Cut(script, "--kubelet-extra-args '")
	if !ok {
		return nil
	}
	flags, _, ok := strings.Cut(rest, "'")
	if !ok {
		return fmt.Errorf("reading bootstrap.sh, the quote after --kubelet-extra-args is not closed")
	}
	return k.readFlags(flags)
}

// readFlags reads kubelet flags of the form --name="value" or --name=value.
func (k *kubelet) readFlags(text string) error {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		name, rest, ok := strings.Cut(text, "=")
		if !ok {
			return nil
		}
		value := ""
		if strings.HasPrefix(rest, `"`) {
			value, text, _ = strings.Cut(rest[1:], `"`)
		} else {
			value, text, _ = strings.Cut(rest, " ")
		}
		if err := k.readFlag(strings.TrimLeft(name, "-"), value); err != nil {
			return err
		}
	}
	return nil
}

func (k *kubelet) readFlag(name, value string) error {
	switch name {
	case "node-labels":
		for key, v := range pairs(value, "=") {
			k.labels[key] = v
		}
	case "register-with-taints":
		return k.readTaints(value)
	case "max-pods":
		_, err := fmt.Sscanf(value, "%d", &k.maxPods)
		return wrapFlag(name, value, err)
	case "pods-per-core":
		_, err := fmt.Sscanf(value, "%d", &k.podsPerCore)
		return wrapFlag(name, value, err)
	case "kube-reserved":
		k.kubeReserved = pairs(value, "=")
	case "system-reserved":
		k.systemReserved = pairs(value, "=")
	case "eviction-hard":
		k.evictionHard = pairs(value, "<")
	}
	return nil
}

func wrapFlag(name, value string, err error) error {
	if err != nil {
		return fmt.Errorf("reading kubelet flag --%s=%q, %w", name, value, err)
	}
	return nil
}

// readTaints reads key=value:Effect,key:Effect.
func (k *kubelet) readTaints(text string) error {
	for _, word := range strings.Split(text, ",") {
		if word == "" {
			continue
		}
		name, effect, ok := strings.Cut(word, ":")
		if !ok {
			return fmt.Errorf("reading kubelet flag --register-with-taints, taint %q has no effect, write key=value:NoSchedule", word)
		}
		key, value, _ := strings.Cut(name, "=")
		k.taints = append(k.taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return nil
}

func pairs(text, separator string) map[string]string {
	out := map[string]string{}
	for _, word := range strings.Split(text, ",") {
		if key, value, ok := strings.Cut(word, separator); ok {
			out[key] = value
		}
	}
	return out
}
