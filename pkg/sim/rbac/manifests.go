package rbac

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Where the charts are installed, and under which accounts their pods run.
const (
	// Namespace is the one of both releases.
	Namespace = "karpenter"
	// Controller and Agent are ServiceAccounts of Namespace.
	Controller = "karpenter"
	Agent      = "gpu-agent"
	// OperatorNamespace is the GPU Operator's, to which the controller writes.
	OperatorNamespace = "gpu-operator"
)

//go:embed manifests/*.yaml
var files embed.FS

// kinds are those that say what somebody may do.
var kinds = map[string]bool{
	"ServiceAccount": true, "ClusterRole": true, "ClusterRoleBinding": true, "Role": true, "RoleBinding": true,
	"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
}

// GrantsRights reports whether an object of a chart belongs to the manifests.
func GrantsRights(o *unstructured.Unstructured) bool { return kinds[o.GetKind()] }

// Objects returns the manifests in the order in which the charts render them. The caller owns them.
func Objects() ([]*unstructured.Unstructured, error) {
	entries, err := files.ReadDir("manifests")
	if err != nil {
		return nil, fmt.Errorf("listing manifests, %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, e := range entries {
		text, err := files.ReadFile("manifests/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("reading manifest, %w", err)
		}
		parsed, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("parsing %s, %w", e.Name(), err)
		}
		objects = append(objects, parsed...)
	}
	return objects, nil
}

func parse(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4<<10); ; {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}
