package kwoknode

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

const nodeadmScript = `MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/x-shellscript

#!/bin/bash
echo prepared
--//
Content-Type: application/node.eks.aws

# Karpenter Generated NodeConfig
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: sandbox, apiServerEndpoint: "https://x", cidr: 10.96.0.0/16}
  instance: {localStorage: {strategy: RAID0}}
  kubelet:
    config:
      maxPods: 42
      systemReserved: {memory: 100Mi}
      registerWithTaints:
      - {key: karpenter.sh/unregistered, effect: NoExecute}
      - {key: nvidia.com/gpu, value: "true", effect: NoSchedule}
    flags:
    - --node-labels="karpenter.sh/nodepool=gpu,team=a b"
--//--
`

const bootstrapScript = `#!/bin/bash -xe
/etc/eks/bootstrap.sh 'sandbox' --apiserver-endpoint 'https://x' --b64-cluster-ca 'aaa' \
--use-max-pods false \
--kubelet-extra-args '--node-labels="karpenter.sh/nodepool=gpu" --register-with-taints="karpenter.sh/unregistered:NoExecute,a=b:NoSchedule" --max-pods=11 --eviction-hard="memory.available<5%"' \
--local-disks raid0`

const bottlerocketToml = `[settings]
[settings.kubernetes]
cluster-name = 'sandbox'
max-pods = 9
[settings.kubernetes.node-labels]
'karpenter.sh/nodepool' = 'gpu'
[settings.kubernetes.node-taints]
'karpenter.sh/unregistered' = [':NoExecute']
[settings.kubernetes.kube-reserved]
cpu = '100m'
`

var unregistered = corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}

func TestReadUserData(t *testing.T) {
	gpu := map[string]string{"karpenter.sh/nodepool": "gpu"}
	for sentence, tc := range map[string]struct {
		script string
		want   kubelet
	}{
		"nodeadm gives labels by flag and taints by config": {nodeadmScript, kubelet{
			labels:  map[string]string{"karpenter.sh/nodepool": "gpu", "team": "a b"},
			taints:  []corev1.Taint{unregistered, {Key: "nvidia.com/gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule}},
			maxPods: 42, systemReserved: map[string]string{"memory": "100Mi"}, raid0: true,
		}},
		"bootstrap.sh gives all by kubelet flags": {bootstrapScript, kubelet{
			labels: gpu, taints: []corev1.Taint{unregistered, {Key: "a", Value: "b", Effect: corev1.TaintEffectNoSchedule}},
			maxPods: 11, evictionHard: map[string]string{"memory.available": "5%"}, raid0: true,
		}},
		"bottlerocket gives all by settings": {bottlerocketToml, kubelet{
			labels: gpu, taints: []corev1.Taint{unregistered}, maxPods: 9, kubeReserved: map[string]string{"cpu": "100m"},
		}},
		"a script of a custom image says nothing": {"#!/bin/sh\necho hello", kubelet{labels: map[string]string{}}},
		"no user data says nothing":               {"", kubelet{labels: map[string]string{}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := readUserData(tc.script)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(kubelet{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadUserDataRejects(t *testing.T) {
	for sentence, tc := range map[string]struct{ script, want string }{
		"an archive without a boundary":      {"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"x\"\n\nno parts", "reading user data"},
		"an archive without a content type":  {"MIME-Version: 1.0\n\nx", "content type"},
		"a NodeConfig that is not YAML":      {strings.Replace(nodeadmScript, "kind: NodeConfig", "kind: [", 1), "reading NodeConfig"},
		"a taint without effect":             {strings.Replace(bootstrapScript, "a=b:NoSchedule", "a=b", 1), `taint "a=b" has no effect`},
		"a pod limit that is not a number":   {strings.Replace(bootstrapScript, "--max-pods=11", "--max-pods=x", 1), `--max-pods="x"`},
		"kubelet flags whose quote is open":  {"#!/bin/sh\n/etc/eks/bootstrap.sh --kubelet-extra-args '--x=1", "is not closed"},
		"bottlerocket settings with a fault": {"[settings\n", "reading bottlerocket settings"},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := readUserData(tc.script)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// FuzzReadUserData checks that no user data brings the launcher down.
func FuzzReadUserData(f *testing.F) {
	for _, seed := range []string{nodeadmScript, bootstrapScript, bottlerocketToml, "", "--node-labels=\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, script string) {
		k, err := readUserData(script)
		if err == nil && k.labels == nil {
			t.Error("labels are nil")
		}
	})
}
