package stack

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/rbac"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

// TestRightsAndReplicas starts two replicas of a controller under the charts' rights.
func TestRightsAndReplicas(t *testing.T) {
	dir := pretended(t)
	s, err := Start(t.Context(), Options{
		Dir: filepath.Join(dir, "data"), BinDir: dir, Log: logr.Discard(),
		Settings: scenario.Settings{Replicas: 2, Env: map[string]string{pretend: "1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"mine", "other"} {
		if _, err := s.kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testController(t, s)
	testAgent(t, s)
	testReplicas(t, s)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := s.Usage()
	if err != nil {
		t.Fatal(err)
	}
	want := rbac.Usage{
		Used: []string{
			"gpu-agent: get nodes", "gpu-agent: patch nodes", "karpenter: create configmaps in gpu-operator", "karpenter: list nodes",
		},
		Denied: []string{
			"gpu-agent: list nodes, 1 times", "gpu-agent: patch nodes (" + ownNodeOnly + "), ",
			"karpenter: create configmaps in gpu-operator, 1 times", "karpenter: list secrets in kube-system, 1 times",
		},
	}
	for i, d := range got.Denied {
		if strings.Contains(d, ownNodeOnly) { // as often as it took until the policy held
			got.Denied[i] = "gpu-agent: patch nodes (" + ownNodeOnly + "), "
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// testController: it may do what the chart says, and in the GPU Operator's namespace once that exists.
func testController(t *testing.T, s *Stack) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.access.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	controller := kubernetes.NewForConfigOrDie(config)
	if _, err := controller.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := controller.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("secrets: %v", err)
	}
	create := func() error {
		_, err := controller.CoreV1().ConfigMaps(rbac.OperatorNamespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "karpenter-gpu-mig-parted"}}, metav1.CreateOptions{})
		return err
	}
	if err := create(); !apierrors.IsForbidden(err) {
		t.Errorf("without the namespace: %v", err)
	}
	if err := s.Apply(t.Context(), "{apiVersion: v1, kind: Namespace, metadata: {name: gpu-operator}}"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // the authorizer hears of a role by a watch
	if err := create(); err != nil {
		t.Errorf("with the namespace: %v", err)
	}
}

const ownNodeOnly = "the GPU agent of node mine may change its own node only, not other"

// testAgent: its token is good for its own node alone.
func testAgent(t *testing.T, s *Stack) {
	t.Helper()
	token, err := s.agentToken(t.Context(), "mine")
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = token
	nodes := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes()
	report := []byte(`{"metadata":{"annotations":{"karpenter-gpu.dev/report":"x"}}}`)
	if _, err := nodes.Get(t.Context(), "mine", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := nodes.Patch(t.Context(), "mine", types.MergePatchType, report, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := nodes.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list: %v", err)
	}
	for range 100 { // a policy holds some time after it was created
		_, err = nodes.Patch(t.Context(), "other", types.MergePatchType, report, metav1.PatchOptions{})
		if err != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err == nil || !strings.Contains(err.Error(), ownNodeOnly) {
		t.Errorf("another node: %v", err)
	}
	if _, err := s.agentToken(t.Context(), "none"); err == nil || !strings.Contains(err.Error(), "getting node none") {
		t.Errorf("a node that does not exist: %v", err)
	}
}

// testReplicas: another leads after a kill, and a rolling update replaces each process.
func testReplicas(t *testing.T, s *Stack) {
	t.Helper()
	first, err := s.leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.KillController(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := s.leader(t.Context())
	if err != nil || second == first {
		t.Fatalf("%s leads after it was killed, %v", first.name, err)
	}
	if err := s.ControllerExit(); err != nil {
		t.Errorf("a replica that was killed counts as one that ended by itself: %v", err)
	}
	if err := s.StartController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.StartController(t.Context()); err == nil || err.Error() != "starting the controller, it is running; kill it first" {
		t.Errorf("a second start: %v", err)
	}
	before := []int{s.processOf(first).Pid(), s.processOf(second).Pid()}
	if err := s.RollController(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, r := range []*replica{first, second} {
		if s.processOf(r).Pid() == before[i] {
			t.Errorf("%s was not replaced", r.name)
		}
	}
}
