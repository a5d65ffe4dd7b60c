package aws_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
)

func (w *world) admin(method, path, body string) (int, string) {
	w.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, w.URL()+path, strings.NewReader(body))
	w.must(err)
	res, err := http.DefaultClient.Do(req)
	w.must(err)
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	w.must(err)
	return res.StatusCode, string(raw)
}

func TestAdminInterface(t *testing.T) {
	w := start(t, aws.Options{})
	w.template("lt", nil)
	spot := w.one("spot")
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/_sim/healthz", "", 200, `"ok": true`},
		{"POST", "/_sim/faults", `{"kind":"capacity","instanceType":"g5.*","capacityType":"spot","for":"90s"}`, 200, `"id": "fault-`},
		{"GET", "/_sim/faults", "", 200, `"until": "2026-07-20T12:01:30Z"`},
		{"POST", "/_sim/faults", `{"kind":"capacity","color":"red"}`, 400, `unknown field \"color\"`},
		{"POST", "/_sim/faults", `{"kind":"capacity","for":"soon"}`, 400, `parsing duration \"soon\"`},
		{"POST", "/_sim/faults", `{"kind":"capacity"}{}`, 400, "more than one document"},
		{"DELETE", "/_sim/faults/fault-1", "", 400, `clearing fault \"fault-1\"`},
		{"DELETE", "/_sim/faults?kind=capacity", "", 200, ""},
		{"GET", "/_sim/faults", "", 200, "[]"},
		{"POST", "/_sim/instances/" + spot + "/interrupt", "", 200, spot},
		{"POST", "/_sim/instances/" + spot + "/fail", "", 200, spot},
		{"POST", "/_sim/instances/i-none/terminate", "", 400, `instance \"i-none\" does not exist`},
		{"POST", "/_sim/report", `{"nodeClaims":[]}`, 200, `"orphans": [`},
		{"POST", "/_sim/reservations", `{"id":"cr-9","instanceType":"g5.xlarge","zone":"us-east-1a","count":2}`, 200, "cr-9"},
		{"POST", "/_sim/reservations", `{"instanceType":"g5.xlarge","zone":"us-west-2a","count":2}`, 400, "use one of"},
		{"DELETE", "/_sim/reservations/cr-9", "", 200, ""},
		{"DELETE", "/_sim/reservations/cr-9", "", 400, "does not exist"},
		{"GET", "/elsewhere", "", 404, "is no call of a simulated service"},
	} {
		if status, body := w.admin(tc.method, tc.path, tc.body); status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s %s answers %d %s, want %d with %s", tc.method, tc.path, tc.body, status, body, tc.status, tc.want)
		}
	}
	_, raw := w.admin("GET", "/_sim/report", "")
	r := aws.Report{}
	w.must(json.Unmarshal([]byte(raw), &r))
	if r.Launched != 1 || r.Interrupted != 1 || r.Failed != 1 || r.Instances[0].NodePool != "gpu" {
		t.Errorf("report is %+v", r)
	}
}

func (w *world) query(version, action, more string) (int, string) {
	w.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, w.URL()+"/",
		strings.NewReader(fmt.Sprintf("Action=%s&Version=%s%s", action, version, more)))
	w.must(err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	w.must(err)
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	w.must(err)
	return res.StatusCode, string(raw)
}

func TestOtherServices(t *testing.T) {
	w := start(t, aws.Options{ClusterName: "demo", KubernetesVersion: "1.37"})
	const iam = "2010-05-08"
	for _, tc := range []struct {
		action, more string
		status       int
		want         string
	}{
		{"GetInstanceProfile", "&InstanceProfileName=p", 404, "<Code>NoSuchEntity</Code>"},
		{"CreateInstanceProfile", "&InstanceProfileName=p&Path=/karpenter/&Tags.member.1.Key=a&Tags.member.1.Value=b", 200, "<Path>/karpenter/</Path>"},
		{"CreateInstanceProfile", "&InstanceProfileName=p", 400, "EntityAlreadyExists"},
		{"AddRoleToInstanceProfile", "&InstanceProfileName=p&RoleName=r", 200, "AddRoleToInstanceProfileResponse"},
		{"GetInstanceProfile", "&InstanceProfileName=p", 200, "<RoleName>r</RoleName>"},
		{"DeleteInstanceProfile", "&InstanceProfileName=p", 400, "DeleteConflict"},
		{"ListInstanceProfiles", "&PathPrefix=/karpenter/", 200, "<IsTruncated>false</IsTruncated>"},
		{"RemoveRoleFromInstanceProfile", "&InstanceProfileName=p&RoleName=r", 200, ""},
		{"DeleteInstanceProfile", "&InstanceProfileName=p", 200, ""},
		{"GetRole", "&RoleName=r", 200, "role/r"},
		{"MakeCoffee", "", 400, "MakeCoffee"},
	} {
		if status, body := w.query(iam, tc.action, tc.more); status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s answers %d %s, want %d with %s", tc.action, status, body, tc.status, tc.want)
		}
	}
	if _, body := w.query("2011-06-15", "GetCallerIdentity", ""); !strings.Contains(body, "<Account>123456789012</Account>") {
		t.Errorf("STS answers %s", body)
	}
	if status, body := w.admin("GET", "/clusters/demo", ""); status != 200 || !strings.Contains(body, `"serviceIpv4Cidr":"10.96.0.0/16"`) {
		t.Errorf("EKS answers %d %s", status, body)
	}
	if status, body := w.admin("GET", "/clusters/other", ""); status != 400 || !strings.Contains(body, "No cluster found") {
		t.Errorf("EKS answers %d %s", status, body)
	}
}
