package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/rbac"
)

// tokenSeconds is longer than any sandbox lives: nobody renews the tokens, as a kubelet would.
const tokenSeconds = 365 * 24 * 60 * 60

// access is what the controller and the agents come to the API server with.
type access struct {
	kubeconfig string
	// later are the rights in namespaces that do not exist yet.
	later []*unstructured.Unstructured
}

// auditArguments make kube-apiserver keep account of the calls of controller and agents.
func (s *Stack) auditArguments() (map[controlplane.Component][]string, error) {
	if s.opts.Administrators {
		return nil, nil
	}
	if err := os.MkdirAll(s.opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the sandbox's directory, %w", err)
	}
	policy := filepath.Join(s.opts.Dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(rbac.Policy), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy, %w", err)
	}
	return map[controlplane.Component][]string{controlplane.APIServer: {
		"--audit-policy-file=" + policy, "--audit-log-path=" + s.auditLog(),
		// In MB. No scenario comes near; a sandbox that stays up for weeks must not fill the disk.
		"--audit-log-maxsize=1024", "--audit-log-maxbackup=1",
	}}, nil
}

func (s *Stack) auditLog() string { return filepath.Join(s.opts.Dir, "audit.log") }

// grantAccess installs what the charts say about rights, and makes a kubeconfig of the controller's
// ServiceAccount. Rights in the GPU Operator's namespace wait for it: where it does not exist, the
// chart does not grant them either.
func (s *Stack) grantAccess(ctx context.Context) error {
	s.access.kubeconfig = s.plane.Kubeconfig()
	if err := s.makeNamespace(ctx, rbac.Namespace); err != nil {
		return err
	}
	if s.opts.Administrators {
		return nil
	}
	objects, err := rbac.Objects()
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.GetNamespace() == rbac.OperatorNamespace {
			s.access.later = append(s.access.later, o)
			continue
		}
		if err := s.objects.applyOne(ctx, o); err != nil {
			return fmt.Errorf("%s %s, %w", o.GetKind(), o.GetName(), err)
		}
	}
	token, err := s.token(ctx, rbac.Controller, nil)
	if err != nil {
		return err
	}
	s.access.kubeconfig = filepath.Join(s.opts.Dir, "controller.kubeconfig")
	return controlplane.WriteKubeconfig(s.access.kubeconfig, s.plane.TokenConfig(token))
}

func (s *Stack) makeNamespace(ctx context.Context, name string) error {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind("Namespace")
	o.SetName(name)
	return s.objects.applyOne(ctx, o)
}

// grantLater installs the rights that waited for a namespace, as an upgrade of the release would.
func (s *Stack) grantLater(ctx context.Context, namespace string) error {
	var rest []*unstructured.Unstructured
	for _, o := range s.access.later {
		if o.GetNamespace() != namespace {
			rest = append(rest, o)
			continue
		}
		if err := s.objects.applyOne(ctx, o); err != nil {
			return fmt.Errorf("%s %s, %w", o.GetKind(), o.GetName(), err)
		}
	}
	s.access.later = rest
	return nil
}

// token asks for a token of a ServiceAccount as a kubelet does, bound to what it is for.
func (s *Stack) token(ctx context.Context, account string, bound *authenticationv1.BoundObjectReference) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To[int64](tokenSeconds), BoundObjectRef: bound,
	}}
	answer, err := s.kube.CoreV1().ServiceAccounts(rbac.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token of %s, %w", account, err)
	}
	return answer.Status.Token, nil
}

// agentToken is that of the agent on one node. It is bound to the Node, where a kubelet would bind
// it to the agent's pod there: kube-apiserver puts the node's name into the claims either way.
func (s *Stack) agentToken(ctx context.Context, name string) (string, error) {
	n, err := s.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("getting node %s, %w", name, err)
	}
	return s.token(ctx, rbac.Agent, &authenticationv1.BoundObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: n.Name, UID: n.UID,
	})
}

// Usage tells which of the charts' rules were needed so far, and what was denied. Call it after Stop
// for the whole account. A sandbox of administrators has none.
func (s *Stack) Usage() (rbac.Usage, error) {
	if s.opts.Administrators {
		return rbac.Usage{}, nil
	}
	objects, err := rbac.Objects()
	if err != nil {
		return rbac.Usage{}, err
	}
	grants, err := rbac.Grants(objects)
	if err != nil {
		return rbac.Usage{}, err
	}
	log, err := os.Open(s.auditLog())
	if err != nil {
		return rbac.Usage{}, fmt.Errorf("opening the audit log, %w", err)
	}
	usage, err := rbac.Read(log, grants)
	return usage, errors.Join(err, log.Close())
}
