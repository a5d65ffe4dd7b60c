package charts_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// running asks whether a pod of the namespace default runs.
func (c cluster) running(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod %s is %s", name, pod.Status.Phase)
		}
		return nil
	}
}

// TestInstalled installs the charts on an empty cluster.
func TestInstalled(t *testing.T) {
	c := startCluster(t)
	for _, name := range []string{"gpu-operator", "nvidia"} {
		c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	t.Run("with every option", func(t *testing.T) { c.testEveryOption(t) })
	c.helm.must(t, "install", "karpenter-crd", definitions, "--namespace="+namespace)
	c.helm.must(t, "install", "karpenter", controller, "--namespace="+namespace, clusterName, "--wait", "--timeout=3m")
	t.Run("access of the controller", func(t *testing.T) { c.testController(t) })
	t.Run("access of administrators", func(t *testing.T) { c.testAdministrators(t) })
	t.Run("access of the agent", func(t *testing.T) { c.testAgent(t) })
}

// testEveryOption installs each chart with every value changed: what a schema lets pass, the
// API server takes.
func (c cluster) testEveryOption(t *testing.T) {
	for _, chart := range ourCharts {
		name := filepath.Base(chart)
		c.helm.must(t, "install", name, chart, "--namespace="+namespace, "--values="+fullValues(chart))
		c.helm.must(t, "uninstall", name, "--namespace="+namespace)
	}
	if c.get(t, definitionKind, "", "gpupools.karpenter-gpu.dev") != nil {
		t.Error("keep=false keeps")
	}
}

// testController asks for calls, "verb resource.group/subresource namespace/name": what ours
// does beyond Karpenter, and what it must not.
func (c cluster) testController(t *testing.T) {
	for call, want := range map[string]bool{
		"list gpupools.karpenter-gpu.dev":         true,
		"watch gpupools.karpenter-gpu.dev":        true,
		"patch gpupools.karpenter-gpu.dev/status": true,
		"list nodes":                                                           true,
		"patch nodes":                                                          true,
		"list daemonsets.apps":                                                 true,
		"list pods":                                                            true,
		"delete nodeclaims.karpenter.sh":                                       true,
		"list nodeclaims.karpenter.sh":                                         true,
		"list nodepools.karpenter.sh":                                          true,
		"get ec2nodeclasses.karpenter.k8s.aws":                                 true,
		"patch capacitybuffers.autoscaling.x-k8s.io/status":                    true,
		"create events default/":                                               true,
		"get configmaps gpu-operator/karpenter-gpu-mig-parted":                 true,
		"update configmaps gpu-operator/karpenter-gpu-mig-parted":              true,
		"update configmaps gpu-operator/karpenter-gpu-device-plugin":           true,
		"create configmaps gpu-operator/":                                      true,
		"patch leases.coordination.k8s.io karpenter/karpenter-leader-election": true,
		"update gpupools.karpenter-gpu.dev":                                    false,
		"delete gpupools.karpenter-gpu.dev":                                    false,
		"update configmaps gpu-operator/default-mig-parted-config":             false,
		"get configmaps default/karpenter-gpu-mig-parted":                      false,
		"delete configmaps gpu-operator/karpenter-gpu-mig-parted":              false,
		"patch pods":             false,
		"get secrets karpenter/": false,
		"patch nodes/status":     false,
	} {
		if got := c.may(t, "system:serviceaccount:karpenter:karpenter", call); got != want {
			t.Errorf("may %s: %t, want %t", call, got, want)
		}
	}
}

func (c cluster) testAdministrators(t *testing.T) {
	c.apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
`)
	c.eventually(t, "aggregation", func(context.Context) error {
		if !c.may(t, "alice", "create gpupools.karpenter-gpu.dev") || !c.may(t, "alice", "delete nodepools.karpenter.sh") {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

// may asks the API server about one call.
func (c cluster) may(t *testing.T, user, call string) bool {
	t.Helper()
	verb, rest, _ := strings.Cut(call, " ")
	rest, object, _ := strings.Cut(rest, " ")
	namespace, name, _ := strings.Cut(object, "/")
	rest, subresource, _ := strings.Cut(rest, "/")
	resource, group, _ := strings.Cut(rest, ".")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: verb, Group: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name,
	}}}
	if err := c.Client.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// testAgent: the DaemonSet reaches a node of a pool through the gate's taints, and no other,
// and its token writes that node only.
func (c cluster) testAgent(t *testing.T) {
	c.apply(t, "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: nvidia}\nhandler: nvidia\n")
	gpuNode := machine("gpu-1", map[string]string{v1alpha1.PoolLabelKey: "inference"}, v1alpha1.UnverifiedTaint(),
		corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}, corev1.Taint{Key: "nvidia.com/gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule})
	c.create(t, gpuNode)
	out := c.helm.must(t, "install", "gpu-agent", agentChart, "--namespace="+namespace, "--wait", "--timeout=3m")
	if strings.Contains(out, "There is no RuntimeClass") {
		t.Errorf("the notes miss the RuntimeClass:\n%s", out)
	}
	var pods corev1.PodList
	c.eventually(t, "the agent runs", func(ctx context.Context) error {
		if err := c.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "gpu-agent"}); err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Spec.NodeName != "gpu-1" || pods.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return nil
	})
	admin := kubernetes.NewForConfigOrDie(c.Config)
	pod := pods.Items[0]
	answer, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	agent := kubernetes.NewForConfigOrDie(c.ControlPlane.TokenConfig(answer.Status.Token))
	report := []byte(`{"metadata":{"annotations":{"karpenter-gpu.dev/report":"x"}}}`)
	if _, err := agent.CoreV1().Nodes().Patch(t.Context(), "gpu-1", types.MergePatchType, report, metav1.PatchOptions{}); err != nil {
		t.Errorf("its own report: %v", err)
	}
	c.eventually(t, "the policy holds", func(ctx context.Context) error {
		_, err := agent.CoreV1().Nodes().Patch(ctx, "system-a", types.MergePatchType, report, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "the GPU agent of node gpu-1 may change its own node only, not system-a") {
			return fmt.Errorf("another node's report: %w", err)
		}
		return nil
	})
}
