package rbac

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// small are rights in the form of the charts.
const small = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: karpenter}
rules:
  - {apiGroups: [""], resources: [nodes, nodes/status], verbs: [patch]}
  - {apiGroups: [""], resources: [nodes], verbs: [patch, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: karpenter}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: karpenter}
subjects: [{kind: ServiceAccount, namespace: karpenter, name: karpenter}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: leases, namespace: karpenter}
rules:
  - {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [leader], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: leases, namespace: karpenter}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leases}
subjects: [{kind: ServiceAccount, namespace: karpenter, name: karpenter}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: unbound}
rules: [{apiGroups: [""], resources: [secrets], verbs: ["*"]}]
`

func grantsOf(t *testing.T, manifests string) []Grant {
	t.Helper()
	objects, err := parse([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	grants, err := Grants(objects)
	if err != nil {
		t.Fatal(err)
	}
	return grants
}

func names(grants []Grant) (all []string) {
	for _, g := range grants {
		all = append(all, g.String())
	}
	return all
}

func TestGrantsAreWhatBoundRolesSayEachOnce(t *testing.T) {
	want := []string{
		"karpenter: list nodes", "karpenter: patch nodes", "karpenter: patch nodes/status",
		"karpenter: update leases.coordination.k8s.io leader in karpenter",
	}
	if diff := cmp.Diff(want, names(grantsOf(t, small))); diff != "" {
		t.Error(diff)
	}
}

func TestGrantsThatNobodyCouldJudgeAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, message string }{
		"a wildcard":         {"verbs: [patch, list]", `verbs: ["*"]`, "has a wildcard or is about URLs"},
		"a URL":              {"verbs: [patch, list]", "verbs: [get], nonResourceURLs: [/metrics]", "has a wildcard or is about URLs"},
		"a role from afar":   {"kind: ClusterRole, name: karpenter", "kind: ClusterRole, name: cluster-admin", "reading ClusterRoleBinding karpenter, ClusterRole cluster-admin is not among the manifests"},
		"somebody else":      {"name: karpenter}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n", "name: other}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n", "its subject ServiceAccount karpenter/other is neither the controller's account nor the agent's"},
		"a group":            {"kind: ServiceAccount, namespace: karpenter, name: karpenter}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n", "kind: Group, name: all}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n", "its subject Group /all is neither"},
		"a role of no shape": {"rules:\n  - {apiGroups: [\"\"], resources: [nodes, nodes/status], verbs: [patch]}", "rules: many\nx:\n  -", "reading ClusterRole karpenter"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(small, tc.old) {
				t.Fatalf("%q is not in the manifests", tc.old)
			}
			objects, err := parse([]byte(strings.Replace(small, tc.old, tc.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			_, err = Grants(objects)
			if err == nil || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("got %v, want %q", err, tc.message)
			}
		})
	}
}

// entry is a line of the audit log.
func entry(account, verb, ref, more string) string {
	return fmt.Sprintf(`{"stage":"ResponseComplete","requestURI":"/api/x","verb":%q,"user":{"username":"system:serviceaccount:karpenter:%s"},"objectRef":{%s}%s}`+"\n", verb, account, ref, more)
}

const (
	allowed = `,"responseStatus":{"code":200},"annotations":{"authorization.k8s.io/decision":"allow"}`
	denied  = `,"responseStatus":{"code":403,"message":"no"},"annotations":{"authorization.k8s.io/decision":"forbid"}`
)

func TestAPatchThatMakesAnObjectUsesTheRightToCreate(t *testing.T) {
	grants := []Grant{
		{Account: Controller, Verb: "patch", Resource: "podtemplates"}, {Account: Controller, Verb: "create", Resource: "podtemplates"},
		{Account: Controller, Verb: "create", Resource: "pods"},
	}
	made := `,"responseStatus":{"code":201},"annotations":{"authorization.k8s.io/decision":"allow"}`
	for name, tc := range map[string]struct {
		more string
		want []string
	}{
		"made":    {made, []string{"karpenter: create podtemplates", "karpenter: patch podtemplates"}},
		"changed": {allowed, []string{"karpenter: patch podtemplates"}},
	} {
		got, err := Read(strings.NewReader(entry("karpenter", "patch", `"resource":"podtemplates","namespace":"a","name":"b"`, tc.more)), grants)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got.Used); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestLogTellsWhatWasUsedAndWhatWasDenied(t *testing.T) {
	node := `"resource":"nodes","name":"n","apiVersion":"v1"`
	for name, tc := range map[string]struct {
		log  string
		want Usage
	}{
		"an empty log": {"", Usage{}},
		"a call, often": {strings.Repeat(entry("karpenter", "patch", node, allowed), 3),
			Usage{Used: []string{"karpenter: patch nodes"}}},
		"a subresource is another grant": {entry("karpenter", "patch", node+`,"subresource":"status"`, allowed),
			Usage{Used: []string{"karpenter: patch nodes/status"}}},
		"a name and a namespace": {
			entry("karpenter", "update", `"apiGroup":"coordination.k8s.io","resource":"leases","namespace":"karpenter","name":"leader"`, allowed) +
				entry("karpenter", "update", `"apiGroup":"coordination.k8s.io","resource":"leases","namespace":"karpenter","name":"other"`, denied) +
				entry("karpenter", "update", `"apiGroup":"coordination.k8s.io","resource":"leases","namespace":"default","name":"leader"`, denied),
			Usage{
				Used:   []string{"karpenter: update leases.coordination.k8s.io leader in karpenter"},
				Denied: []string{"karpenter: update leases.coordination.k8s.io in default, 1 times", "karpenter: update leases.coordination.k8s.io in karpenter, 1 times"},
			}},
		"the same denial on many objects": {entry("karpenter", "delete", node, denied) + entry("karpenter", "delete", strings.Replace(node, `"n"`, `"m"`, 1), denied),
			Usage{Denied: []string{"karpenter: delete nodes, 2 times"}}},
		"a URL":         {strings.Replace(entry("karpenter", "get", "", denied), "/api/x", "/metrics", 1), Usage{Denied: []string{"karpenter: get /metrics, 1 times"}}},
		"somebody else": {strings.ReplaceAll(entry("karpenter", "list", node, allowed), "karpenter:karpenter", "default:default"), Usage{}},
		"a call that failed by itself": {entry("karpenter", "patch", node, `,"responseStatus":{"code":409},"annotations":{"authorization.k8s.io/decision":"allow"}`),
			Usage{Used: []string{"karpenter: patch nodes"}}},
		"what admission forbids": {entry("karpenter", "patch", node, `,"responseStatus":{"code":403,"message":"quota"},"annotations":{"authorization.k8s.io/decision":"allow"}`),
			Usage{Denied: []string{"karpenter: patch nodes (quota), 1 times"}}},
		"what the agent's policy forbids": {entry("gpu-agent", "patch", node, `,"responseStatus":{"code":422,"message":"its own node only"},"annotations":{"authorization.k8s.io/decision":"allow"}`),
			Usage{Denied: []string{"gpu-agent: patch nodes (its own node only), 1 times"}}},
		"an object of the controller that is not valid": {entry("karpenter", "patch", node, `,"responseStatus":{"code":422},"annotations":{"authorization.k8s.io/decision":"allow"}`),
			Usage{Used: []string{"karpenter: patch nodes"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(strings.NewReader(tc.log), grantsOf(t, small))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestABrokenLogIsAnError(t *testing.T) {
	_, err := Read(strings.NewReader(entry("karpenter", "patch", "", allowed)+`{"verb":`), nil)
	if err == nil || !strings.Contains(err.Error(), "reading the audit log") {
		t.Errorf("got %v", err)
	}
}

func TestJudge(t *testing.T) {
	why := func(grants ...string) []Exception { return []Exception{{Reason: "upstream grants it", Grants: grants}} }
	const lease = "karpenter: update leases.coordination.k8s.io leader in karpenter"
	for name, tc := range map[string]struct {
		used   []string
		except []Exception
		want   Verdict
	}{
		"all is used": {used: []string{"karpenter: list nodes", "karpenter: patch nodes", "karpenter: patch nodes/status", lease},
			want: Verdict{Used: []string{"karpenter: list nodes", "karpenter: patch nodes", "karpenter: patch nodes/status", lease}}},
		"one is not, one is excepted": {used: []string{"karpenter: patch nodes", "karpenter: patch nodes/status"}, except: why(lease),
			want: Verdict{Used: []string{"karpenter: patch nodes", "karpenter: patch nodes/status"}, Excepted: []string{lease}, Unneeded: []string{"karpenter: list nodes"}}},
		"an exception that is used": {used: []string{"karpenter: list nodes", "karpenter: patch nodes", "karpenter: patch nodes/status", lease}, except: why(lease),
			want: Verdict{Used: []string{"karpenter: list nodes", "karpenter: patch nodes", "karpenter: patch nodes/status", lease}, Idle: []string{lease}}},
		"exceptions with faults": {
			used:   []string{"karpenter: list nodes", "karpenter: patch nodes", "karpenter: patch nodes/status"},
			except: append(why(lease, lease, "karpenter: get secrets"), Exception{Reason: " "}),
			want: Verdict{
				Used: []string{"karpenter: list nodes", "karpenter: patch nodes", "karpenter: patch nodes/status"}, Excepted: []string{lease},
				Faults: []string{
					"exception 2 gives no reason: say why the chart grants what no scenario needs",
					"karpenter: get secrets is excepted and no chart grants it: remove the exception",
					lease + " is excepted twice: remove one",
				},
			}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Judge(grantsOf(t, small), tc.used, tc.except)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if ok := len(tc.want.Unneeded)+len(tc.want.Faults) == 0; got.OK() != ok {
				t.Errorf("OK is %t", got.OK())
			}
		})
	}
}

// What the charts grant can be judged, and each exception is of something that they do grant.
func TestManifestsAndExceptionsAreSound(t *testing.T) {
	objects, err := Objects()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if !GrantsRights(o) {
			t.Errorf("%s %s says nothing about rights", o.GetKind(), o.GetName())
		}
	}
	grants, err := Grants(objects)
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(names(grants), "\n"); !strings.Contains(all, "karpenter: list gpupools.karpenter-gpu.dev\n") || !strings.Contains(all, "gpu-agent: patch nodes/status\n") {
		t.Errorf("controller or agent has no rights:\n%s", all)
	}
	except, err := Exceptions()
	if err != nil {
		t.Fatal(err)
	}
	if v := Judge(grants, nil, except); len(v.Faults) > 0 {
		t.Error(strings.Join(v.Faults, "\n"))
	}
	ours, err := Grants(slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return !strings.HasPrefix(o.GetName(), "karpenter-gpu") && o.GetName() != Agent
	}))
	if err != nil || len(ours) < 5 {
		t.Fatalf("%d grants are ours, %v", len(ours), err)
	}
	for _, e := range except {
		for _, g := range names(ours) {
			if slices.Contains(e.Grants, g) {
				t.Errorf("%s is a rule of ours, beyond Karpenter's own chart: let a scenario need it, or remove it", g)
			}
		}
	}
}
