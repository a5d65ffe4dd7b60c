package aws_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
)

func TestInstanceBootsRunsAndEnds(t *testing.T) {
	w, ctx := start(t, aws.Options{BootDelay: aws.Fixed(40 * time.Second), ShutdownDelay: aws.Fixed(20 * time.Second)}), context.Background()
	w.template("lt", nil)
	id := w.one("spot")
	if w.instance(id).State != aws.Pending {
		t.Errorf("a new instance is %s", w.instance(id).State)
	}
	w.pass(10 * time.Second)
	w.eventually("running before it has booted", func() bool { return w.instance(id).State == aws.Running })
	if w.nodes.did("launch " + id) {
		t.Error("the node came before the boot delay was over")
	}
	w.pass(30 * time.Second)
	w.eventually("a node", func() bool { return w.instance(id).BootedAt != nil && w.nodes.did("launch "+id) })

	out, err := w.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		filter("tag-key", "karpenter.sh/nodepool"), filter("tag:karpenter.sh/nodepool", "gpu"), filter("instance-state-name", "pending", "running")}})
	w.must(err)
	i := out.Reservations[0].Instances[0]
	if *i.InstanceId != id || i.SpotInstanceRequestId == nil || *i.PrivateDnsName != "ip-10-0-0-4.ec2.internal" || *i.ImageId != "ami-1" ||
		*i.SecurityGroups[0].GroupId != "sg-1" || !i.LaunchTime.Equal(epoch) {
		t.Errorf("described as %+v", i)
	}
	gone, err := w.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	w.must(err)
	if gone.TerminatingInstances[0].CurrentState.Name != "shutting-down" {
		t.Errorf("after termination: %v", gone.TerminatingInstances[0].CurrentState)
	}
	w.eventually("heartbeats stopped", func() bool { return w.nodes.did("fail " + id) })
	w.pass(20 * time.Second)
	w.eventually("terminated", func() bool { return w.instance(id).State == aws.Terminated && w.nodes.did("terminate "+id) })
	w.clock.Step(2 * time.Hour)
	_, err = w.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if w.code(err) != "InvalidInstanceID.NotFound" {
		t.Errorf("long after its end: %v", err)
	}
}

func TestLauncherIsRetried(t *testing.T) {
	w := start(t, aws.Options{BootDelay: aws.Fixed(time.Second)})
	w.template("lt", nil)
	w.nodes.refuse = 2
	id := w.one("on-demand")
	w.eventually("a node in the third attempt", func() bool {
		w.clock.Step(time.Second)
		return w.nodes.did("launch " + id)
	})
}

func TestBootFaults(t *testing.T) {
	w := start(t, aws.Options{BootDelay: aws.Fixed(time.Second)})
	w.template("lt", nil)
	for _, f := range []aws.Fault{{Never: true}, {Delay: aws.Duration(time.Hour)}} {
		f.Kind, f.Count = aws.BootFault, 1
		_, err := w.AddFault(f)
		w.must(err)
	}
	never, late, normal := w.one("on-demand"), w.one("on-demand"), w.one("on-demand")
	w.eventually("the third boots", func() bool { w.clock.Step(time.Second); return w.nodes.did("launch " + normal) })
	if w.instance(never).BootAt != nil || w.instance(late).BootedAt != nil {
		t.Error("boot faults had no effect")
	}
	w.eventually("the second boots late", func() bool { w.clock.Step(10 * time.Minute); return w.nodes.did("launch " + late) })
	if w.nodes.did("launch " + never) {
		t.Error("the first booted")
	}
}

func TestSpotInterruptionWarnsThenEnds(t *testing.T) {
	w := start(t, aws.Options{InterruptionQueue: "events", BootDelay: aws.Fixed(time.Second)})
	w.template("lt", nil)
	id, steady := w.one("spot"), w.one("on-demand")
	url := w.sqs("GetQueueUrl", `{"QueueName":"events"}`)["QueueUrl"].(string)
	w.must(w.Interrupt(id))
	if err := w.Interrupt(steady); err == nil || !strings.Contains(err.Error(), "only spot instances are interrupted") {
		t.Error(err)
	}
	w.clock.Step(time.Minute)
	if w.instance(id).State == aws.ShuttingDown {
		t.Error("ended within the notice")
	}
	kinds := map[string]int{}
	for {
		got, _ := w.sqs("ReceiveMessage", `{"QueueUrl":"`+url+`","MaxNumberOfMessages":10,"VisibilityTimeout":20}`)["Messages"].([]any)
		if len(got) == 0 {
			break
		}
		for _, m := range got {
			body := map[string]any{}
			w.must(json.Unmarshal([]byte(m.(map[string]any)["Body"].(string)), &body))
			kinds[body["detail-type"].(string)]++
			if detail := body["detail"].(map[string]any); detail["instance-action"] == "terminate" && detail["instance-id"] != id {
				t.Errorf("the warning is %v", body)
			}
			w.sqs("DeleteMessage", `{"QueueUrl":"`+url+`","ReceiptHandle":"`+m.(map[string]any)["ReceiptHandle"].(string)+`"}`)
		}
	}
	if kinds["EC2 Spot Instance Interruption Warning"] != 1 || kinds["EC2 Instance State-change Notification"] < 2 {
		t.Errorf("messages are %v", kinds)
	}
	w.pass(time.Minute)
	w.eventually("ended", func() bool { return w.instance(id).State == aws.Terminated })
	if w.instance(id).Reason != aws.ReasonInterruption || w.instance(steady).State != aws.Running {
		t.Errorf("reason %s", w.instance(id).Reason)
	}
}

