package doctor

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// quote makes one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// encode writes a patch. What is passed are maps, slices and strings, which marshal.
func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding a patch, %s", err))
	}
	return string(text)
}

// object names an object for kubectl, with the namespace that it is in.
func object(resource string, o client.Object) string {
	if o.GetNamespace() == "" {
		return fmt.Sprintf("%s %s", resource, o.GetName())
	}
	return fmt.Sprintf("%s %s --namespace %s", resource, o.GetName(), o.GetNamespace())
}

// merge writes a merge patch.
func merge(resource string, o client.Object, patch map[string]any) string {
	return fmt.Sprintf("kubectl patch %s --type=merge --patch %s", object(resource, o), quote(encode(patch)))
}

// operation is one step of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// steps writes a JSON patch.
func steps(resource string, o client.Object, patch ...operation) string {
	return fmt.Sprintf("kubectl patch %s --type=json --patch %s", object(resource, o), quote(encode(patch)))
}

// nested makes {"a":{"b":value}} of "a.b".
func nested(path string, value any) map[string]any {
	keys := strings.Split(path, ".")
	for i := len(keys) - 1; i > 0; i-- {
		value = map[string]any{keys[i]: value}
	}
	return map[string]any{keys[0]: value}
}

// Charts by the paths of the installation guide.
const (
	crdChart        = "charts/karpenter-gpu-crd"
	controllerChart = "charts/karpenter-gpu"
	agentChart      = "charts/gpu-agent"
	// defaultNamespace is where the guide installs.
	defaultNamespace = "karpenter"
)

// escape makes one step of a JSON pointer.
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
