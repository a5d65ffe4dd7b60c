// Package access holds what the agent is allowed to do in a cluster: a ServiceAccount, its
// RBAC, and a ValidatingAdmissionPolicy that narrows it to the agent's own condition and
// report on the Node that its pod runs on.
//
// The manifests are one Helm template, embedded here so that the chart and the tests on a
// real API server speak of the same text. The node is taken from the claims that
// kube-apiserver puts into the token of a pod (Kubernetes 1.30 and newer), so that an agent
// that was taken over can harm no node but its own, and that node only by keeping it from
// work.
package access

import (
	"bytes"
	_ "embed"
	"fmt"
	"text/template"
)

//go:embed access.yaml
var source string

// Template is the Helm template.
func Template() string { return source }

// Manifests fills the template in for a namespace and the name of the ServiceAccount, which
// is also the name of the cluster-wide objects.
func Manifests(namespace, name string) ([]byte, error) {
	parsed, err := template.New("access").Option("missingkey=error").Parse(source)
	if err != nil {
		return nil, fmt.Errorf("parsing the access template, %w", err)
	}
	var out bytes.Buffer
	values := map[string]any{
		"Release": map[string]any{"Namespace": namespace},
		"Values":  map[string]any{"serviceAccount": map[string]any{"name": name}},
	}
	if err := parsed.Execute(&out, values); err != nil {
		return nil, fmt.Errorf("filling in the access template, %w", err)
	}
	return out.Bytes(), nil
}