// sqs makes a call in the JSON protocol, as the SDK does.
func (w *world) sqs(operation, body string) map[string]any {
	w.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, w.URL()+"/", strings.NewReader(body))
	w.must(err)
	req.Header.Set("X-Amz-Target", "AmazonSQS."+operation)
	res, err := http.DefaultClient.Do(req)
	w.must(err)
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	w.must(err)
	out := map[string]any{}
	w.must(json.Unmarshal(raw, &out))
	if res.StatusCode != http.StatusOK {
		w.Fatalf("%s answers %d, %s", operation, res.StatusCode, raw)
	}
	return out
}

func TestDeadMachineIsImpairedAndARebootRevivesIt(t *testing.T) {
	w, ctx := start(t, aws.Options{BootDelay: aws.Fixed(time.Second)}), context.Background()
	w.template("lt", nil)
	id := w.one("on-demand")
	w.pass(2 * time.Second)
	w.eventually("a node", func() bool { return w.instance(id).BootedAt != nil })
	impaired := func() int {
		out, err := w.ec2.DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{Filters: []types.Filter{filter("instance-status.status", "impaired")}})
		w.must(err)
		return len(out.InstanceStatuses)
	}
	if impaired() != 0 {
		t.Error("a sound machine is impaired")
	}
	w.must(w.Fail(id))
	w.eventually("no heartbeats", func() bool { return w.nodes.did("fail " + id) })
	if impaired() != 1 || w.instance(id).State != aws.Running {
		t.Error("a dead machine must be running and impaired")
	}
	_, err := w.ec2.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: []string{id}})
	w.must(err)
	w.pass(2 * time.Second)
	w.eventually("rebooted", func() bool { return w.instance(id).BootedAt != nil && w.instance(id).FailedAt == nil })
	if impaired() != 0 {
		t.Error("impaired after a reboot")
	}
}

func TestARebootOfASoundMachine(t *testing.T) {
	w, ctx := start(t, aws.Options{BootDelay: aws.Fixed(time.Second)}), context.Background()
	w.template("lt", nil)
	id := w.one("on-demand")
	w.pass(2 * time.Second)
	w.eventually("a node", func() bool { return w.instance(id).BootedAt != nil })
	first := *w.instance(id).BootAt
	_, err := w.ec2.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: []string{id}})
	w.must(err)
	w.eventually("no heartbeats", func() bool { return w.nodes.did("fail " + id) })
	if w.instance(id).BootedAt != nil || !w.instance(id).BootAt.After(first) {
		t.Errorf("between its boots it is %+v", w.instance(id))
	}
	_, err = w.ec2.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: []string{id}})
	w.must(err) // asked again while it boots
	w.pass(2 * time.Second)
	w.eventually("rebooted", func() bool { return w.instance(id).BootedAt != nil })
	if w.instance(id).State != aws.Running {
		t.Errorf("after a reboot it is %s", w.instance(id).State)
	}
	if err := w.Reboot("i-none"); err == nil {
		t.Error("an instance that does not exist was rebooted")
	}
}

