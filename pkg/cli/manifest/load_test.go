package manifest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
)

func load(text string) (*manifest.Set, error) {
	return manifest.Load([]string{manifest.StandardInput}, strings.NewReader(text))
}

const container = `containers: [{name: main, image: main}]`

func TestFaultsNameFileDocumentAndField(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"no kind":            {`metadata: {name: a}`, `standard input, document 1: kind: missing; write one, such as Deployment`},
		"no apiVersion":      {"# first\n---\nkind: Pod\nmetadata: {name: a}", `standard input, document 2: apiVersion: missing; write one, such as apps/v1`},
		"a list of words":    {`[a, b]`, `standard input, document 1: not an object; write apiVersion, kind and metadata`},
		"no name":            {"apiVersion: v1\nkind: Pod\nspec: {" + container + "}", `standard input, document 1: Pod: metadata.name: missing; objects need a name`},
		"a name given twice": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}", `standard input, document 2: Namespace a: metadata.name: already given in standard input, document 1; give each object once`},
		"a version of long ago": {"apiVersion: apps/v1beta9\nkind: Deployment\nmetadata: {name: a}",
			`standard input, document 1: Deployment a: apiVersion: "apps/v1beta9" is a version that is not read; convert the object to the current one`},
		"no containers": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}", `standard input, document 1: Pod a: spec.containers: missing; a pod needs at least one`},
		"an amount that is none": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: x, image: x, resources: {requests: {cpu: many}}}]}",
			`standard input, document 1: Pod a: spec.containers[0].resources.requests.cpu: "many" does not fit, quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`},
		"a request above its limit": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: x, image: x, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}",
			`standard input, document 1: Pod a: spec.containers[0].resources.requests[cpu]: 2 is more than the limit of 1; raise the limit`},
		"a GPU asked for without a limit": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: x, image: x, resources: {requests: {nvidia.com/gpu: 1}}}]}",
			`standard input, document 1: Pod a: spec.containers[0].resources.requests[nvidia.com/gpu]: needs a limit of the same amount, because the resource cannot be overcommitted; write it under limits`},
		"a negative limit": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: x, image: x, resources: {limits: {nvidia.com/gpu: -1}}}]}",
			`standard input, document 1: Pod a: spec.containers[0].resources.requests[nvidia.com/gpu]: -1 is negative; use 0 or more`},
		"more pods than a plan takes": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 2000000000, selector: {}, template: {spec: {" + container + "}}}",
			`standard input, document 1: Deployment a: the number of pods is 2000000000; use 0 to 100000`},
		"a fault of an item of a List": {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {" + container + ", nodename: b}}]",
			`standard input, document 1, item 1: Pod a: unknown field "spec.nodename"; remove or correct it`},
		"a NodePool that its schema refuses": {"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: {weight: 500, template: {spec: {nodeClassRef: {group: g, kind: K, name: c}, requirements: []}}}",
			`standard input, document 1: NodePool a: spec.weight: Invalid value: 500: spec.weight in body should be less than or equal to 100`},
		"a GPUPool that its CEL rules refuse": {"apiVersion: karpenter-gpu.dev/v1alpha1\nkind: GPUPool\nmetadata: {name: a}\nspec: {partitioning: {mps: {replicas: 1}}}",
			`standard input, document 1: GPUPool a: spec.partitioning.mps.replicas: Invalid value: 1: mps.replicas must be from 2 to 48, the most clients that MPS serves on one GPU; use timeSlicing for more, or remove mps to hand out whole GPUs`},
		"a time zone that is none": {"apiVersion: karpenter-gpu.dev/v1alpha1\nkind: GPUPool\nmetadata: {name: a}\nspec: {warm: [{name: w, gpus: 1, schedule: {windows: [{start: '0 7 * * *', duration: 1h, timeZone: Mars/Base}]}}]}",
			`standard input, document 1: GPUPool a: spec.warm[0].schedule.windows[0].timeZone: Invalid value: "Mars/Base": not the IANA name of a time zone; write one such as UTC or Europe/Berlin`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(tc.in)
			if err == nil {
				t.Fatal("no error")
			}
			if d := cmp.Diff(tc.want, err.Error()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestFaultyYAMLNamesTheDocument(t *testing.T) {
	_, err := load("kind: Pod\n---\nkind: Pod\nkind: Pod\n")
	if err == nil || !strings.Contains(err.Error(), "document 1: apiVersion: missing") || !strings.Contains(err.Error(), "document 2: ") || !strings.Contains(err.Error(), `key "kind" already set`) {
		t.Errorf("got %v", err)
	}
}

func TestPathsThatCannotBeRead(t *testing.T) {
	empty := t.TempDir()
	missing := filepath.Join(empty, "missing.yaml")
	_, err := manifest.Load([]string{missing, empty}, nil)
	want := fmt.Sprintf("reading %s, no such file or directory\nreading directory %s, no .yaml, .yml or .json file in it; subdirectories are not read, name them too", missing, empty)
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestDirectoriesAreReadInOrder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: second}", "a.json": `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "first"}}`,
		"c.yml": "# nothing\n---\n", "notes.txt": "not read",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := manifest.Load([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"first", "second"}, lo.Map(s.Objects, func(o client.Object, _ int) string { return o.GetName() })); d != "" {
		t.Error(d)
	}
}

func TestWorkloadsBecomePods(t *testing.T) {
	template := "template: {metadata: {labels: {app: a}}, spec: {" + container + "}}"
	for name, tc := range map[string]struct {
		in   string
		want []string
	}{
		"a Deployment has one pod unless it says more": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {selector: {}, " + template + "}", []string{"default/a-0 of Deployment default/a"}},
		"a StatefulSet with replicas":                  {"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a, namespace: team}\nspec: {replicas: 2, serviceName: a, selector: {}, " + template + "}", []string{"team/a-0 of StatefulSet team/a", "team/a-1 of StatefulSet team/a"}},
		"a ReplicaSet scaled to nothing":               {"apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: a}\nspec: {replicas: 0, selector: {}, " + template + "}", nil},
		"a Job runs no more at once than it completes": {"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {parallelism: 3, completions: 1, " + template + "}", []string{"default/a-0 of Job default/a"}},
		"a Job that is suspended":                      {"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {suspend: true, " + template + "}", nil},
		"a CronJob counts as one run":                  {"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {schedule: '0 * * * *', jobTemplate: {spec: {parallelism: 2, " + template + "}}}", []string{"default/a-0 of CronJob default/a", "default/a-1 of CronJob default/a"}},
		"a Pod":                                        {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {" + container + "}", []string{"default/a of Pod default/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := load(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			got := lo.Map(s.Pods, func(p *corev1.Pod, _ int) string {
				return fmt.Sprintf("%s/%s of %s", p.Namespace, p.Name, p.Annotations[manifest.WorkloadAnnotation])
			})
			if d := cmp.Diff(tc.want, lo.Ternary(len(got) == 0, nil, got)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestLimitsBecomeRequestsAsInTheAPIServer(t *testing.T) {
	s, err := load("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: x, image: x, resources: {requests: {cpu: 1}, limits: {cpu: 2, nvidia.com/gpu: 4}}}]}")
	if err != nil {
		t.Fatal(err)
	}
	r := s.Pods[0].Spec.Containers[0].Resources.Requests
	if r.Cpu().String() != "1" || r.Name("nvidia.com/gpu", "").String() != "4" {
		t.Errorf("requests are %v", r)
	}
}

func TestPodsThatWereReadFromAClusterAreNew(t *testing.T) {
	s, err := load("apiVersion: v1\nkind: Pod\nmetadata: {name: a, uid: u, resourceVersion: '7'}\nspec: {" + container + "}\nstatus: {phase: Pending}")
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Pods[0]; p.ResourceVersion != "" || p.UID != "u" || p.Status.Conditions[0].Reason != corev1.PodReasonUnschedulable {
		t.Errorf("got %+v", p)
	}
}

func TestVolumesOfAStatefulSetAreItsPods(t *testing.T) {
	s, err := load("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\nspec: {replicas: 2, serviceName: a, selector: {}, template: {spec: {" + container + "}}, volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast}}]}")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"data-a-0", "data-a-1"}, lo.Map(s.Objects, func(o client.Object, _ int) string { return o.GetName() })); d != "" {
		t.Error(d)
	}
	if got := s.Pods[1].Spec.Volumes[0].PersistentVolumeClaim.ClaimName; got != "data-a-1" {
		t.Errorf("the second pod has claim %s", got)
	}
}

func TestWhatHasNoPartIsIgnoredWithAReason(t *testing.T) {
	s, err := load(strings.Join([]string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: team}",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: bound}\nspec: {nodeName: node, " + container + "}",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: over}\nspec: {" + container + "}\nstatus: {phase: Succeeded}",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: gated}\nspec: {schedulingGates: [{name: wait}], " + container + "}",
	}, "\n---\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []manifest.Ignored{
		{Kind: "Service", Name: "team/s", From: "standard input, document 1", Reason: "kind has no part in a plan"},
		{Kind: "Pod", Name: "default/bound", From: "standard input, document 2", Reason: "it has a node already"},
		{Kind: "Pod", Name: "default/over", From: "standard input, document 3", Reason: "it has ended"},
		{Kind: "Pod", Name: "default/gated", From: "standard input, document 4", Reason: "spec.schedulingGates holds it back"},
	}
	if d := cmp.Diff(want, s.Ignored); d != "" {
		t.Error(d)
	}
	if len(s.Pods) != 0 {
		t.Errorf("%d pods are planned for", len(s.Pods))
	}
}

func TestFilesReplaceWhatTheClusterHas(t *testing.T) {
	have, err := load("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {priority: 1, " + container + "}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {" + container + "}")
	if err != nil {
		t.Fatal(err)
	}
	with, err := load("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {priority: 2, " + container + "}")
	if err != nil {
		t.Fatal(err)
	}
	have.Override(with)
	got := lo.Map(have.Pods, func(p *corev1.Pod, _ int) string { return fmt.Sprint(p.Name, lo.FromPtr(p.Spec.Priority)) })
	if d := cmp.Diff([]string{"b0", "a2"}, got); d != "" {
		t.Error(d)
	}
}

// FuzzLoad looks for input that makes the reader panic, or that is refused without a
// word of where.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {" + container + "}", "a: &a [*a]", "{}", "---\n---\n", "kind: List\nitems: [1]\napiVersion: v1",
		"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: null", "apiVersion: karpenter-gpu.dev/v1alpha1\nkind: GPUPool\nmetadata: {name: a}\nspec: {warm: [null]}",
		"apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: a}\nspec: {kubelet: {evictionHard: {memory.available: '%'}}}",
		"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: 1}\nspec: 3",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := load(text); err != nil && !strings.HasPrefix(err.Error(), "standard input, document ") {
			t.Errorf("%q is refused with %v", text, err)
		}
	})
}
