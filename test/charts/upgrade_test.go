package charts_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// userValues are what somebody set for Karpenter's own chart.
var userValues = []string{
	"--set=settings.clusterName=prod", "--set=settings.interruptionQueue=prod-queue", "--set=settings.featureGates.nodeRepair=true",
	"--set=controller.resources.requests.cpu=1", "--set=podLabels.team=platform", "--set=serviceAccount.annotations.eks\\.amazonaws\\.com/role-arn=arn:x",
}

// workload is a NodePool, what it launched, and a pod there.
const workload = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: prod}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: prod}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
  limits: {cpu: 100}
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: default-x
  labels: {karpenter.sh/nodepool: default}
  annotations: {karpenter.sh/nodepool-hash: "1", karpenter.sh/nodepool-hash-version: v3}
  finalizers: [karpenter.sh/termination]
spec:
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
  requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
---
apiVersion: v1
kind: Pod
metadata: {name: training, namespace: default}
spec:
  nodeSelector: {karpenter.sh/nodepool: default}
  containers: [{name: train, image: example.com/train}]
`

const ourPool = `
apiVersion: karpenter-gpu.dev/v1alpha1
kind: GPUPool
metadata: {name: inference}
spec: {limits: {gpus: 8}}
`

// TestUpgradeAndWayBack goes from Karpenter's own charts to ours, back, again, and away. The
// pods of the controllers run on KWOK's kubelets and do nothing: what is tested is that Helm
// leaves everything alone that Karpenter would have to answer for.
func TestUpgradeAndWayBack(t *testing.T) {
	c := startCluster(t)
	selector := map[string]string{"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
	in := []string{"--namespace=" + namespace, "--wait", "--timeout=3m"}
	with := func(args []string, more ...string) []string { return append(append(args, in...), more...) }
	ourImage := "Running ghcr.io/karpenter-gpu/controller:0.1.0"

	c.helm.must(t, with([]string{"install", "karpenter-crd", stock(t, "karpenter-crd")})...)
	c.helm.must(t, with([]string{"install", "karpenter", stock(t, "karpenter")}, userValues...)...)
	c.create(t, machine("default-x", map[string]string{"karpenter.sh/nodepool": "default"}))
	c.apply(t, workload)
	c.eventually(t, "the pod runs", c.running("training"))
	before := c.state(t)
	if len(before) != 7 {
		t.Fatalf("want 3 nodes, a pod and 3 objects of Karpenter, have %d: %v", len(before), before)
	}
	stockImages := c.images(t, selector)
	identity := c.identity(t)
	values := c.helm.must(t, "get", "values", "karpenter", "--namespace="+namespace)

	t.Log("an upgrade that would keep the old image is refused, and changes nothing")
	_, err := c.helm.run(t, with([]string{"upgrade", "karpenter", controller, "--reuse-values"})...)
	if err == nil || !strings.Contains(err.Error(), "Upgrade with --reset-then-reuse-values in place of --reuse-values") {
		t.Fatalf("--reuse-values: %v", err)
	}
	before.mustBe(t, "after the refused upgrade", c.state(t))

	t.Log("upgrade")
	c.helm.must(t, with([]string{"upgrade", "karpenter-crd", definitions})...)
	notes := c.helm.must(t, with([]string{"upgrade", "karpenter", controller, "--reset-then-reuse-values"})...)
	if next := "Next: install the agent that verifies GPUs, make a GPUPool, and let a NodePool join it"; !strings.Contains(notes, next) {
		t.Errorf("%q is not in the notes:\n%s", next, notes)
	}
	before.mustBe(t, "after the upgrade", c.state(t))
	if diff := cmp.Diff([]string{ourImage, ourImage}, c.images(t, selector)); diff != "" {
		t.Errorf("pods after the upgrade (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(identity, c.identity(t)); diff != "" {
		t.Errorf("objects were replaced (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(values, c.helm.must(t, "get", "values", "karpenter", "--namespace="+namespace)); diff != "" {
		t.Errorf("values (-before +after):\n%s", diff)
	}
	c.mustHaveUserValues(t)

	t.Log("somebody makes a GPUPool, which a NodePool joins")
	c.apply(t, ourPool)
	nodePool := c.get(t, nodePoolKind, "", "default")
	nodePool.SetLabels(map[string]string{"karpenter-gpu.dev/pool": "inference"})
	if err := c.Client.Update(t.Context(), nodePool); err != nil {
		t.Fatal(err)
	}
	before, pool := c.state(t), c.get(t, gpuPoolKind, "", "inference")

	t.Log("way back")
	c.helm.must(t, with([]string{"rollback", "karpenter", "1"})...)
	c.helm.must(t, with([]string{"rollback", "karpenter-crd", "1"})...)
	before.mustBe(t, "after the rollback", c.state(t))
	if diff := cmp.Diff(stockImages, c.images(t, selector)); diff != "" {
		t.Errorf("pods after the rollback (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(pool, c.get(t, gpuPoolKind, "", "inference")); diff != "" {
		t.Errorf("the GPUPool after the rollback (-before +after):\n%s", diff)
	}
	if c.get(t, clusterRoleKind, "", "karpenter-gpu") != nil {
		t.Error("the rollback leaves our ClusterRole behind")
	}

	t.Log("again, and away")
	c.helm.must(t, with([]string{"upgrade", "karpenter-crd", definitions})...)
	c.helm.must(t, with([]string{"upgrade", "karpenter", controller, "--reset-then-reuse-values"})...)
	c.helm.must(t, with([]string{"uninstall", "karpenter"})...)
	c.helm.must(t, with([]string{"uninstall", "karpenter-crd"})...)
	before.mustBe(t, "after uninstalling", c.state(t))
	if diff := cmp.Diff(pool, c.get(t, gpuPoolKind, "", "inference")); diff != "" {
		t.Errorf("the GPUPool after uninstalling (-before +after):\n%s", diff)
	}
	if images := c.images(t, selector); len(images) > 0 {
		t.Errorf("uninstalling leaves %v", images)
	}

	t.Log("definitions that a release left behind are taken over")
	c.helm.must(t, with([]string{"install", "definitions", definitions, "--take-ownership"})...)
	before.mustBe(t, "after taking over", c.state(t))
}

// identity are the UIDs of objects that a replacement would change.
func (c cluster) identity(t *testing.T) map[string]any {
	t.Helper()
	uids := map[string]any{}
	for _, entry := range []struct {
		u *unstructured.Unstructured
	}{
		{c.get(t, deploymentKind, namespace, "karpenter")},
		{c.get(t, serviceAcctKind, namespace, "karpenter")},
		{c.get(t, clusterRoleKind, "", "karpenter-core")},
		{c.get(t, definitionKind, "", "nodepools.karpenter.sh")},
	} {
		uids[entry.u.GetKind()] = entry.u.GetUID()
	}
	return uids
}

func (c cluster) mustHaveUserValues(t *testing.T) {
	t.Helper()
	deployment := as[appsv1.Deployment](t, c.get(t, deploymentKind, namespace, "karpenter"))
	container := deployment.Spec.Template.Spec.Containers[0]
	env := environment(container)
	got := []string{env["CLUSTER_NAME"], env["INTERRUPTION_QUEUE"], container.Resources.Requests.Cpu().String(),
		deployment.Spec.Template.Labels["team"], c.get(t, serviceAcctKind, namespace, "karpenter").GetAnnotations()["eks.amazonaws.com/role-arn"]}
	if diff := cmp.Diff([]string{"prod", "prod-queue", "1", "platform", "arn:x"}, got); diff != "" {
		t.Errorf("what the user had set (-want +got):\n%s", diff)
	}
	if !strings.Contains(env["FEATURE_GATES"], "NodeRepair=true") {
		t.Errorf("FEATURE_GATES is %s", env["FEATURE_GATES"])
	}
}