func TestAPIFaults(t *testing.T) {
	w, ctx := start(t, aws.Options{}), context.Background()
	call := func() string {
		_, err := w.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{}, func(o *ec2.Options) { o.RetryMaxAttempts = 1 })
		return w.code(err)
	}
	calls := func(n int) (codes []string) {
		for range n {
			codes = append(codes, call())
		}
		return codes
	}
	add := func(f aws.Fault) string {
		id, err := w.AddFault(f)
		w.must(err)
		return id
	}
	add(aws.Fault{Kind: aws.APIFault, Operation: "Describe*", Count: 2})
	if diff := cmp.Diff([]string{"RequestLimitExceeded", "RequestLimitExceeded", ""}, calls(3)); diff != "" {
		t.Errorf("the next two calls: %s", diff)
	}
	id := add(aws.Fault{Kind: aws.APIFault, Operation: "DescribeSubnets", Rate: 0.5, Code: "InternalError"})
	if diff := cmp.Diff([]string{"", "InternalError", "", "InternalError"}, calls(4)); diff != "" {
		t.Errorf("half of the calls: %s", diff)
	}
	w.must(w.ClearFault(id))
	add(aws.Fault{Kind: aws.APIFault, Operation: "*", For: aws.Duration(time.Minute)})
	if call() != "RequestLimitExceeded" {
		t.Error("a fault for a minute does not hold")
	}
	w.clock.Step(time.Minute)
	if call() != "" || len(w.Faults()) != 0 {
		t.Errorf("a fault for a minute holds on, %v", w.Faults())
	}
	add(aws.Fault{Kind: aws.APIFault, Operation: "CreateFleet"})
	w.must(w.ClearFaults(aws.CapacityFault))
	if len(w.Faults()) != 1 {
		t.Error("clearing one kind cleared another")
	}
	w.must(w.ClearFaults(""))
	if err := w.ClearFault("fault-x"); err == nil || !strings.Contains(err.Error(), `"fault-x"`) {
		t.Error(err)
	}
}

func TestStateSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "state.json")
	first := start(t, aws.Options{StatePath: path, BootDelay: aws.Fixed(time.Minute), Seed: 7})
	first.template("lt", nil)
	in := first.fleet(2, "on-demand", []string{"g5.xlarge"}, []string{zoneA})
	in.ClientToken = awssdk.String("token")
	ids, _ := launched(first.createFleet(in))
	_, err := first.AddFault(aws.Fault{Kind: aws.CapacityFault})
	first.must(err)
	_, err = first.ec2.CreateTags(context.Background(), &ec2.CreateTagsInput{Resources: ids[:1], Tags: []types.Tag{{Key: awssdk.String("karpenter.sh/nodeclaim"), Value: awssdk.String("n1")}}})
	first.must(err)
	// No Stop before the second start: whatever was answered is on disk already.
	second := start(t, aws.Options{StatePath: path, BootDelay: aws.Fixed(time.Minute), Seed: 7})
	if diff := cmp.Diff(first.Instances(), second.Instances()); diff != "" {
		t.Error(diff)
	}
	again, _ := launched(second.createFleet(in))
	if diff := cmp.Diff(ids, again); diff != "" || len(second.Faults()) != 1 || second.Report(nil).Calls["CreateFleet"] != 2 {
		t.Errorf("%s, faults %v, calls %v", diff, second.Faults(), second.Report(nil).Calls)
	}
	second.pass(2 * time.Minute)
	second.eventually("both boot in the second life", func() bool { return second.nodes.did("launch "+ids[0]) && second.nodes.did("launch "+ids[1]) })
}

func TestReport(t *testing.T) {
	w, ctx := start(t, aws.Options{}), context.Background()
	w.template("lt", nil)
	tag := func(id, claim string) {
		_, err := w.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: awssdk.String("karpenter.sh/nodeclaim"), Value: &claim}}})
		w.must(err)
	}
	owned, orphan, twice, unclaimed := w.one("on-demand"), w.one("on-demand"), w.one("on-demand"), w.one("on-demand")
	tag(owned, "claim-1")
	tag(orphan, "claim-2")
	tag(twice, "claim-1")
	w.clock.Step(30 * time.Second)
	w.must(w.Terminate(unclaimed))
	w.clock.Step(time.Hour - 30*time.Second)
	r := w.Report(&aws.Existing{NodeClaims: []string{"claim-1"}})
	if diff := cmp.Diff([]string{orphan}, r.Orphans); diff != "" {
		t.Errorf("orphans: %s", diff)
	}
	if len(r.DoubleLaunches) != 1 || r.DoubleLaunches[0].NodeClaim != "claim-1" || len(r.DoubleLaunches[0].Instances) != 2 {
		t.Errorf("double launches are %v", r.DoubleLaunches)
	}
	if diff := cmp.Diff([]string{unclaimed}, r.Unclaimed); diff != "" {
		t.Errorf("unclaimed: %s", diff)
	}
	// Three instances for an hour and one for its minimum of a minute, at 1 USD an hour.
	if r.Launched != 4 || r.Live != 3 || r.PeakLive != 4 || r.PricePerHour != 3 || r.Cost < 3.0166 || r.Cost > 3.0167 {
		t.Errorf("report is %+v", r)
	}
	r = w.Report(&aws.Existing{ProviderIDs: []string{"aws:///us-east-1a/" + orphan}, NodeClaims: []string{"claim-1"}})
	if len(r.Orphans) != 0 {
		t.Errorf("orphans by provider ID are %v", r.Orphans)
	}
	if w.Report(nil).Orphans == nil || len(w.Report(nil).Orphans) != 0 {
		t.Error("orphans without knowledge of the cluster")
	}
}
